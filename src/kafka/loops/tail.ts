import { Mutex } from '../../async/mutex.ts';
import { BatchDecoder } from '../records/decode.ts';
import { KafkaError, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { FetchedPartition } from '../wire/record-apis.ts';
import { type Fetched, FollowedPartition, keyOf } from './followed-partition.ts';
import { boundsOf, type PartitionBounds } from './leader-calls.ts';
import { TailErrorLog } from './tail-error-log.ts';
import { TailLeader } from './tail-leader.ts';
import type { Followed, TailChunk, TailOptions, TailSink } from './tail-port.ts';

const FIND_TIMEOUT_MS = 5_000;
/** A fetch fails this long after the broker should have answered. */
const GRACE_MS = 3_000;
const REDELIVER_MS = 1_000;
/** About 1 ms of work. */
const RECORDS_PER_TURN = 2_000;
/** About 8 MB: a few KiB of a fetch can decompress to a million records. */
const MAX_CHUNK_ITEMS = 20_000;

/**
 * Follows partitions from given offsets, without a group: one lane, one isolation level, any partitions of any topics,
 * one fetch in flight per leader. FollowedPartition describes the states of a partition.
 *
 * - No error ends it, and an error of one broker does not affect partitions of others.
 * - A partition without room is left out of the fetch; the others are fetched.
 * - While records keep arriving, a fetch may wait for more of them: see `busyGapMs`.
 * - Brokers fill a fetch in the order of its partitions, so the first moves to the end for the next fetch.
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
  follow(
    at: { readonly topic: string; readonly partition: number; readonly offset: number },
    sink: TailSink,
  ): Followed {
    const before = this.#followed.get(keyOf(at));
    if (before !== undefined && before.state !== 'stopped') throw new RangeError(`${before.key} is already followed`);
    const followed = new FollowedPartition(at, sink, {
      onRoom: ({ leader }) => this.#wake(leader),
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

  async #find(followed: FollowedPartition): Promise<void> {
    followed.state = 'finding';
    try {
      const node = await this.#options.cluster.leader(followed.topic, followed.partition, FIND_TIMEOUT_MS);
      if (followed.state !== 'finding') return;
      this.#leader(followed.leader)?.partitions.delete(followed);
      followed.leader = node;
      const leader = this.#leaders.get(node) ?? new TailLeader(node, this.#options);
      this.#leaders.set(node, leader);
      leader.join(followed);
      followed.state = 'ready';
      followed.proceed();
    } catch (error) {
      this.#failed(followed, error);
    }
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
    const { cluster, lane, runtime } = this.#options;
    const places = leader.withRoom();
    if (leader.isFetching || places.length === 0) return;
    leader.isFetching = true;
    const request = leader.request(places, runtime.monotonicMs());
    for (const followed of places) {
      followed.state = 'fetching';
      followed.seeksAtFetch = followed.seeks;
    }
    try {
      const deadlineMs = request.maxWaitMs + GRACE_MS;
      const { partitions } = await cluster.call(leader.node, lane, deadlineMs, (link) => link.call('fetch', request));
      leader.responded(partitions.every(({ records }) => records.length === 0));
      this.#take(leader, places, partitions);
      const restMs = leader.restMs(runtime.monotonicMs());
      if (restMs > 0) await runtime.sleep(restMs, this.#closed.signal);
    } catch (error) {
      if (kafkaErrorCode(error) === 'NO_RESPONSE') leader.silent();
      for (const followed of places) this.#failed(followed, error);
    }
    leader.isFetching = false;
    void this.#fetch(leader);
  }

  #take(leader: TailLeader, places: readonly FollowedPartition[], partitions: readonly FetchedPartition[]): void {
    const responses = new Map(partitions.map((response) => [keyOf(response), response]));
    for (const [i, followed] of places.entries()) {
      if (followed.state !== 'fetching') continue;
      followed.state = 'ready';
      if (followed.seeksAtFetch !== followed.seeks) continue;
      const response = responses.get(followed.key);
      const errorCode = response === undefined ? 'MALFORMED_RESPONSE' : response.errorCode;
      if (errorCode === 'OFFSET_OUT_OF_RANGE') void this.#locate(followed);
      else if (errorCode !== undefined)
        this.#failed(followed, new KafkaError(errorCode, `${followed.key}: ${errorCode}`));
      else if (response !== undefined) this.#keep(leader, followed, response, i === 0);
    }
  }

  #keep(leader: TailLeader, followed: FollowedPartition, response: FetchedPartition, wasFirst: boolean): void {
    const from = followed.fetchFrom;
    if (followed.isOfNewLeader(response)) {
      followed.sink.interrupted?.();
      followed.proceed(); // fetches again, from where the sink compares
      return;
    }
    followed.sink.fetched?.(response.highWatermark);
    const isStuck = !followed.keep(response) && wasFirst && response.records.length > 0;
    if (isStuck) {
      // The first partition gets a whole batch, however large. Fetching again immediately would loop for ever.
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
    const { isolation, runtime, skipsDense, maxChunkItems = MAX_CHUNK_ITEMS } = this.#options;
    const { response } = fetched;
    const nextTurn = () => runtime.nextTurn();
    const decoding = { fetched: response, from, isolation, nextTurn, skipsDense };
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
