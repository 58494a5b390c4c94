import { Mutex } from '../../async/mutex.ts';
import type { Runtime } from '../../async/runtime.ts';
import { BatchDecoder } from '../records/decode.ts';
import type { WireLog } from '../wire/broker.ts';
import { KafkaError, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { FetchedPartition } from '../wire/record-apis.ts';
import { type FetchLimits, FetchSession } from './fetch-session.ts';
import { type Fetched, FollowedPartition, keyOf } from './followed-partition.ts';
import { boundsOf, type PartitionBounds } from './leader-calls.ts';
import { nearestReplica } from './replica-choice.ts';
import type { Followed, FollowFrom, TailChunk, TailOptions, TailSink } from './tail-port.ts';

/**
 * What a fetch can't tell.
 *
 * A worker reads its ledger, its requests and its replies from offsets that it chooses itself, in no consumer group. It
 * must get each record once, in order, for months. Kafka offers one call for that: the records from an offset on. The
 * question is what a reader may conclude from the response, and the trap is to conclude too much.
 *
 * A fetch that returns nothing does not say that there is nothing. The broker may have lost the partition to another
 * one and not know it yet. A fetch that fails says even less: during the pause the log may have lost its tail and grown
 * again, so that the next fetch from the same offset succeeds, with other records below it than those that were read.
 * Nothing in that response shows it. And an offset outside of the log may mean that retention has deleted records, that
 * the log was lost, or only that this broker is behind.
 *
 * So a tail delivers, and leaves conclusions to its sink. It tells the sink when it was interrupted: the fetch failed,
 * or the records come from a later leader than all before. A sink that depends on what it has read then compares the
 * log with that, before it takes more. When the position is outside of the log, the sink gets the bounds and chooses
 * where to continue. The tail itself promises only this: what it delivers is contiguous, each chunk comes after the
 * sink is done with the one before, and no error ends the reading.
 *
 * The rest is about not waiting. All partitions of a leader share a fetch, for each call costs the broker and us more
 * than the records in it, and a fetch session saves naming them all each time. A partition whose sink is slow is left
 * out of the fetch rather than awaited. A broker fills a response in the order of the partitions, so the first one
 * moves to the end for the next fetch, and no partition starves behind a busy one; in a session the broker does that.
 * Two responses of a partition are held at most, one in delivery and one ahead. Decoding is work for the event loop,
 * so one chunk is decoded at a time, and a response that decompresses to a million records is delivered in pieces.
 * While records arrive one by one, a fetch is sent at once; while they stream, it rests for a moment, so that fewer
 * calls return more.
 */

const FIND_TIMEOUT_MS = 5_000;
/** A fetch fails this long after the broker should have answered. */
const GRACE_MS = 3_000;
const REDELIVER_MS = 1_000;
/** About 1 ms of work. */
const RECORDS_PER_TURN = 2_000;
/** About 8 MB: a few KiB of a fetch can decompress to a million records. */
const MAX_CHUNK_ITEMS = 20_000;

/**
 * Follows partitions from given offsets, without a group: one connection to each leader, or to the replica that is read
 * instead (`replica-choice`), one isolation level, any partitions of any topics, one fetch in flight per broker.
 * FollowedPartition describes the states of a partition.
 *
 * - No error ends it, and an error of one broker does not affect partitions of others.
 * - A partition without room is left out of the fetch; the others are fetched.
 * - Brokers fill a fetch in the order of its partitions, so the first moves to the end for the next fetch.
 * - Only what changed is sent, either way: see `FetchSession`.
 * - One chunk is decoded at a time, so that all partitions together block the event loop no longer than one.
 */
export class Tail {
  readonly #options: TailOptions;
  readonly #errorLog: TailErrorLog;
  readonly #followed = new Map<string, FollowedPartition>();
  readonly #leaders = new Map<number, TailLeader>();
  readonly #closed = new AbortController();
  readonly #decoding = new Mutex();
  /** Records decoded since the last yield to the event loop. */
  #decoded = 0;

  constructor(options: TailOptions) {
    this.#options = options;
    this.#errorLog = new TailErrorLog(options.runtime, options.log);
  }

  /** Throws RangeError if the partition is followed already: stop that first. */
  follow(at: FollowFrom, sink: TailSink): Followed {
    const before = this.#followed.get(keyOf(at));
    if (before !== undefined && before.state !== 'stopped') throw new RangeError(`${before.key} is already followed`);
    const followed = new FollowedPartition(at, sink, {
      onRoom: ({ node }) => this.#wake(node),
      decode: (fetched) => this.#decode(fetched, sink),
      onFailure: (failed, error) => this.#sinkFailed(failed, error),
    });
    this.#followed.set(followed.key, followed);
    if (this.#closed.signal.aborted) followed.stop();
    else void this.#find(followed);
    return followed;
  }

  /**
   * Nothing is delivered after the call. Resolves when the deliveries in progress have ended: don't await it in one.
   */
  async close(): Promise<void> {
    this.#closed.abort();
    const places = [...this.#followed.values()];
    for (const followed of places) followed.stop();
    await Promise.all(places.map(({ delivering }) => delivering));
  }

  async #find(followed: FollowedPartition, wasRead = false): Promise<void> {
    followed.state = 'finding';
    try {
      const node = await this.#nodeFor(followed);
      if (followed.state !== 'finding') return;
      const isMoved = node !== followed.node;
      this.#leader(followed.node)?.partitions.delete(followed);
      followed.node = node;
      const leader = this.#leaders.get(node) ?? new TailLeader(node, this.#options);
      this.#leaders.set(node, leader);
      leader.join(followed);
      followed.state = 'ready';
      if (wasRead && isMoved) followed.sink.interrupted?.();
      followed.proceed();
    } catch (error) {
      this.#failed(followed, error);
    }
  }

  /** The broker to read from: the leader, or a replica that is near. */
  #nodeFor(followed: FollowedPartition): Promise<number> {
    const { cluster, runtime, rack } = this.#options;
    const isAsking = rack !== undefined && followed.replica.ask(runtime.monotonicMs());
    return isAsking
      ? this.#nearest(followed, rack)
      : cluster.leader(followed.topic, followed.partition, FIND_TIMEOUT_MS);
  }

  async #nearest(followed: FollowedPartition, rack: string): Promise<number> {
    const { cluster, runtime, isolation, log } = this.#options;
    const { topic, partition, fetchFrom: offset, replica } = followed;
    const query = { topic, partition, offset, rack, isolation, timeoutMs: FIND_TIMEOUT_MS };
    const nearest = await nearestReplica(cluster, runtime, query);
    replica.chosen(nearest, runtime.monotonicMs());
    const { node: broker } = nearest;
    if (broker === undefined) return await cluster.leader(topic, partition, FIND_TIMEOUT_MS);
    if (broker !== followed.node)
      log?.('info', { topic, partition, broker, rack }, 'reading from a replica that is near', { about: topic });
    return broker;
  }

  /** Looks for another replica of those partitions for which that is due. */
  #chooseAgain(leader: TailLeader): void {
    const { rack, runtime } = this.#options;
    if (rack === undefined) return;
    const nowMs = runtime.monotonicMs();
    for (const followed of leader.partitions)
      if (followed.state === 'ready' && followed.replica.isDue(nowMs)) void this.#find(followed, true);
  }

  #leader(node: number | undefined): TailLeader | undefined {
    return node === undefined ? undefined : this.#leaders.get(node);
  }

  /** Fetches in the next turn, so that partitions that have room at the same time share a fetch. */
  #wake(node: number | undefined): void {
    const leader = this.#leader(node);
    if (leader === undefined || leader.isWoken || leader.isFetching) return;
    leader.isWoken = true;
    void this.#options.runtime.nextTurn().then(() => {
      leader.isWoken = false;
      void this.#fetch(leader);
    });
  }

  async #fetch(leader: TailLeader): Promise<void> {
    const { cluster, purpose, runtime } = this.#options;
    if (leader.isFetching) return;
    this.#chooseAgain(leader);
    const places = leader.withRoom();
    if (places.length === 0) return;
    leader.isFetching = true;
    const limits = leader.limits(places, runtime.monotonicMs());
    for (const followed of places) {
      followed.state = 'fetching';
      followed.seeksAtFetch = followed.seeks;
    }
    try {
      const deadlineMs = limits.maxWaitMs + GRACE_MS;
      const { partitions, first } = await leader.session.fetch(places, limits, (request) =>
        cluster.call(leader.node, purpose, deadlineMs, (link) => link.call('fetch', request)),
      );
      leader.responded(first === undefined);
      this.#take(leader, places, partitions, first);
      const restMs = leader.restMs(runtime.monotonicMs());
      if (restMs > 0) await runtime.sleep(restMs, this.#closed.signal);
    } catch (error) {
      if (kafkaErrorCode(error) === 'NO_RESPONSE') leader.silent();
      for (const followed of places) this.#failed(followed, error);
    }
    leader.isFetching = false;
    void this.#fetch(leader);
  }

  #take(
    leader: TailLeader,
    places: readonly FollowedPartition[],
    responses: readonly (FetchedPartition | undefined)[],
    first: FetchedPartition | undefined,
  ): void {
    for (const [i, followed] of places.entries()) {
      if (followed.state !== 'fetching') continue;
      followed.state = 'ready';
      const response = responses[i];
      if (response === undefined || followed.seeksAtFetch !== followed.seeks) continue;
      const { errorCode } = response;
      // For a replica the offset may be out of range because it is behind, so the leader is asked.
      if (errorCode === 'OFFSET_OUT_OF_RANGE' && !followed.replica.isNear) void this.#locate(followed);
      else if (errorCode === undefined) this.#keep(leader, followed, response, response === first);
      else this.#failed(followed, new KafkaError(errorCode, `${followed.key}: ${errorCode}`));
    }
  }

  #keep(leader: TailLeader, followed: FollowedPartition, response: FetchedPartition, isFirst: boolean): void {
    const from = followed.fetchFrom;
    if (followed.replica.isNear && followed.isOfEarlierLeader(response)) {
      const message = `${followed.key}: the replica has records of an earlier leader than those before`;
      this.#failed(followed, new KafkaError('FENCED_LEADER_EPOCH', message));
      return;
    }
    if (followed.isOfNewLeader(response)) {
      followed.sink.interrupted?.();
      followed.proceed(); // fetches again, from where the sink compares
      return;
    }
    followed.replica.answered(response.highWatermark);
    followed.sink.fetched?.(response.highWatermark);
    const isStuck = !followed.keep(response) && isFirst;
    if (isStuck) {
      // The first with records gets a whole batch, however large. Fetching again immediately would loop for ever.
      this.#failed(
        followed,
        new KafkaError('MALFORMED_RESPONSE', `${followed.key}: the response has no complete record batch`),
      );
    } else {
      followed.backoff.reset();
      this.#errorLog.readable(followed);
    }
    const isBehind = response.highWatermark > followed.fetchFrom;
    leader.received(followed.fetchFrom - from, isBehind);
  }

  /** The broker reports that the position is outside the log. */
  async #locate(followed: FollowedPartition): Promise<void> {
    const { cluster, runtime, isolation } = this.#options;
    const { topic, partition, seeks, fetchFrom } = followed;
    followed.state = 'locating';
    try {
      const query = { topic, partition, isolation, timeoutMs: FIND_TIMEOUT_MS };
      const bounds = await boundsOf(cluster, runtime, query);
      if (fetchFrom >= bounds.logStart && fetchFrom <= bounds.end) {
        throw new KafkaError(
          'OFFSET_OUT_OF_RANGE',
          `${followed.key}: offset ${fetchFrom} is out of range, yet within the bounds of the log`,
        );
      }
      const to = await this.#nextPosition(followed, bounds, fetchFrom);
      if (followed.state !== 'locating') return;
      if (followed.seeks === seeks) followed.fetchFrom = to;
      this.#backOff(followed);
    } catch (error) {
      this.#failed(followed, error);
    }
  }

  #nextPosition({ sink, topic, partition }: FollowedPartition, bounds: PartitionBounds, offset: number) {
    if (sink.outOfRange !== undefined) return sink.outOfRange(bounds, offset);
    const fields = { topic, partition, offset, ...bounds };
    const about = `${topic}/${partition}`;
    this.#options.log?.('warn', fields, 'the offset is outside the log; continuing from its start', { about });
    return bounds.logStart;
  }

  #failed(followed: FollowedPartition, error: unknown): void {
    if (followed.state === 'stopped') return;
    followed.replica.failed(this.#options.runtime.monotonicMs());
    const failure =
      error instanceof KafkaError
        ? error
        : new KafkaError(kafkaErrorCode(error) ?? 'UNEXPECTED', String(error), { cause: error });
    this.#options.cluster.markStale(followed.topic);
    this.#backOff(followed);
    this.#reportError(followed, failure);
    followed.sink.interrupted?.();
  }

  #backOff(followed: FollowedPartition): void {
    followed.state = 'backing off';
    const waitMs = followed.backoff.nextMs();
    followed.backoffTimer = this.#options.runtime.schedule(waitMs, () => void this.#find(followed));
  }

  async #sinkFailed(followed: FollowedPartition, error: unknown): Promise<void> {
    this.#reportError(followed, new KafkaError('SINK_FAILED', `${followed.key}: ${error}`, { cause: error }));
    await this.#options.runtime.sleep(REDELIVER_MS, this.#closed.signal);
  }

  #reportError(followed: FollowedPartition, error: KafkaError): void {
    this.#errorLog.failed(followed, error);
    this.#options.onError?.(followed.topic, followed.partition, error);
  }

  async #decode(fetched: Fetched, sink: TailSink): Promise<TailChunk> {
    const { from, next } = fetched;
    const neededFrom = sink.neededFrom === undefined ? from : await sink.neededFrom();
    const begin = Math.max(from, Math.min(neededFrom, next));
    return await this.#decoding.run(() => this.#decodeNext(fetched, begin));
  }

  async #decodeNext(fetched: Fetched, from: number): Promise<TailChunk> {
    const { isolation, runtime, skipsDense, longestRecord, maxChunkItems = MAX_CHUNK_ITEMS } = this.#options;
    const { response } = fetched;
    const nextTurn = () => runtime.nextTurn();
    const decoding = { fetched: response, from, isolation, nextTurn, skipsDense, longestRecord };
    const decoder = fetched.decoder ?? new BatchDecoder(decoding);
    fetched.decoder = undefined; // if it fails, the next attempt starts again
    decoder.skipTo(from);
    const { records, next } = await decoder.read(maxChunkItems);
    fetched.decoder = decoder;
    this.#decoded += records.length;
    if (this.#decoded >= RECORDS_PER_TURN) {
      this.#decoded = 0;
      await runtime.nextTurn();
    }
    return { records, from, next, highWatermark: response.highWatermark, logStartOffset: response.logStartOffset };
  }
}

/**
 * While another partition may need a fetch at any moment, the first fetch waits this long, and each next one twice as
 * long.
 */
const SHORT_WAIT_MS = 5;
const MIN_BUDGET_BYTES = 64 * 1024;
/** A fetch is worth a rest before it if so many records are expected to arrive in that time. */
const WORTH_A_REST = 3;
/** The rate of records is that of about the last so many milliseconds. */
const RATE_SPAN_MS = 50;

type Limits = Pick<TailOptions, 'isolation' | 'maxWaitMs' | 'maxBytes' | 'maxBytesPerPartition' | 'busyGapMs'>;

/** A broker with the partitions that are read from it, in the order of the next fetch, and the limits of that fetch. */
export class TailLeader {
  readonly node: number;
  readonly partitions = new Set<FollowedPartition>();
  readonly session = new FetchSession();
  isFetching = false;
  isWoken = false;
  readonly #limits: Limits;
  /** The size limit of one fetch; reduced after a late response, as on a slow network. */
  #budgetBytes: number;
  /** Empty fetches in a row. */
  #empty = 0;
  /** Partitions joined recently, and more may follow. */
  #isFilling = false;
  /** Recent records. They lose weight with each request: after RATE_SPAN_MS, a record counts for a third. */
  #recentRecords = 0;
  #requestedAtMs = Number.NEGATIVE_INFINITY;
  /** The last fetch did not reach the end of a partition. */
  #isBehind = false;

  constructor(node: number, limits: Limits) {
    this.node = node;
    this.#limits = limits;
    this.#budgetBytes = limits.maxBytes;
  }

  join(followed: FollowedPartition): void {
    this.partitions.add(followed);
    this.#empty = 0;
    this.#isFilling = true;
  }

  /** Partitions that can be part of a fetch. */
  withRoom(): FollowedPartition[] {
    for (const followed of this.partitions) if (followed.state === 'stopped') this.partitions.delete(followed);
    return [...this.partitions].filter(({ hasRoom }) => hasRoom);
  }

  /** The limits of a fetch of some of its partitions. The first of them moves to the end for the next fetch. */
  limits(partitions: readonly FollowedPartition[], nowMs: number): FetchLimits {
    const { isolation, maxWaitMs, maxBytesPerPartition } = this.#limits;
    this.#recentRecords *= Math.exp((this.#requestedAtMs - nowMs) / RATE_SPAN_MS);
    this.#requestedAtMs = nowMs;
    this.#isBehind = false;
    const [first] = partitions;
    if (first !== undefined && this.partitions.delete(first)) this.partitions.add(first);
    const shortMs = SHORT_WAIT_MS * 2 ** this.#empty;
    if (shortMs >= maxWaitMs) this.#isFilling = false;
    const isShort = this.#isFilling || [...this.partitions].some(({ isFull }) => isFull);
    return {
      maxWaitMs: isShort ? Math.min(maxWaitMs, shortMs) : maxWaitMs,
      maxBytes: this.#budgetBytes,
      maxBytesPerPartition: Math.min(maxBytesPerPartition, this.#budgetBytes),
      isolation,
    };
  }

  responded(isEmpty: boolean): void {
    this.#empty = isEmpty ? this.#empty + 1 : 0;
    this.#budgetBytes = Math.min(this.#limits.maxBytes, this.#budgetBytes * 2);
  }

  silent(): void {
    const less = Math.max(MIN_BUDGET_BYTES, Math.floor(this.#budgetBytes / 4));
    this.#budgetBytes = Math.min(this.#budgetBytes, less);
  }

  /** So many records of a partition have arrived with a fetch; `isBehind` if more of them wait. */
  received(records: number, isBehind: boolean): void {
    this.#recentRecords += records;
    this.#isBehind ||= isBehind;
  }

  /** How long to rest before the next fetch: not at all while records wait already, or arrive one by one. */
  restMs(nowMs: number): number {
    const { busyGapMs = 0 } = this.#limits;
    const expected = (this.#recentRecords / RATE_SPAN_MS) * busyGapMs;
    if (this.#isBehind || expected < WORTH_A_REST) return 0;
    return Math.max(0, Math.ceil(busyGapMs - (nowMs - this.#requestedAtMs)));
  }
}

interface FailingPartition {
  readonly topic: string;
  readonly partition: number;
  readonly state: string;
}

/** Shorter failures, such as a leader election, are not worth a warning. */
const WARN_AFTER_MS = 1_000;

/** Logs partitions that could not be read for a second, with one line for all of a topic that fail alike. */
export class TailErrorLog {
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #log: WireLog | undefined;
  readonly #failingSinceMs = new Map<FailingPartition, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, log: WireLog | undefined) {
    this.#runtime = runtime;
    this.#log = log;
  }

  /** The partition was read. */
  readable(followed: FailingPartition): void {
    this.#failingSinceMs.delete(followed);
  }

  failed(followed: FailingPartition, { errorCode, message: error }: KafkaError): void {
    const nowMs = this.#runtime.monotonicMs();
    const sinceMs = this.#failingSinceMs.get(followed) ?? nowMs;
    this.#failingSinceMs.set(followed, sinceMs);
    const { topic } = followed;
    if (nowMs - sinceMs < WARN_AFTER_MS) return;
    for (const other of this.#failingSinceMs.keys()) if (other.state === 'stopped') this.#failingSinceMs.delete(other);
    const failing = [...this.#failingSinceMs.keys()].filter((other) => other.topic === topic);
    const partitions = failing.map(({ partition }) => partition).sort((a, b) => a - b);
    const fields = { topic, partitions, errorCode, error };
    this.#log?.('warn', fields, "partitions can't be read, retrying", { about: `${topic} ${errorCode}` });
  }
}
