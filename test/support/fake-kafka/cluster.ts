import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { ApiName } from '../../../src/kafka/wire/port.ts';
import type { FetchPosition, FetchRequest } from '../../../src/kafka/wire/record-apis.ts';
import { batchOf, markerOf, type PlainRecord } from './batches.ts';
import { Broker } from './broker.ts';
import type { Clockwork } from './clockwork.ts';
import { Groups, type GroupsOptions } from './groups.ts';
import type { Outcome, Partition } from './partition.ts';
import { Topic, type TopicOptions } from './topic.ts';
import { type View, viewOf } from './view.ts';

export interface ClusterOptions {
  readonly clock: Clockwork;
  readonly nodes?: number;
  readonly groups?: Partial<GroupsOptions>;
  /** How long followers take to replicate a batch. */
  readonly replicationMs?: () => number;
  /** How long a broker takes to receive a change. */
  readonly propagationMs?: () => number;
  /** How long a broker may be silent before the controller fences it. */
  readonly fenceAfterMs?: number;
  /** The least time that an empty fetch is held, even if less was requested, to save events in simulations. */
  readonly holdMs?: number;
  /** The most that a fetch returns of one partition, whatever was requested. */
  readonly fetchBytes?: () => number;
  /** The most fetch sessions that a broker keeps; as in Kafka by default. */
  readonly fetchSessions?: number;
  /** The rack of each broker: then replicas serve fetches, and leaders name one in the reader's rack. */
  readonly racks?: ReadonlyMap<number, string>;
}

const GROUPS: GroupsOptions = { initialDelayMs: 0, minSessionMs: 6_000, maxSessionMs: 1_800_000, loadMs: () => 0 };
const FENCE_AFTER_MS = 9_000;
const FETCH_SESSIONS = 1_000;
const MARKER_RETRY_MS = 100;

/**
 * The brokers and their state. The controller is not a broker here and never fails: it fences silent brokers after a
 * while, elects other leaders and informs all brokers, which learn of it with a delay.
 */
export class Cluster {
  /** Another one once the cluster was replaced. */
  clusterId = 'fake-kafka';
  readonly clock: Clockwork;
  readonly topics = new Map<string, Topic>();
  readonly groups: Groups;
  readonly brokers: ReadonlyMap<number, Broker>;
  /** The throttle time in every answer. */
  throttleMs = 0;
  /** Denies all clients the configs of topics. */
  hidesConfigs = false;
  /** Rejects a call before it is served, if it returns a fault. */
  refuses: (call: ApiName, node: number) => KafkaErrorCode | undefined = () => undefined;
  /** Called for each new topic, while it is empty. */
  onTopic: (topic: Topic) => void = () => {};
  /** The least time that empty fetches are held. */
  readonly holdMs: number;
  readonly fetchBytes: () => number;
  readonly racks: ReadonlyMap<number, string>;
  /** The most fetch sessions that a broker keeps; 0 for none. */
  fetchSessions: number;
  #sessionIds = 0;
  readonly #options: ClusterOptions;
  readonly #fenced = new Set<number>();
  readonly #denied = new Set<string>();
  /** Updates of the brokers' views are delayed until then, by the monotonic clock. */
  readonly #deafUntilMs = new Map<number, number>();
  #version = 0;

  constructor(options: ClusterOptions) {
    this.#options = options;
    this.clock = options.clock;
    this.holdMs = options.holdMs ?? 0;
    this.fetchSessions = options.fetchSessions ?? FETCH_SESSIONS;
    this.racks = options.racks ?? new Map();
    this.fetchBytes = options.fetchBytes ?? (() => Number.POSITIVE_INFINITY);
    const nodes = Array.from({ length: options.nodes ?? 1 }, (_, i) => i + 1);
    const empty = viewOf(0, nodes, [], new Map());
    this.groups = new Groups({ ...GROUPS, ...options.groups }, this.clock, (node) => this.broker(node).clock);
    this.brokers = new Map(nodes.map((node) => [node, new Broker(node, this, empty)]));
  }

  broker(node: number): Broker {
    const broker = this.brokers.get(node);
    if (broker === undefined) throw new RangeError(`no broker ${node}`);
    return broker;
  }

  /** The brokers that the controller considers alive. */
  get liveNodes(): readonly number[] {
    return [...this.brokers.keys()].filter((node) => !this.#fenced.has(node));
  }

  partition(topic: string, number: number): Partition {
    const partition = this.topics.get(topic)?.partitions[number];
    if (partition === undefined) throw new RangeError(`no partition ${number} of ${topic}`);
    return partition;
  }

  /** Of no other session of any broker. */
  nextSessionId(): number {
    this.#sessionIds += 1;
    return this.#sessionIds;
  }

  /** All that a request would fetch, whether it names it or is in its session. */
  positionsOf(request: FetchRequest): readonly FetchPosition[] {
    const found = [...this.brokers.values()].map((broker) => broker.fetchSessions.positionsOf(request));
    return found.reduce((most, one) => (one.length > most.length ? one : most), []);
  }

  isDenied(topic: string): boolean {
    return this.#denied.has(topic);
  }

  /** Denies all clients access to a topic. */
  deny(topic: string): void {
    this.#denied.add(topic);
  }

  /** Allows access again. */
  allow(topic: string): void {
    this.#denied.delete(topic);
  }

  createTopic(name: string, options: TopicOptions = {}): Topic {
    const replicationMs = this.#options.replicationMs ?? (() => 0);
    const live = (node: number) => this.broker(node).state === 'up' && !this.#fenced.has(node);
    const nodes = [...this.brokers.keys()];
    const topic = new Topic(name, options, { nodes, clock: this.clock, live, replicationMs });
    this.topics.set(name, topic);
    this.onTopic(topic);
    this.#changed();
    return topic;
  }

  /** Adds partitions to a topic, up to this number. */
  growTopic(name: string, partitions: number): void {
    this.topics.get(name)?.grow(partitions);
    this.#changed();
  }

  /** Changes configs of a topic, as far as readers of its configs see. Returns what undoes that. */
  configure(name: string, changes: Readonly<Record<string, string>>): () => void {
    const { configs } = this.topics.get(name) as Topic;
    const before = new Map(configs);
    for (const [key, value] of Object.entries(changes)) configs.set(key, value);
    return () => {
      for (const key of Object.keys(changes)) configs.set(key, before.get(key) as string);
    };
  }

  deleteTopic(name: string): void {
    this.topics.delete(name);
    this.#changed();
  }

  /** The coordinator of a group, elected if needed; undefined while no broker is available. */
  coordinatorOf(groupId: string): number | undefined {
    const nodes = this.liveNodes;
    const known = this.groups.coordinators.get(groupId);
    if (known !== undefined) return known;
    if (nodes.length === 0) return undefined;
    const sum = [...Buffer.from(groupId)].reduce((total, byte) => (31 * total + byte) % 1_000_003, 7);
    const node = this.groups.coordinatorOf(groupId, nodes[sum % nodes.length] as number);
    this.#changed();
    return node;
  }

  /** Moves a group to another live broker, if there is one. */
  moveCoordinator(groupId: string): void {
    const at = this.groups.coordinators.get(groupId);
    const others = this.liveNodes.filter((node) => node !== at);
    const to = others[Math.floor(this.clock.random() * others.length)] ?? at;
    if (to === undefined) return;
    this.groups.move(groupId, to);
    this.#changed();
  }

  moveLeader(topic: string, partition: number, to: number): boolean {
    const moved = this.partition(topic, partition).move(to);
    if (moved) this.#changed();
    return moved;
  }

  /** A broker crashes: its connections break, its memory is lost. */
  crash(node: number): void {
    this.broker(node).stop();
    this.#fenceLater(node, () => this.broker(node).state !== 'up');
  }

  /** A broker restarts with what is on its disk. */
  restart(node: number): void {
    const broker = this.broker(node);
    if (broker.state !== 'down') return;
    broker.start();
    for (const [groupId, at] of this.groups.coordinators) if (at === node) this.groups.move(groupId, node);
    this.unfence(node);
  }

  freeze(node: number): void {
    this.broker(node).freeze();
    this.#fenceLater(node, () => this.broker(node).state !== 'up');
  }

  thaw(node: number): void {
    this.broker(node).thaw();
    this.unfence(node);
  }

  /** The controller fences a broker immediately, as in a controlled shutdown. */
  fence(node: number): void {
    if (this.#fenced.has(node)) return;
    this.#fenced.add(node);
    for (const topic of this.topics.values()) for (const partition of topic.partitions) partition.fence(node);
    const [first] = this.liveNodes;
    for (const [groupId, at] of this.groups.coordinators) {
      if (at === node && first !== undefined) this.groups.move(groupId, first);
    }
    this.#changed();
  }

  /** The controller unfences a broker, if it runs. */
  unfence(node: number): void {
    if (this.broker(node).state !== 'up') return;
    this.#fenced.delete(node);
    for (const topic of this.topics.values()) {
      for (const partition of topic.partitions) {
        partition.unfence(node);
        partition.replicate();
      }
    }
    this.#changed();
  }

  /** A broker keeps its current view, whatever changes. */
  deafen(node: number, forMs: number): void {
    this.#deafUntilMs.set(node, this.clock.monotonicMs() + forMs);
  }

  /** Loses the tail of a partition, acknowledged or not. */
  truncate(topic: string, partition: number, from: number): void {
    this.partition(topic, partition).truncate(from);
    this.#changed();
  }

  /**
   * Under the same addresses there is another cluster from now on: with empty topics of the same names, and without
   * groups. Nothing that was on its way to the old one arrives, and all connections break.
   */
  replace(clusterId: string): void {
    this.clusterId = clusterId;
    for (const node of this.brokers.keys()) {
      this.broker(node).stop();
      this.broker(node).start();
      this.#deafUntilMs.delete(node);
    }
    this.#fenced.clear();
    this.groups.clear();
    for (const { name, partitions, options } of [...this.topics.values()]) {
      for (const partition of partitions) partition.observer = undefined;
      this.createTopic(name, { ...options, partitions: partitions.length });
    }
    this.#version += 1;
    const view = viewOf(this.#version, this.liveNodes, this.topics.values(), this.groups.coordinators);
    for (const broker of this.brokers.values()) broker.learn(view);
  }

  /** Writes records as another producer would, without a network; returns the first offset. */
  send(topic: string, partition: number, records: readonly PlainRecord[], producerId?: bigint): number {
    const timestampMs = Math.floor(this.clock.wallMs());
    const options = producerId === undefined ? { timestampMs } : { timestampMs, producerId };
    return this.sendBatch(topic, partition, batchOf(records, options));
  }

  /** `durable` is called with the fault, if any, once all in-sync replicas have the batch or can't get it. */
  sendBatch(topic: string, partition: number, batch: Buffer, durable: Outcome = () => {}): number {
    const at = this.partition(topic, partition);
    const leader = this.brokers.get(at.leadership.leader);
    const nowMs = leader?.clock.wallMs() ?? Math.floor(this.clock.wallMs());
    return at.append(batch, nowMs, durable).baseOffset;
  }

  /** Ends a transaction in one partition, with retries, since a marker may be lost with its leader. */
  endTransaction(topic: string, partition: number, kind: 'abort' | 'commit', producerId: bigint): void {
    const again = (): void => {
      this.clock.schedule(MARKER_RETRY_MS, () => this.endTransaction(topic, partition, kind, producerId));
    };
    const { leader } = this.partition(topic, partition).leadership;
    if (this.brokers.get(leader)?.state !== 'up') again();
    else {
      const marker = markerOf(kind, producerId, Math.floor(this.clock.wallMs()));
      this.sendBatch(topic, partition, marker, (errorCode) => {
        if (errorCode === 'NOT_LEADER_FOR_PARTITION') again();
      });
    }
  }

  #fenceLater(node: number, isGone: () => boolean): void {
    const { fenceAfterMs = FENCE_AFTER_MS } = this.#options;
    this.clock.schedule(fenceAfterMs, () => {
      if (isGone()) this.fence(node);
    });
  }

  /** Informs every broker, each with its own delay. */
  #changed(): void {
    this.#version += 1;
    const view = viewOf(this.#version, this.liveNodes, this.topics.values(), this.groups.coordinators);
    for (const broker of this.brokers.values()) this.#sendView(broker, view);
  }

  #sendView(broker: Broker, view: View): void {
    const { propagationMs } = this.#options;
    const deafMs = (this.#deafUntilMs.get(broker.node) ?? 0) - this.clock.monotonicMs();
    if (propagationMs === undefined && deafMs <= 0) broker.deliver(() => broker.learn(view));
    else {
      this.clock.schedule(Math.max(deafMs, propagationMs?.() ?? 0), () => broker.deliver(() => broker.learn(view)));
    }
  }
}
