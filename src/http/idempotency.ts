import { Problem } from './problem.ts';

export interface IdempotencyOptions<T> {
  readonly monotonicMs: () => number;
  /** The extra weight of a value, in units of one small object. */
  readonly weigh: (value: T) => number;
  readonly maxWeight?: number;
  /** The weight that each caller may have whatever the others hold. */
  readonly guaranteedWeight?: number;
}

export const KEEP_MS = 600_000;
/** About 90 MB: 200,000 keys of single IDs, half of them for one caller. */
const MAX_WEIGHT = 400_000;
/** 100 keys of single IDs. */
const GUARANTEED_WEIGHT = 200;
/** As many as may have tokens; with more, nothing is guaranteed. */
const MAX_GUARANTEED = 1_000;
/** The weight of the key, the promise and the entry. */
const OWN_WEIGHT = 1;

interface Owner<T> {
  readonly caller: string;
  /** Oldest first. */
  readonly entries: Map<string, Entry<T>>;
  weight: number;
}

interface Entry<T> {
  readonly owner: Owner<T>;
  readonly key: string;
  readonly request: string;
  readonly value: Promise<T>;
  readonly untilMs: number;
  weight: number;
}

/**
 * Responses by caller and idempotency key, kept in this process for 10 minutes. No key is forgotten sooner, for its next use
 * would return other IDs: a caller whose share is full gets no new keys until one of its own expires. Shares are dynamic
 * thresholds (Choudhury and Hahne): a caller may hold as much as is free, thus half if it is alone, beside a small guaranteed
 * part. Failures are not kept, so that they can be retried.
 */
export class IdempotencyCache<T> {
  readonly #options: IdempotencyOptions<T>;
  readonly #maxWeight: number;
  readonly #guaranteedWeight: number;
  readonly #owners = new Map<string, Owner<T>>();
  /** Oldest first, which is also the order of expiry. */
  readonly #entries = new Set<Entry<T>>();
  #weight = 0;

  constructor(options: IdempotencyOptions<T>) {
    this.#options = options;
    this.#maxWeight = options.maxWeight ?? MAX_WEIGHT;
    this.#guaranteedWeight = options.guaranteedWeight ?? GUARANTEED_WEIGHT;
  }

  /**
   * The response for the caller's `key`: a known one, one in progress for an earlier request, or a new one from `make`. `request`
   * describes the request. Throws 422 CONFLICT when the key was used for another one, and 429 for a new key above the share.
   */
  once(
    caller: string,
    key: string,
    request: string,
    make: () => Promise<T>,
  ): { readonly value: Promise<T>; readonly replayed: boolean } {
    this.#forgetExpired();
    const owner = this.#owners.get(caller) ?? { caller, entries: new Map<string, Entry<T>>(), weight: 0 };
    const known = owner.entries.get(key);
    if (known === undefined) return { value: this.#make(owner, key, request, make), replayed: false };
    if (known.request === request) return { value: known.value, replayed: true };
    const detail = `this Idempotency-Key was used for '${known.request}', not '${request}': use a new one`;
    throw new Problem(422, detail, { code: 'CONFLICT' });
  }

  #make(owner: Owner<T>, key: string, request: string, make: () => Promise<T>): Promise<T> {
    this.#requireRoom(owner);
    const untilMs = this.#options.monotonicMs() + KEEP_MS;
    const entry: Entry<T> = { owner, key, request, value: make(), untilMs, weight: 0 };
    this.#owners.set(owner.caller, owner);
    owner.entries.set(key, entry);
    this.#entries.add(entry);
    this.#reweigh(entry, OWN_WEIGHT);
    entry.value.then(
      (value) => this.#reweigh(entry, OWN_WEIGHT + this.#options.weigh(value)),
      () => this.#remove(entry),
    );
    return entry.value;
  }

  #requireRoom(owner: Owner<T>): void {
    const guaranteed = this.#owners.size <= MAX_GUARANTEED ? this.#guaranteedWeight : 0;
    if (owner.weight < Math.max(guaranteed, this.#maxWeight - this.#weight)) return;
    const [oldest] = owner.entries.size > 0 ? owner.entries.values() : this.#entries;
    const waitMs = (oldest?.untilMs ?? 0) - this.#options.monotonicMs();
    const detail = `no room for a new Idempotency-Key: each is kept for ${KEEP_MS / 60_000} minutes, and this caller has ${owner.entries.size}. Request more IDs under one key, retry later, or send no key`;
    throw new Problem(429, detail, { retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1_000)) });
  }

  #reweigh(entry: Entry<T>, weight: number): void {
    if (!this.#entries.has(entry)) return;
    this.#weight += weight - entry.weight;
    entry.owner.weight += weight - entry.weight;
    entry.weight = weight;
  }

  #forgetExpired(): void {
    const nowMs = this.#options.monotonicMs();
    for (const entry of this.#entries) {
      if (entry.untilMs > nowMs) return;
      this.#remove(entry);
    }
  }

  #remove(entry: Entry<T>): void {
    const { owner, key } = entry;
    this.#reweigh(entry, 0);
    if (!this.#entries.delete(entry)) return;
    owner.entries.delete(key);
    if (owner.entries.size === 0) this.#owners.delete(owner.caller);
  }
}
