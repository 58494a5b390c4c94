import { planTopics } from '../../src/adapters/kafka/topics/plan.ts';
import type { Config } from '../../src/config/config.ts';
import { decodeAssignment, decodeStandbys } from '../../src/kafka/loops/member-claims.ts';
import type { Share } from '../../src/kafka/loops/planner.ts';
import { DENSE } from '../../src/kafka/records/record.ts';
import type { Dialer } from '../../src/kafka/wire/port.ts';
import type { LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import { batchOf, headOf, recordsOf } from '../support/fake-kafka/batches.ts';
import type { Cluster } from '../support/fake-kafka/cluster.ts';
import { type FakeKafka, fakeKafka } from '../support/fake-kafka/fake-kafka.ts';
import type { CallObserver, Fate, Message, Network } from '../support/fake-kafka/network.ts';
import type { Partition } from '../support/fake-kafka/partition.ts';
import type { Topic } from '../support/fake-kafka/topic.ts';
import { partitionIn } from '../support/fake-kafka/view.ts';
import { amongJunk, requireDense } from './dense.ts';
import type { History, RequestLoss } from './history.ts';
import type { Process } from './machine.ts';
import { configOf, FIRST, type Pair, pairAt, pairOf, partitionsOf, SECOND, STRAYS } from './pairs.ts';
import { allOf, type Draft, Recorder, requestOf } from './recorder.ts';
import { serverClock } from './runtime.ts';
import { configFor, isReplyTopic, LATE_REPLY_TOPIC, REPLY_TOPICS, TAG, WITNESS } from './setting.ts';
import type { World } from './world.ts';

/** The lowest end of a partition that any broker may report from now on, if it believes to be the leader. */
function surelyEnds({ brokers }: Pick<Cluster, 'brokers'>, at: Partition): number {
  const { leadership, topic, number } = at;
  const ends = [...brokers.values()].flatMap(({ node, view }) => {
    const { believed } = partitionIn(view, topic, number) ?? {};
    if (believed === leadership) return [];
    // A broker may have missed several changes, one of which made it the leader and a later one deposed it.
    const mayLead = believed === undefined || believed.leader === node || leadership.epoch > believed.epoch + 1;
    return mayLead ? [at.highWatermarkOf(node)] : [];
  });
  return Math.min(at.highWatermark, ...ends);
}

/** The record at an offset; undefined if the log doesn't have it. */
function recordAt({ log }: Partition, offset: number): LedgerRecord | undefined {
  if (offset < log.start || offset >= log.end) return undefined;
  const records = log.batches(offset, offset + 1).flatMap(recordsOf);
  const record = records.find((one) => one.offset === offset);
  if (record === undefined) return undefined;
  const { key = null, value = null, headers, timestampMs } = record;
  return { offset, key, value, headers, appendedAtMs: timestampMs };
}

/** Empty fetches are held longer than workers request, so that waiting costs few events. */
const HOLD_MS = 1_000;
/** In one seed of so many, brokers keep fewer fetch sessions than workers ask for, so that they end all the time. */
const SEEDS_WITH_FEW_SESSIONS = 3;
const FEW_SESSIONS = 2;
/** Limits of a fetch, so small that it often ends within a batch. */
const FETCH_BYTES = [200, 4_000] as const;

interface SendOptions {
  readonly inTransaction?: boolean;
  /** Among so many other records that the batch is dense. */
  readonly isDense?: boolean;
}

/** How often to check whether all brokers know a recreated topic. */
const RECREATED_MS = 500;

/** The simulated brokers: their topics, records sent from outside, and the faults that they support. */
export class Brokers {
  readonly kafka: FakeKafka;
  readonly recorder: Recorder;
  readonly config: Config;
  /** The pairs of topics that exist. */
  readonly pairs: Pair[] = [FIRST];
  /** Each may decide the fate of a process's message; the first that returns one decides. */
  readonly meddlers: Array<(process: string, message: Message) => Fate | undefined> = [];
  /** How each transaction ends, or will. */
  readonly transactions = new Map<bigint, 'commit' | 'abort'>();
  /** Request partitions must end below this. */
  requestsEndBelow: (partition: number) => number = () => Number.POSITIVE_INFINITY;
  /** What retention leaves of a ledger partition begins below this. */
  trimsAtMost: (partition: number) => number = () => Number.POSITIVE_INFINITY;
  readonly #world: World;
  readonly #history: History;
  /** The recreated ledger topic, while a broker may still serve the one before. */
  #unknownLedger: Topic | undefined;
  #tags = 0;
  #producers = 0n;

  constructor(world: World, history: History) {
    this.#world = world;
    this.#history = history;
    const { rng } = world;
    const nodes = rng.pick([1, 2, 3, 3]);
    const cutsFetches = rng.chance(0.5);
    this.config = configFor(world.layout, nodes, rng.pick([0, 1, 1, 'all']));
    this.recorder = new Recorder(world, history);
    this.kafka = fakeKafka({
      clock: serverClock(world),
      nodes,
      delayMs: () => rng.between(0.1, 2),
      replicationMs: () => rng.between(0.1, 2),
      propagationMs: () => rng.between(0, 20),
      fenceAfterMs: rng.between(1_000, 9_000),
      holdMs: HOLD_MS,
      ...(world.seed % SEEDS_WITH_FEW_SESSIONS === 1 ? { fetchSessions: FEW_SESSIONS } : {}),
      fetchBytes: () => (cutsFetches ? rng.between(...FETCH_BYTES) : Number.POSITIVE_INFINITY),
      groups: { initialDelayMs: 200, loadMs: () => (rng.chance(0.5) ? 0 : rng.between(0, 2_000)) },
    });
    this.network.isDoneOnceAnswered = (topic) => topic === WITNESS;
    const { cluster } = this;
    cluster.onTopic = ({ name, partitions }) => {
      const pair = pairOf('requests', name) ?? pairOf('ledger', name);
      for (const partition of partitions.slice(0, pair?.partitions)) partition.observer = this.recorder;
    };
    this.recorder.assignedTo = (pair, memberId) => this.#assignedTo(pair, memberId);
    cluster.groups.onCommit = (request) => this.recorder.committed(request);
    this.#createTopics(FIRST);
    for (const [i, name] of REPLY_TOPICS.entries()) this.#makeReplyTopic(name, i + 1);
  }

  get cluster(): Cluster {
    return this.kafka.cluster;
  }

  get network(): Network {
    return this.kafka.network;
  }

  get nodes(): readonly number[] {
    return [...this.cluster.brokers.keys()];
  }

  /** The true time. */
  nowMs(): number {
    return Math.floor(this.cluster.clock.wallMs());
  }

  /** Connections of one process, observed by the recorder and by the given observers. */
  dialer(process: Process, observers: readonly CallObserver[]): Dialer {
    return this.kafka.dialer({
      name: process.name,
      deliver: (run) => process.deliver(run),
      reaches: (node) => !process.cut.has('kafka') && !process.cut.has(`kafka:${node}`),
      observer: allOf([this.recorder.observer(process.name), ...observers]),
      fateOf: (message) => this.#fateOf(process.name, message),
    });
  }

  #fateOf(process: string, message: Message): Fate | undefined {
    for (const meddle of this.meddlers) {
      const fate = meddle(process, message);
      if (fate !== undefined) return fate;
    }
    return undefined;
  }

  /** Creates the topics of the second pair, and those of workers with a wrong configuration. */
  grow(): void {
    for (const pair of [SECOND, ...STRAYS]) this.#createTopics(pair);
    this.pairs.push(SECOND);
    this.#world.note(() => 'the second pair of topics is created');
  }

  /** The number of partitions in the history. */
  get partitions(): number {
    return this.pairs.reduce((sum, { partitions }) => sum + partitions, 0);
  }

  /** Whether the topic is of clients: no worker reads it. */
  isOfClients(topic: string): boolean {
    return isReplyTopic(topic) || this.pairs.some(({ deadLetters }) => deadLetters === topic);
  }

  partition(what: 'requests' | 'ledger', partition: number): Partition {
    const pair = pairAt(partition);
    return this.cluster.partition(pair[what], partition - pair.first);
  }

  bounds(what: 'requests' | 'ledger', partition: number): { readonly low: number; readonly high: number } {
    const { log, highWatermark } = this.partition(what, partition);
    return { low: log.start, high: highWatermark };
  }

  /** The committed offset of a request partition. */
  committed(partition: number): number | undefined {
    const { group, requests, first } = pairAt(partition);
    return this.cluster.groups.committed(group, requests, partition - first);
  }

  /** The leader of a ledger partition; -1 while there is none. */
  ledgerLeader(partition: number): number {
    return this.partition('ledger', partition).leadership.leader;
  }

  /** The lowest end of a ledger partition that any broker may report from now on, if it believes to be the leader. */
  surelyEnds(partition: number): number {
    return surelyEnds(this.cluster, this.partition('ledger', partition));
  }

  /** The record of the ledger at an offset; undefined if the log doesn't have it. */
  ledgerRecord(partition: number, offset: number): LedgerRecord | undefined {
    return recordAt(this.partition('ledger', partition), offset);
  }

  /** Sends requests as a client does; does nothing while the partition has no leader, or may not grow so far. */
  send(partition: number, drafts: readonly Draft[], options: SendOptions = {}): void {
    const at = this.partition('requests', partition);
    if (this.cluster.brokers.get(at.leadership.leader)?.state !== 'up') return;
    const { inTransaction = false, isDense = false } = options;
    const most = drafts.length + (isDense ? DENSE.records + 1 : 0);
    if (at.log.end + most >= this.requestsEndBelow(partition)) return;
    const requests = drafts.map((draft) => {
      this.#tags += 1;
      const tag = `r${this.#tags}`;
      this.recorder.announce(tag, draft);
      const { headers, ...record } = requestOf(draft);
      return { ...record, headers: { ...headers, [TAG]: tag } };
    });
    const timestampMs = this.nowMs();
    const records = isDense ? amongJunk(requests, this.#world.rng) : requests;
    const producer = inTransaction ? { producerId: ++this.#producers } : {};
    const batch = batchOf(records, { timestampMs, ...producer });
    if (isDense) requireDense(records.length, batch);
    if (inTransaction) this.#sendInTransaction(at, batch);
    else this.cluster.sendBatch(at.topic, at.number, batch);
  }

  /** Sends a request to the first pair's partition that was added, if that has a leader. */
  sendToAdded(correlationId: string): void {
    const at = this.cluster.partition(FIRST.requests, FIRST.partitions);
    if (this.cluster.brokers.get(at.leadership.leader)?.state !== 'up') return;
    const draft = { correlationId, count: 1, replyTopic: REPLY_TOPICS[0] };
    const tag = `r-${correlationId}`;
    this.recorder.announce(tag, draft);
    const record = { ...requestOf(draft), headers: { [TAG]: tag } };
    this.cluster.sendBatch(at.topic, at.number, batchOf([record], { timestampMs: this.nowMs() }));
    this.recorder.strayed(tag);
  }

  /** Sends in a transaction, which commits or aborts a while later. */
  #sendInTransaction({ topic, number }: Partition, batch: Buffer): void {
    const { rng } = this.#world;
    const producerId = this.#producers;
    const kind = rng.chance(0.5) ? 'commit' : 'abort';
    this.transactions.set(producerId, kind);
    this.cluster.sendBatch(topic, number, batch);
    this.#world.note(() => `transaction ${producerId} begins`);
    const end = (): void => {
      this.#world.note(() => `transaction ${producerId}: ${kind}`);
      this.cluster.endTransaction(topic, number, kind, producerId);
    };
    this.#world.after(rng.between(0, 3_000), end);
  }

  /** Sends a dead letter's request again, as an operator does: the same key, value and demand. */
  resend(partition: number): void {
    const letters = this.cluster.partition(pairAt(partition).deadLetters, 0).log.batches();
    if (letters.length === 0) return;
    const { rng } = this.#world;
    const [letter] = recordsOf(rng.pick(letters));
    const draft = this.recorder.draftOf(String(letter?.headers?.[TAG]));
    if (draft !== undefined) this.send(partition, [draft]);
  }

  makeLateTopic(): void {
    if (!this.cluster.topics.has(LATE_REPLY_TOPIC)) this.#makeReplyTopic(LATE_REPLY_TOPIC, 1);
  }

  /**
   * The offset up to which whole batches of a partition are older than `ageMs` by its leader's clock, as for retention.
   */
  agedTo(what: 'requests' | 'ledger', partition: number, ageMs: number): number {
    const { log, leadership } = this.partition(what, partition);
    const nowMs = this.cluster.brokers.get(leadership.leader)?.clock.wallMs() ?? Number.NEGATIVE_INFINITY;
    const young = log.batches().find((batch) => headOf(batch).maxTimestampMs + ageMs > nowMs);
    return young === undefined ? log.end : headOf(young).baseOffset;
  }

  /** Drops the head of a ledger partition, as retention does. */
  trim(partition: number, low: number): void {
    const at = this.partition('ledger', partition);
    at.trim(Math.min(low, at.highWatermark, this.trimsAtMost(partition)));
    this.#history.trims.push({ order: this.#world.tick(), partition, low: at.log.start });
    this.#world.note(() => `ledger ${partition}: trimmed to ${at.log.start}`);
  }

  /** Loses the tail of a ledger partition, as an election among brokers that lag does. */
  truncate(partition: number, from: number): void {
    const at = this.partition('ledger', partition);
    const before = at.log.end;
    this.cluster.truncate(at.topic, at.number, from);
    const { end } = at.log;
    this.lost('ledger', partition, { from: end, end: before });
    this.#world.note(() => `ledger ${partition}: truncated to ${end}`);
  }

  /** Notes that a log has lost its tail, from an offset to its end. */
  lost(what: 'requests' | 'ledger', partition: number, tail: { readonly from: number; readonly end: number }): void {
    const { losses, requestLosses, requestEnds } = this.#history;
    const { from, end } = tail;
    const order = this.#world.tick();
    if (what === 'ledger') {
      losses.push({ order, partition, from, end });
      return;
    }
    requestLosses.push({ order, partition, from, end, seen: undefined });
    requestEnds.push({ order, partition, end: from });
    this.recorder.lost(partition, from);
  }

  /** Loses the tail of a request partition, read or not; undefined if it was empty. */
  truncateRequests(partition: number, from: number): RequestLoss | undefined {
    const at = this.partition('requests', partition);
    const { end } = at.log;
    this.cluster.truncate(at.topic, at.number, from);
    if (at.log.end === end) return undefined;
    this.lost('requests', partition, { from: at.log.end, end });
    const loss = this.#history.requestLosses.at(-1) as RequestLoss;
    this.#world.note(() => `requests ${partition}: truncated from ${end} to ${loss.from}`);
    return loss;
  }

  /** Deletes and recreates the ledger topic of the first pair. A broker that does not know yet keeps the old one. */
  recreateLedger(): void {
    const ends = partitionsOf(FIRST).map((partition) => this.bounds('ledger', partition).high);
    this.#createTopics(FIRST, (name) => name === FIRST.ledger);
    this.#world.note(() => 'the ledger topic is recreated');
    const created = this.cluster.topics.get(FIRST.ledger);
    this.#unknownLedger = created;
    const isKnownBy = (node: number) => this.cluster.broker(node).view.topics.get(FIRST.ledger)?.topic === created;
    const lose = (): void => {
      for (const partition of partitionsOf(FIRST)) {
        this.lost('ledger', partition, { from: 0, end: ends[partition] ?? 0 });
      }
      if (this.#unknownLedger !== created) return;
      if (this.nodes.every(isKnownBy)) this.#unknownLedger = undefined;
      else this.#world.after(RECREATED_MS, lose);
    };
    lose();
  }

  /**
   * Whether a broker may still serve a log of this ledger partition that is gone: until then, each moment is one of
   * loss.
   */
  mayServeLostLedger(partition: number): boolean {
    return pairAt(partition) === FIRST && this.#unknownLedger !== undefined;
  }

  /** Drops the head of a request partition, whether it was read or not. */
  trimRequests(partition: number, low: number): void {
    const at = this.partition('requests', partition);
    at.trim(Math.min(low, at.highWatermark));
    this.#history.requestTrims.push({ order: this.#world.tick(), partition, low: at.log.start });
    this.#world.note(() => `requests ${partition}: trimmed to ${at.log.start}`);
  }

  /** Sets a committed offset back, or deletes it. */
  resetOffsets(partition: number, offset: number | undefined): void {
    const { group, requests, first } = pairAt(partition);
    this.cluster.groups.reset(group, requests, partition - first, offset);
    this.#world.note(() => `requests ${partition}: committed offset set to ${offset}`);
  }

  #assignedTo({ group, requests, first }: Pair, memberId: string): readonly number[] {
    const member = this.cluster.groups.get(group)?.members.find((one) => one.memberId === memberId);
    const { assigned } = decodeAssignment(member?.assignment ?? Buffer.alloc(0));
    return assigned.flatMap(({ topic, partitions }) =>
      topic === requests ? partitions.map((number) => first + number) : [],
    );
  }

  /** What the group of the first pair has assigned to the member of a process. */
  shareOf(process: string): Pick<Share, 'partitions' | 'standbys'> {
    const member = this.cluster.groups.get(FIRST.group)?.members.find(({ clientId }) => clientId === process);
    const { userData } = decodeAssignment(member?.assignment ?? Buffer.alloc(0));
    const standbys = decodeStandbys(userData ?? Buffer.alloc(0))?.standbys ?? [];
    return { partitions: this.#assignedTo(FIRST, member?.memberId ?? ''), standbys };
  }

  /** The brokers that lead a request partition of the first pair and its part of the ledger. */
  leadersOf(partition: number): readonly number[] {
    return (['requests', 'ledger'] as const).map((what) => this.partition(what, partition).leadership.leader);
  }

  /** Records how often leaders and members changed. */
  count(): void {
    for (const { ledger, group } of this.pairs) {
      for (const { leadership } of this.cluster.topics.get(ledger)?.partitions ?? []) {
        this.#history.elections += leadership.epoch;
      }
      this.#history.rebalances += this.cluster.groups.get(group)?.generation ?? 0;
    }
  }

  /** Creates the topics of a pair that are missing or are to be recreated. */
  #createTopics(pair: Pair, isWanted = (name: string) => !this.cluster.topics.has(name)): void {
    for (const { name, partitions, configs } of planTopics(configOf(this.config, pair).topics)) {
      if (isWanted(name)) this.cluster.createTopic(name, { partitions, replicas: this.nodes.length, configs });
    }
  }

  #makeReplyTopic(name: string, partitions: number): void {
    const configs = { 'min.insync.replicas': this.nodes.length < 3 ? '1' : '2' };
    this.cluster.createTopic(name, { partitions, replicas: this.nodes.length, configs });
  }
}
