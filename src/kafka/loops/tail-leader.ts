import type { FetchRequest } from '../wire/port.ts';
import type { FollowedPartition } from './followed-partition.ts';
import type { TailOptions } from './tail-port.ts';

/** While another partition may want to be fetched any moment, the first fetches wait so long, and each twice as long. */
const SHORT_WAIT_MS = 5;
const MIN_BUDGET_BYTES = 64 * 1024;

type Limits = Pick<TailOptions, 'isolation' | 'maxWaitMs' | 'maxBytes' | 'maxBytesPerPartition'>;

/** A broker, with the partitions that it leads in the order of their next fetch, and what the next fetch is like. */
export class TailLeader {
  readonly node: number;
  readonly places = new Set<FollowedPartition>();
  isFetching = false;
  isWoken = false;
  readonly #limits: Limits;
  /** What one fetch may bring: less after one whose answer did not get here in time, as by a slow line. */
  #budgetBytes: number;
  /** Fetches in a row that brought nothing. */
  #empty = 0;
  /** Partitions that have joined lately: more may follow. */
  #isFilling = false;

  constructor(node: number, limits: Limits) {
    this.node = node;
    this.#limits = limits;
    this.#budgetBytes = limits.maxBytes;
  }

  join(place: FollowedPartition): void {
    this.places.add(place);
    this.#empty = 0;
    this.#isFilling = true;
  }

  /** Those that may be part of a fetch. */
  withRoom(): FollowedPartition[] {
    for (const place of this.places) if (place.state === 'stopped') this.places.delete(place);
    return [...this.places].filter(({ hasRoom }) => hasRoom);
  }

  /** The fetch of these, which are some of its own. The first goes to the end for the next time. */
  request(places: readonly FollowedPartition[]): FetchRequest {
    const { isolation, maxWaitMs, maxBytesPerPartition } = this.#limits;
    const [first] = places;
    if (first !== undefined && this.places.delete(first)) this.places.add(first);
    const shortMs = SHORT_WAIT_MS * 2 ** this.#empty;
    if (shortMs >= maxWaitMs) this.#isFilling = false;
    const isShort = this.#isFilling || [...this.places].some(({ isFull }) => isFull);
    return {
      maxWaitMs: isShort ? Math.min(maxWaitMs, shortMs) : maxWaitMs,
      maxBytes: this.#budgetBytes,
      isolation,
      partitions: places.map(({ topic, partition, fetchFrom }) => {
        return { topic, partition, offset: fetchFrom, maxBytes: Math.min(maxBytesPerPartition, this.#budgetBytes) };
      }),
    };
  }

  answered(isEmpty: boolean): void {
    this.#empty = isEmpty ? this.#empty + 1 : 0;
    this.#budgetBytes = Math.min(this.#limits.maxBytes, this.#budgetBytes * 2);
  }

  silent(): void {
    const less = Math.max(MIN_BUDGET_BYTES, Math.floor(this.#budgetBytes / 4));
    this.#budgetBytes = Math.min(this.#budgetBytes, less);
  }
}
