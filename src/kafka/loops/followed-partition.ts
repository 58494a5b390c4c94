import { Backoff } from '../../async/retrying.ts';
import type { Runtime, Timer } from '../../async/runtime.ts';
import type { BatchDecoder } from '../records/decode.ts';
import { AT, endOfBatch, RECORD_FORMAT, readInt64 } from '../records/format.ts';
import { KafkaError } from '../wire/kafka-error.ts';
import type { FetchedPartition } from '../wire/record-apis.ts';
import { ReplicaChoice } from './replica-choice.ts';
import type { Followed, FollowFrom, TailChunk, TailSink } from './tail-port.ts';

/** The response to a fetch of a partition, which is decoded and delivered in one chunk or several. */
export interface Fetched {
  /** Where the next chunk starts. */
  from: number;
  readonly next: number;
  readonly response: FetchedPartition;
  decoder?: BatchDecoder | undefined;
  /** The chunk in delivery. */
  chunk?: TailChunk | undefined;
}

export interface PartitionHooks {
  /** There may now be room for a fetch. */
  readonly onRoom: (followed: FollowedPartition) => void;
  readonly decode: (fetched: Fetched) => Promise<TailChunk>;
  /** Decoding or delivering a chunk failed. Resolves when it is time to retry. */
  readonly onFailure: (followed: FollowedPartition, error: unknown) => Promise<void>;
}

/**
 * A partition that a tail follows. Fetching chunks and delivering them run independently.
 *
 * Fetching, where the tail changes the state:
 *
 *   finding     -> ready        the cluster has named the leader, or the leader a replica that is near
 *   ready       -> finding      another replica may have to be read
 *   ready       -> fetching     part of a fetch: it is not paused, and `ahead` is free
 *   fetching    -> ready        answered, with or without records
 *   fetching    -> locating     its offset is outside the log, as the leader says
 *   locating    -> backing off  the bounds are known, and the sink has chosen where to continue
 *   any         -> backing off  an error of the call or of the partition
 *   backing off -> finding      after 50 ms, doubled up to 1 s
 *   any         -> stopped      final
 *
 * Delivering: `ahead` (as fetched) -> `current` (decoded and delivered, chunk by chunk) -> released. So at most two
 * responses and one chunk are held, and the next one is fetched while one is decoded and delivered. `seek` and `stop`
 * drop both; `seek` also raises `seeks`, which identifies responses to earlier fetches.
 */
export class FollowedPartition implements Followed {
  readonly topic: string;
  readonly partition: number;
  readonly key: string;
  readonly sink: TailSink;
  readonly #hooks: PartitionHooks;
  state: 'finding' | 'ready' | 'fetching' | 'locating' | 'backing off' | 'stopped' = 'finding';
  readonly replica = new ReplicaChoice();
  /** The node ID of the broker from which it is read, once it is found. */
  node: number | undefined;
  /** Where the next fetch starts. */
  fetchFrom: number;
  seeks = 0;
  /** The seeks before the fetch in progress. */
  seeksAtFetch = 0;
  readonly backoff = new Backoff({ minMs: 50, maxMs: 1_000 });
  backoffTimer: Timer | undefined;
  #ahead: Fetched | undefined;
  #current: Fetched | undefined;
  #isPaused = false;
  /** The highest leader epoch of what was fetched; undefined before the first batch. */
  #leaderEpoch: number | undefined;
  #isDelivering = false;
  #delivering: Promise<void> = Promise.resolve();

  constructor(at: FollowFrom, sink: TailSink, hooks: PartitionHooks) {
    this.topic = at.topic;
    this.partition = at.partition;
    this.key = keyOf(at);
    this.fetchFrom = at.offset;
    this.replica.allow(at.mayLag === true);
    this.sink = sink;
    this.#hooks = hooks;
  }

  get position(): number {
    return this.#current?.from ?? this.#ahead?.from ?? this.fetchFrom;
  }

  /** Whether it can be part of a fetch. */
  get hasRoom(): boolean {
    return this.state === 'ready' && !this.#isPaused && this.#ahead === undefined;
  }

  /** Whether it waits only for its sink to have room again. */
  get isFull(): boolean {
    return this.state === 'ready' && !this.#isPaused && this.#ahead !== undefined;
  }

  /** Resolves when no delivery is in progress. */
  get delivering(): Promise<void> {
    return this.#delivering;
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.proceed();
  }

  seek(offset: number): void {
    this.#current = undefined;
    this.#refetchFrom(offset);
  }

  mayLag(may: boolean): void {
    this.replica.allow(may);
  }

  stop(): void {
    this.state = 'stopped';
    this.#ahead = undefined;
    this.#current = undefined;
    this.backoffTimer?.cancel();
  }

  /**
   * Whether the records are of a later leader than all before. Then the log may have lost its tail and grown again
   * since the last fetch, even if none has failed.
   */
  isOfNewLeader({ records }: FetchedPartition): boolean {
    const known = this.#leaderEpoch;
    const epoch = lastLeaderEpoch(records);
    if (epoch !== undefined && (known === undefined || epoch > known)) this.#leaderEpoch = epoch;
    return known !== undefined && this.#leaderEpoch !== known;
  }

  /** Whether the records are of an earlier leader than some before: then a replica has another life of the log. */
  isOfEarlierLeader({ records }: FetchedPartition): boolean {
    const epoch = lastLeaderEpoch(records);
    return epoch !== undefined && this.#leaderEpoch !== undefined && epoch < this.#leaderEpoch;
  }

  /** Takes what was fetched from `fetchFrom`; false if it does not contain one whole batch. */
  keep(response: FetchedPartition): boolean {
    const from = this.fetchFrom;
    const next = endOfBatches(response.records, from);
    if (next === from) return false;
    this.#ahead = { from, next, response };
    this.fetchFrom = next;
    this.proceed();
    return true;
  }

  /** Fetches and delivers as far as possible after a change. */
  proceed(): void {
    if (this.hasRoom) this.#hooks.onRoom(this);
    if (this.#canDeliver() && !this.#isDelivering) this.#delivering = this.#deliverAll();
  }

  #refetchFrom(offset: number): void {
    this.seeks += 1;
    this.fetchFrom = offset;
    this.#ahead = undefined;
    this.proceed();
  }

  #canDeliver(): boolean {
    return !this.#isPaused && (this.#current ?? this.#ahead) !== undefined;
  }

  async #deliverAll(): Promise<void> {
    this.#isDelivering = true;
    while (this.#canDeliver()) {
      this.#current ??= this.#takeAhead();
      if (this.#current !== undefined) await this.#decodeOrDeliver(this.#current);
    }
    this.#isDelivering = false; // in the same turn in which nothing was left
  }

  #takeAhead(): Fetched | undefined {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    if (this.hasRoom) this.#hooks.onRoom(this);
    return ahead;
  }

  /** Decodes, or delivers what is decoded: a pause may come in between. */
  async #decodeOrDeliver(fetched: Fetched): Promise<void> {
    try {
      if (fetched.chunk === undefined) {
        const chunk = await this.#hooks.decode(fetched);
        fetched.chunk = chunk;
        if (this.#current === fetched && isLast(fetched) && chunk.next !== fetched.next) this.#refetchFrom(chunk.next);
        return;
      }
      await this.sink.deliver(fetched.chunk);
      fetched.from = fetched.chunk.next;
      fetched.chunk = undefined;
      if (isLast(fetched)) this.#current = undefined;
    } catch (error) {
      await this.#hooks.onFailure(this, error);
    }
  }
}

/** Whether nothing is left to decode after its chunk. */
function isLast({ decoder }: Fetched): boolean {
  return decoder?.isDone !== false;
}

export function keyOf({ topic, partition }: { readonly topic: string; readonly partition: number }): string {
  return `${topic}/${partition}`;
}

/**
 * The offset after the last whole batch, where the next fetch starts before this one is decoded. Decoding may correct
 * it.
 */
function endOfBatches(records: Buffer, from: number): number {
  let next = from;
  for (let at = 0, end = endOfBatch(records, at); end !== undefined; at = end, end = endOfBatch(records, at)) {
    if (end < at + AT.records) return next + 1; // damaged
    const after = readInt64(records, at + AT.baseOffset) + records.readInt32BE(at + AT.lastOffset) + 1;
    if (after > next) next = after;
    else if (Number.isNaN(after)) next += 1;
  }
  return next;
}

/**
 * The leader epoch of the last whole batch, which brokers write and which never falls in a log; undefined if there is
 * none.
 */
function lastLeaderEpoch(records: Buffer): number | undefined {
  let epoch: number | undefined;
  for (let at = 0, end = endOfBatch(records, at); end !== undefined; at = end, end = endOfBatch(records, at)) {
    if (end < at + AT.records) break; // damaged
    if (records[at + AT.magic] === RECORD_FORMAT) epoch = records.readInt32BE(at + AT.leaderEpoch);
  }
  return epoch;
}

/** For this long a log that ends below its known end is not believed: the broker may no longer be the leader. */
const SHORT_LOG_MS = 6_000;

/** For sinks: tells a log that has lost its tail from a broker that was deposed and does not know the tail yet. */
export class ShortLog {
  readonly #key: string;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  #sinceMs: number | undefined;

  constructor(key: string, runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#key = key;
    this.#runtime = runtime;
  }

  /** Whether the log is shorter than it should be, and has been so for 6 s. */
  isLasting(end: number, known: number): boolean {
    const nowMs = this.#runtime.monotonicMs();
    this.#sinceMs = end < known ? (this.#sinceMs ?? nowMs) : undefined;
    return this.#sinceMs !== undefined && nowMs - this.#sinceMs >= SHORT_LOG_MS;
  }

  /** Throws OFFSET_OUT_OF_RANGE while the log is shorter than it should be, but has been so for less than 6 s. */
  confirm(end: number, known: number): void {
    if (this.isLasting(end, known) || end >= known) return;
    const message = `${this.#key} ends at offset ${end} according to its leader, but is known up to offset ${known}`;
    throw new KafkaError('OFFSET_OUT_OF_RANGE', message);
  }
}
