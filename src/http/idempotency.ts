import { Problem } from './problem.ts';

export interface IdempotencyOptions<T> {
  readonly monotonicMs: () => number;
  /** The extra weight of a value, in units of one small object. */
  readonly weigh: (value: T) => number;
  readonly maxWeight?: number;
}

export const KEEP_MS = 600_000;
/** About 90 MB: 100,000 keys of single IDs. */
const MAX_WEIGHT = 200_000;
/** The weight of the key, the promise and the entry. */
const OWN_WEIGHT = 1;

interface Entry<T> {
  readonly request: string;
  readonly value: Promise<T>;
  readonly untilMs: number;
  weight: number;
}

/**
 * Responses by idempotency key, kept in this process for 10 minutes; when full, the oldest are evicted. Failures are not
 * kept, so that they can be retried.
 */
export class IdempotencyCache<T> {
  readonly #options: IdempotencyOptions<T>;
  readonly #maxWeight: number;
  /** Oldest first, which is also the order of expiry. */
  readonly #entries = new Map<string, Entry<T>>();
  #weight = 0;

  constructor(options: IdempotencyOptions<T>) {
    this.#options = options;
    this.#maxWeight = options.maxWeight ?? MAX_WEIGHT;
  }

  /**
   * The response for `key`: a known one, one in progress for an earlier request, or a new one from `make`. `request`
   * describes the request; throws 422 CONFLICT when the key was used for another one.
   */
  once(
    key: string,
    request: string,
    make: () => Promise<T>,
  ): { readonly value: Promise<T>; readonly replayed: boolean } {
    this.#forget();
    const known = this.#entries.get(key);
    if (known === undefined) return { value: this.#make(key, request, make), replayed: false };
    if (known.request === request) return { value: known.value, replayed: true };
    const detail = `this Idempotency-Key was used for '${known.request}', not '${request}': use a new one`;
    throw new Problem(422, detail, { code: 'CONFLICT' });
  }

  #make(key: string, request: string, make: () => Promise<T>): Promise<T> {
    const untilMs = this.#options.monotonicMs() + KEEP_MS;
    const entry: Entry<T> = { request, value: make(), untilMs, weight: OWN_WEIGHT };
    this.#entries.set(key, entry);
    this.#weight += entry.weight;
    entry.value.then(
      (value) => this.#reweigh(key, entry, OWN_WEIGHT + this.#options.weigh(value)),
      () => this.#remove(key, entry),
    );
    return entry.value;
  }

  #reweigh(key: string, entry: Entry<T>, weight: number): void {
    if (this.#entries.get(key) !== entry) return;
    this.#weight += weight - entry.weight;
    entry.weight = weight;
    this.#forget();
  }

  /** Removes expired entries, and the oldest ones while the cache is too large. */
  #forget(): void {
    const nowMs = this.#options.monotonicMs();
    for (const [key, entry] of this.#entries) {
      if (entry.untilMs > nowMs && this.#weight <= this.#maxWeight) return;
      this.#remove(key, entry);
    }
  }

  #remove(key: string, entry: Entry<T>): void {
    if (this.#entries.get(key) !== entry) return;
    this.#entries.delete(key);
    this.#weight -= entry.weight;
  }
}
