import type { FetchRequest } from '../wire/record-apis.ts';
import type { FollowedPartition } from './followed-partition.ts';
import type { TailOptions } from './tail-port.ts';

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

/** A broker with the partitions that it leads, in the order of the next fetch, and the limits of that fetch. */
export class TailLeader {
  readonly node: number;
  readonly partitions = new Set<FollowedPartition>();
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

  /** The fetch request for some of its partitions. The first of them moves to the end for the next fetch. */
  request(partitions: readonly FollowedPartition[], nowMs: number): FetchRequest {
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
      isolation,
      partitions: partitions.map(({ topic, partition, fetchFrom }) => {
        return { topic, partition, offset: fetchFrom, maxBytes: Math.min(maxBytesPerPartition, this.#budgetBytes) };
      }),
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
