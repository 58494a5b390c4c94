import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';
import type { WaitForIds } from './id-source.ts';
import { clientClosed, errorFor, noBuffer, timeoutOf, tooFewIds } from './refusals.ts';
import { IdStock, type StockOptions } from './stock.ts';
import { inSlices, type WaitingCaller, wait } from './waiting.ts';

/** Callers that begin to wait so long after a refusal may be in the pause that it causes. */
const REMEMBERED_MS = 30_000;

/** IDs to request: for the buffer, or for the callers that wait. */
export interface Wanted {
  /** Where they go. */
  readonly stock: IdStock;
  /** How many are still to be requested while this many are on their way; 0 or less: none. */
  readonly lacking: (coming: number) => number;
  /**
   * Whether late ones that were requested then (monotonic ms) are requested again; otherwise they count as on their
   * way.
   */
  readonly isReplaced: (sentMs: number) => boolean;
}

export interface WaitsOptions {
  readonly stock: IdStock;
  readonly runtime: Runtime;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  readonly prefetch: boolean;
  /** The low-water mark, below which callers that wait take nothing from the stock. */
  readonly low: () => number;
  readonly onTake: NonNullable<StockOptions['onTake']>;
  /** Requests IDs if those that callers wait for are not on their way. */
  readonly check: () => void;
  /** Whether a reply to any request has come since then (monotonic ms). */
  readonly hasRepliedSince: (sinceMs: number) => boolean;
  /** Why requests can't be sent, or replies not be read; undefined while they can. */
  readonly trouble: () => Error | string | undefined;
}

/**
 * The callers that wait: those that take IDs, and those that want them to be in the stock. The former have a pile of
 * their own, for which IDs are requested beside the stock's: so they keep nobody from taking what the stock has. Each
 * also gets what the stock can spare.
 */
export class Waits {
  readonly #options: WaitsOptions;
  readonly #pile: IdStock;
  readonly #takers: WaitingQueue;
  readonly #watchers: WaitingQueue;
  #refused: { readonly error: IdallocError; readonly atMs: number } | undefined;
  #closed = false;

  constructor(options: WaitsOptions) {
    const { runtime, maxWaiting, onTake } = options;
    this.#options = options;
    // Its IDs are requested while their takers wait, so they have no other age limit, and there is no need for another
    // bound.
    const limits = { maxAgeMs: Number.POSITIVE_INFINITY, maxIds: Number.POSITIVE_INFINITY };
    this.#pile = new IdStock({ ...limits, onLow: () => undefined, onTake, monotonicMs: () => runtime.monotonicMs() });
    this.#takers = new WaitingQueue(maxWaiting);
    this.#watchers = new WaitingQueue(maxWaiting);
  }

  /** What to request for the callers that take IDs. */
  wanted(smallCount: () => number): Wanted {
    return {
      stock: this.#pile,
      lacking: (coming) => this.#takers.needed - this.#pile.size - coming,
      // Many IDs are not asked for twice by the same callers. Later ones ask anew: the partition may not be served.
      isReplaced: (sentMs) => this.#takers.needed <= smallCount() || sentMs < this.#takers.sinceMs,
    };
  }

  /** The IDs that the stock must have for all callers that want them there. */
  get buffered(): number {
    return this.#watchers.largest;
  }

  get size(): number {
    return this.#takers.size + this.#watchers.size;
  }

  /** Total number of IDs taken from the pile so far. */
  get taken(): number {
    return this.#pile.taken;
  }

  /** The next `count` IDs, in turn. Rejects as IdClient.takeAsync. */
  take(count: number, options: WaitForIds): Promise<readonly bigint[]> {
    return this.#wait(this.#takers, count, options);
  }

  /** Resolves when the stock has `count` IDs. Rejects as IdClient.ready. */
  async until(count: number, options: WaitForIds): Promise<void> {
    await this.#wait(this.#watchers, count, options);
  }

  /** Serves the callers for which there is enough, after IDs have arrived. */
  serve(): void {
    const { stock, low } = this.#options;
    this.#refused = undefined;
    if (this.#closed) return;
    this.#serveInTurn();
    this.#takers.serve('any', (count) => stock.tryTake(count, low()));
    this.#serveInTurn();
    this.#serveWatchers();
  }

  /**
   * The workers refused IDs. If a retry may succeed, callers go on waiting for it: this is the error then if their time
   * ends before.
   */
  refused(error: IdallocError): void {
    this.#refused = { error, atMs: this.#options.runtime.monotonicMs() };
    if (!error.retryable) void this.#rejectAll((count) => errorFor(error, count));
  }

  /** Rejects all callers, and further ones. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#rejectAll(clientClosed);
  }

  async #rejectAll(reason: (count: number) => IdallocError): Promise<void> {
    const { runtime } = this.#options;
    await Promise.all([this.#takers.rejectAll(reason, runtime), this.#watchers.rejectAll(reason, runtime)]);
  }

  /** The pile is for those who wait, first come, first served; its rest goes to the stock when nobody does. */
  #serveInTurn(): void {
    if (this.#closed) return;
    const { stock } = this.#options;
    // This also keeps the departure of thousands of callers from a search for the first each time.
    if (this.#pile.size === 0) return;
    this.#takers.serve('in turn', (count) => this.#pile.tryTake(count));
    if (this.#takers.size > 0 || this.#pile.size === 0) return;
    for (const batch of this.#pile.removeAll()) stock.add(batch);
    this.#serveWatchers();
  }

  #serveWatchers(): void {
    const { stock } = this.#options;
    this.#watchers.serve('any', (count) => (stock.size < count ? undefined : []));
  }

  async #wait(queue: WaitingQueue, count: number, { timeoutMs, signal }: WaitForIds): Promise<readonly bigint[]> {
    const { runtime, prefetch, check, hasRepliedSince, trouble } = this.#options;
    if (this.#closed) throw clientClosed(count);
    if (!prefetch) throw noBuffer();
    const limitMs = timeoutOf(timeoutMs, this.#options.timeoutMs);
    const beganMs = runtime.monotonicMs();
    const timeoutError = () =>
      this.#refused !== undefined && this.#refused.atMs >= beganMs - REMEMBERED_MS
        ? errorFor(this.#refused.error, count)
        : tooFewIds(count, limitMs, { isWaiting: hasRepliedSince(beganMs), trouble: trouble() });
    const waited = wait<readonly bigint[]>(runtime, { timeoutMs: limitMs, signal, timeoutError }, (caller) => {
      const leave = queue.join(count, beganMs, caller);
      return () => {
        leave();
        this.#serveInTurn();
      };
    });
    check();
    return waited;
  }
}

interface Waiter {
  readonly count: number;
  /** Monotonic time from which on it waits. */
  readonly sinceMs: number;
  readonly caller: WaitingCaller<readonly bigint[]>;
}

/** A bounded queue of callers, each waiting for a number of IDs. */
class WaitingQueue {
  readonly #maxWaiting: number;
  readonly #waiters = new Set<Waiter>();
  #needed = 0;
  #serving = false;

  constructor(maxWaiting: number) {
    this.#maxWaiting = maxWaiting;
  }

  get size(): number {
    return this.#waiters.size;
  }

  /** The IDs that all callers together wait for. */
  get needed(): number {
    return this.#needed;
  }

  /** The most IDs that one of the callers waits for. */
  get largest(): number {
    let largest = 0;
    for (const { count } of this.#waiters) largest = Math.max(largest, count);
    return largest;
  }

  /** Monotonic time from which on the first caller waits; Infinity when there is none. */
  get sinceMs(): number {
    for (const { sinceMs } of this.#waiters) return sinceMs;
    return Number.POSITIVE_INFINITY;
  }

  /** Adds a caller at the end; the returned function removes it. Throws IdallocError QUEUE_FULL. */
  join(count: number, sinceMs: number, caller: WaitingCaller<readonly bigint[]>): () => void {
    if (this.#waiters.size >= this.#maxWaiting) {
      throw new IdallocError('QUEUE_FULL', `${this.#maxWaiting} callers are waiting for IDs: see maxWaiting`);
    }
    const waiter: Waiter = { count, sinceMs, caller };
    this.#waiters.add(waiter);
    this.#needed += count;
    return () => {
      if (this.#waiters.delete(waiter)) this.#needed -= count;
    };
  }

  /**
   * Serves callers with what `take` returns, which is undefined when there is too little for a caller. `in turn` ends
   * with the first for which there is too little; `any` goes on to all others. A served caller leaves the queue, which
   * may call this again; such a call does nothing.
   */
  serve(order: 'in turn' | 'any', take: (count: number) => readonly bigint[] | undefined): void {
    if (this.#serving) return;
    this.#serving = true;
    for (const { count, caller } of this.#waiters) {
      const ids = take(count);
      if (ids !== undefined) caller.resolve(ids);
      else if (order === 'in turn') break;
    }
    this.#serving = false;
  }

  /** Rejects all who wait now, in slices. */
  async rejectAll(reason: (count: number) => Error, runtime: Runtime): Promise<void> {
    await inSlices([...this.#waiters], runtime, ({ count, caller }) => caller.reject(reason(count)));
  }
}
