import { decodeBatches } from '../records/decode.ts';
import { faultOf, KafkaFault } from '../wire/fault.ts';
import type { FetchedPartition } from '../wire/port.ts';
import { TailComplaints } from './complaints.ts';
import { type Fetched, FollowedPartition, keyOf } from './followed-partition.ts';
import { boundsOf, type PartitionBounds } from './offsets.ts';
import { TailLeader } from './tail-leader.ts';
import type { Followed, TailChunk, TailOptions, TailSink } from './tail-port.ts';

const FIND_TIMEOUT_MS = 5_000;
const MIN_REST_MS = 50;
const MAX_REST_MS = 1_000;
/** A fetch is given up so long after the broker should have answered. */
const GRACE_MS = 3_000;
const REDELIVER_MS = 1_000;
/** About 2 ms of work. */
const RECORDS_PER_TURN = 4_000;

/**
 * Follows partitions from offsets, without a group: one lane, one isolation level, any number of partitions of any topics,
 * one fetch in flight for each leader. The states of a partition are written above FollowedPartition.
 *
 * - No fault ends it. Partitions of other brokers go on undisturbed.
 * - A partition that has no room is left out of the fetch, and the others are fetched.
 * - Brokers fill a fetch in the order in which it names the partitions, so the first goes to the end for the next one.
 * - One chunk is decoded at a time, so that all partitions together hold the event loop no longer than one.
 */
export class Tail {
  readonly #options: TailOptions;
  readonly #complaints: TailComplaints;
  readonly #places = new Map<string, FollowedPartition>();
  readonly #leaders = new Map<number, TailLeader>();
  readonly #closed = new AbortController();
  #decoding: Promise<unknown> = Promise.resolve();
  /** Records decoded since others had their turn. */
  #decoded = 0;

  constructor(options: TailOptions) {
    this.#options = options;
    this.#complaints = new TailComplaints(options.runtime, options.log);
  }

  /** A partition is followed once at a time: stop the one before first. */
  follow(
    at: { readonly topic: string; readonly partition: number; readonly offset: number },
    sink: TailSink,
  ): Followed {
    const before = this.#places.get(keyOf(at));
    if (before !== undefined && before.state !== 'stopped') throw new RangeError(`${before.key} is followed already`);
    const place = new FollowedPartition(at, sink, {
      onRoom: ({ leader }) => this.#wake(leader),
      decode: (fetched) => this.#decode(fetched, sink),
      onFailure: (failed, error) => this.#sinkFailed(failed, error),
    });
    this.#places.set(place.key, place);
    if (this.#closed.signal.aborted) place.stop();
    else void this.#find(place);
    return place;
  }

  /** Nothing is delivered after the call. Resolves when the deliveries under way have ended: don't wait for it in one. */
  async close(): Promise<void> {
    this.#closed.abort();
    const places = [...this.#places.values()];
    for (const place of places) place.stop();
    await Promise.all(places.map(({ handingOn }) => handingOn));
  }

  async #find(place: FollowedPartition): Promise<void> {
    place.state = 'finding';
    try {
      const node = await this.#options.cluster.leader(place.topic, place.partition, FIND_TIMEOUT_MS);
      if (place.state !== 'finding') return;
      this.#leader(place.leader)?.places.delete(place);
      place.leader = node;
      const leader = this.#leaders.get(node) ?? new TailLeader(node, this.#options);
      this.#leaders.set(node, leader);
      leader.join(place);
      place.state = 'ready';
      place.goOn();
    } catch (error) {
      this.#failed(place, error);
    }
  }

  #leader(node: number | undefined): TailLeader | undefined {
    return node === undefined ? undefined : this.#leaders.get(node);
  }

  /** Fetches a turn later, so that partitions that have room at the same time share a fetch. */
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
    const { cluster, lane } = this.#options;
    const places = leader.withRoom();
    if (leader.isFetching || places.length === 0) return;
    leader.isFetching = true;
    const request = leader.request(places);
    for (const place of places) {
      place.state = 'fetching';
      place.askedIn = place.epoch;
    }
    try {
      const deadlineMs = request.maxWaitMs + GRACE_MS;
      const { partitions } = await cluster.call(leader.node, lane, deadlineMs, (link) => link.fetch(request));
      leader.answered(partitions.every(({ records }) => records.length === 0));
      this.#take(places, partitions);
    } catch (error) {
      if (faultOf(error) === 'NO_ANSWER') leader.silent();
      for (const place of places) this.#failed(place, error);
    }
    leader.isFetching = false;
    void this.#fetch(leader);
  }

  #take(places: readonly FollowedPartition[], partitions: readonly FetchedPartition[]): void {
    const answers = new Map(partitions.map((answer) => [keyOf(answer), answer]));
    for (const [i, place] of places.entries()) {
      if (place.state !== 'fetching') continue;
      place.state = 'ready';
      if (place.askedIn !== place.epoch) continue;
      const answer = answers.get(place.key);
      const fault = answer === undefined ? 'MALFORMED_ANSWER' : answer.fault;
      if (fault === 'OFFSET_OUT_OF_RANGE') void this.#locate(place);
      else if (fault !== undefined) this.#failed(place, new KafkaFault(fault, `${place.key}: ${fault}`));
      else if (answer !== undefined) this.#keep(place, answer, i === 0);
    }
  }

  #keep(place: FollowedPartition, answer: FetchedPartition, wasFirst: boolean): void {
    place.sink.looked?.(answer.highWatermark);
    const isStuck = !place.keep(answer) && wasFirst && answer.records.length > 0;
    if (isStuck) {
      // The first one gets a whole batch, however large: fetching again at once would never end.
      this.#failed(place, new KafkaFault('MALFORMED_ANSWER', `${place.key} has no whole record batch`));
    } else {
      place.faults = 0;
      this.#complaints.well(place);
    }
  }

  /** The broker says that the position lies outside of the log. */
  async #locate(place: FollowedPartition): Promise<void> {
    const { cluster, runtime, isolation } = this.#options;
    const { topic, partition, epoch, fetchFrom } = place;
    place.state = 'lost';
    try {
      const query = { topic, partition, isolation, timeoutMs: FIND_TIMEOUT_MS };
      const bounds = await boundsOf(cluster, runtime, query);
      if (fetchFrom >= bounds.logStart && fetchFrom <= bounds.end) {
        throw new KafkaFault('OFFSET_OUT_OF_RANGE', `${place.key} lacks offset ${fetchFrom}, but not by its bounds`);
      }
      const to = await this.#whereTo(place, bounds, fetchFrom);
      if (place.state !== 'lost') return;
      if (place.epoch === epoch) place.fetchFrom = to;
      this.#rest(place);
    } catch (error) {
      this.#failed(place, error);
    }
  }

  #whereTo({ sink, topic, partition }: FollowedPartition, bounds: PartitionBounds, offset: number) {
    if (sink.outOfRange !== undefined) return sink.outOfRange(bounds, offset);
    const fields = { topic, partition, offset, ...bounds };
    this.#options.log?.('warn', fields, 'the offset is outside of the log, reading on from its start');
    return bounds.logStart;
  }

  #failed(place: FollowedPartition, error: unknown): void {
    if (place.state === 'stopped') return;
    const fault =
      error instanceof KafkaFault
        ? error
        : new KafkaFault(faultOf(error) ?? 'UNEXPECTED', String(error), { cause: error });
    this.#options.cluster.doubt(place.topic);
    this.#rest(place);
    this.#complain(place, fault);
  }

  #rest(place: FollowedPartition): void {
    place.state = 'resting';
    const restMs = Math.min(MAX_REST_MS, MIN_REST_MS * 2 ** place.faults);
    place.faults += 1;
    place.restTimer = this.#options.runtime.schedule(restMs, () => void this.#find(place));
  }

  async #sinkFailed(place: FollowedPartition, error: unknown): Promise<void> {
    this.#complain(place, new KafkaFault('SINK_FAILED', `${place.key}: ${error}`, { cause: error }));
    await this.#options.runtime.sleep(REDELIVER_MS, this.#closed.signal);
  }

  #complain(place: FollowedPartition, fault: KafkaFault): void {
    this.#complaints.ill(place, fault);
    this.#options.onFault?.(place.topic, place.partition, fault);
  }

  async #decode({ from, next, answer }: Fetched, sink: TailSink): Promise<TailChunk> {
    const neededFrom = sink.neededFrom === undefined ? from : await sink.neededFrom();
    const begin = Math.max(from, Math.min(neededFrom, next));
    const decoding = this.#decoding.then(() => this.#decodeNext(answer, begin));
    this.#decoding = decoding.catch(() => undefined);
    return await decoding;
  }

  async #decodeNext(answer: FetchedPartition, from: number): Promise<TailChunk> {
    const { isolation, runtime } = this.#options;
    const { records, next } = await decodeBatches(answer, from, isolation, () => runtime.nextTurn());
    this.#decoded += records.length;
    if (this.#decoded >= RECORDS_PER_TURN) {
      this.#decoded = 0;
      await runtime.nextTurn();
    }
    return { records, from, next, highWatermark: answer.highWatermark, logStartOffset: answer.logStartOffset };
  }
}
