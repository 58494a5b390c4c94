import type { FaultName } from '../../../src/kafka/wire/fault.ts';
import { batchOf, markerOf, type PlainRecord } from './batches.ts';
import { Broker } from './broker.ts';
import type { CallName } from './calls.ts';
import type { Clockwork } from './clockwork.ts';
import { Groups, type GroupsOptions } from './groups.ts';
import type { Outcome, Partition } from './partition.ts';
import { Topic, type TopicOptions } from './topic.ts';
import { type View, viewOf } from './view.ts';

export interface ClusterOptions {
  readonly clock: Clockwork;
  readonly nodes?: number;
  readonly groups?: Partial<GroupsOptions>;
  /** How long followers take to have a batch. */
  readonly replicationMs?: () => number;
  /** How long a broker takes to learn of a change. */
  readonly propagationMs?: () => number;
  /** How long a broker is silent until the controller gives it up. */
  readonly fenceAfterMs?: number;
  /** A fetch that finds nothing is held for so long, though less was asked for: simulations save events by it. */
  readonly holdMs?: number;
  /** The most that a fetch brings of one partition, whatever was asked for. */
  readonly fetchBytes?: () => number;
}

const GROUPS: GroupsOptions = { initialDelayMs: 0, minSessionMs: 6_000, maxSessionMs: 1_800_000, loadMs: () => 0 };
const FENCE_AFTER_MS = 9_000;
const MARKER_RETRY_MS = 100;

/**
 * The brokers and what they keep. The controller is no broker here and never fails: it gives silent brokers up after a
 * while, has others lead, and tells everybody, who learn of it a moment later.
 */
export class Cluster {
  readonly clusterId = 'fake-kafka';
  readonly clock: Clockwork;
  readonly topics = new Map<string, Topic>();
  readonly groups: Groups;
  readonly brokers: ReadonlyMap<number, Broker>;
  /** What every answer says of it. */
  throttleMs = 0;
  /** Refuses a call before it is served, when it has a name for that. */
  refuses: (call: CallName, node: number) => FaultName | undefined = () => undefined;
  /** Called for each topic that is made, before anything is in it. */
  onTopic: (topic: Topic) => void = () => {};
  /** Fetches that find nothing are held for so long at least. */
  readonly holdMs: number;
  readonly fetchBytes: () => number;
  readonly #options: ClusterOptions;
  readonly #fenced = new Set<number>();
  readonly #denied = new Set<string>();
  /** What a broker learns waits until then, by the monotonic clock. */
  readonly #deafUntilMs = new Map<number, number>();
  #version = 0;

  constructor(options: ClusterOptions) {
    this.#options = options;
    this.clock = options.clock;
    this.holdMs = options.holdMs ?? 0;
    this.fetchBytes = options.fetchBytes ?? (() => Number.POSITIVE_INFINITY);
    const nodes = Array.from({ length: options.nodes ?? 1 }, (_, i) => i + 1);
    const empty = viewOf(0, nodes, [], new Map());
    this.groups = new Groups({ ...GROUPS, ...options.groups }, this.clock, (node) => this.broker(node).clock);
    this.brokers = new Map(nodes.map((node) => [node, new Broker(node, this, empty)]));
  }

  broker(node: number): Broker {
    const broker = this.brokers.get(node);
    if (broker === undefined) throw new RangeError(`there is no broker ${node}`);
    return broker;
  }

  /** Those that the controller counts on. */
  get liveNodes(): readonly number[] {
    return [...this.brokers.keys()].filter((node) => !this.#fenced.has(node));
  }

  partition(topic: string, number: number): Partition {
    const partition = this.topics.get(topic)?.partitions[number];
    if (partition === undefined) throw new RangeError(`there is no partition ${number} of ${topic}`);
    return partition;
  }

  isDenied(topic: string): boolean {
    return this.#denied.has(topic);
  }

  /** Refuses a topic to everybody. */
  deny(topic: string): void {
    this.#denied.add(topic);
  }

  /** Ends that. */
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

  deleteTopic(name: string): void {
    this.topics.delete(name);
    this.#changed();
  }

  /** The coordinator of a group, which gets one; undefined while there is no broker. */
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

  /** Moves a group to another broker that lives, if there is one. */
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

  /** A broker stops dead: its connections break, its memory is gone. */
  crash(node: number): void {
    this.broker(node).stop();
    this.#fenceLater(node, () => this.broker(node).state !== 'up');
  }

  /** A broker comes back with what is on its disk. */
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

  /** The controller gives a broker up at once, as it does with one that stops in order. */
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

  /** The controller counts on a broker again, if it runs. */
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

  /** A broker goes on with what it believes now, whatever changes. */
  deafen(node: number, forMs: number): void {
    this.#deafUntilMs.set(node, this.clock.monotonicMs() + forMs);
  }

  /** Loses the tail of a partition, acknowledged or not. */
  truncate(topic: string, partition: number, from: number): void {
    this.partition(topic, partition).truncate(from);
    this.#changed();
  }

  /** Writes records as another sender would, without a network; answers with the first offset. */
  send(topic: string, partition: number, records: readonly PlainRecord[], producerId?: bigint): number {
    const timestampMs = Math.floor(this.clock.wallMs());
    const options = producerId === undefined ? { timestampMs } : { timestampMs, producerId };
    return this.sendBatch(topic, partition, batchOf(records, options));
  }

  /** `durable` is called with the fault, if any, once all copies in sync have it or can't get it. */
  sendBatch(topic: string, partition: number, batch: Buffer, durable: Outcome = () => {}): number {
    const at = this.partition(topic, partition);
    const leader = this.brokers.get(at.leadership.leader);
    const nowMs = leader?.clock.wallMs() ?? Math.floor(this.clock.wallMs());
    return at.append(batch, nowMs, durable).baseOffset;
  }

  /** Ends a transaction in one partition: as often as it takes, for a marker may be lost with its leader. */
  endTransaction(topic: string, partition: number, kind: 'abort' | 'commit', producerId: bigint): void {
    const again = (): void => {
      this.clock.schedule(MARKER_RETRY_MS, () => this.endTransaction(topic, partition, kind, producerId));
    };
    const { leader } = this.partition(topic, partition).leadership;
    if (this.brokers.get(leader)?.state !== 'up') again();
    else {
      const marker = markerOf(kind, producerId, Math.floor(this.clock.wallMs()));
      this.sendBatch(topic, partition, marker, (fault) => {
        if (fault === 'NOT_LEADER_FOR_PARTITION') again();
      });
    }
  }

  #fenceLater(node: number, isGone: () => boolean): void {
    const { fenceAfterMs = FENCE_AFTER_MS } = this.#options;
    this.clock.schedule(fenceAfterMs, () => {
      if (isGone()) this.fence(node);
    });
  }

  /** Tells every broker, each in its time. */
  #changed(): void {
    this.#version += 1;
    const view = viewOf(this.#version, this.liveNodes, this.topics.values(), this.groups.coordinators);
    for (const broker of this.brokers.values()) this.#tell(broker, view);
  }

  #tell(broker: Broker, view: View): void {
    const { propagationMs } = this.#options;
    const deafMs = (this.#deafUntilMs.get(broker.node) ?? 0) - this.clock.monotonicMs();
    if (propagationMs === undefined && deafMs <= 0) broker.deliver(() => broker.learn(view));
    else {
      this.clock.schedule(Math.max(deafMs, propagationMs?.() ?? 0), () => broker.deliver(() => broker.learn(view)));
    }
  }
}
