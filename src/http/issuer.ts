import type { GateReason } from '../core/gate.ts';
import type { IdRange } from '../core/generator.ts';
import { isLarge, type Layout } from '../core/layout.ts';
import type { WallMs } from '../core/units.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import type { RateLimit } from './callers.ts';
import { Problem } from './problem.ts';

export interface IssuerOptions {
  readonly layout: Layout;
  readonly source: AllocationSource;
  /** Why the gate is closed; undefined while it is open. */
  readonly gateReason: () => GateReason | undefined;
  readonly monotonicMs: () => number;
  /** Undefined: no limit. */
  readonly rateLimit?: RateLimit | undefined;
  /** Called with the number of newly allocated IDs. */
  readonly issued: (count: number) => void;
}

/** The queue may hold as many IDs as the layout has in this time; those of one caller at most half of them. */
const WAITING_MS = 2_000;
const RETRY_SOON_SECONDS = 1;
const RETRY_LATER_SECONDS = 5;

/** Issues IDs over HTTP from the allocator that the pipeline uses, so that all IDs differ. Nothing records them. */
export class Issuer {
  readonly #options: IssuerOptions;
  readonly #queue: AllocationQueue;

  constructor(options: IssuerOptions) {
    const { layout, source, monotonicMs } = options;
    this.#options = options;
    const perTick = layout.sequencesPerTick - layout.sequenceStartBelow + 1;
    const maxWaitingIds = Math.floor((perTick * WAITING_MS) / layout.tickMs);
    this.#queue = new AllocationQueue({ source, maxWaitingIds, monotonicMs, isLarge: (ids) => isLarge(layout, ids) });
  }

  /**
   * New IDs. Rejects with a Problem: 429 above the caller's limit, 503 with the reason while nothing can be allocated;
   * IDs that it does not get don't count against the limit.
   */
  async issue(caller: string, count: number): Promise<Allocated> {
    const { rateLimit } = this.#options;
    this.requireOpen();
    rateLimit?.take(caller, count);
    try {
      const batch = await this.#queue.take(caller, count);
      this.#options.issued(count);
      return batch;
    } catch (error) {
      rateLimit?.giveBack(caller, count);
      throw error instanceof IdallocError ? unavailable(error.code, error.message) : error;
    }
  }

  /** Throws Problem 503 with the reason while the gate is closed. */
  requireOpen(): void {
    const reason = this.#options.gateReason();
    if (reason !== undefined)
      throw unavailable(reason, 'this worker does not allocate IDs now: retry, or use another worker');
  }

  /** Counts a decoded ID against the caller's limit, before it is decoded. Throws 429 above it. */
  countDecoded(caller: string): void {
    this.#options.rateLimit?.take(caller, 1);
  }
}

/** Behind a load balancer another worker answers at once where this one has too much to do, or ends. */
function unavailable(code: ErrorCode | GateReason, detail: string): Problem {
  const isSoon = code === 'OVERLOADED' || code === 'STOPPING';
  return new Problem(503, detail, { code, retryAfterSeconds: isSoon ? RETRY_SOON_SECONDS : RETRY_LATER_SECONDS });
}

/** The IDs of one response: their ranges in order, and when they were allocated. */
export interface Allocated {
  readonly ranges: readonly IdRange[];
  readonly generatedAt: WallMs;
}

/** The worker's allocator, which the API shares with the pipeline. */
interface AllocationSource {
  allocate(counts: readonly number[]): Promise<readonly Allocated[]>;
}

export interface AllocationQueueOptions {
  readonly source: AllocationSource;
  /** Maximum number of IDs in the queue of all callers together, and so twice that of a caller that is alone. */
  readonly maxWaitingIds: number;
  /** Whether a request for so many IDs lets others go first. */
  readonly isLarge: (count: number) => boolean;
  readonly monotonicMs: () => number;
}

const MAX_WAITING = 1_024;
/** Beyond this wait, a client is better off with another worker. */
const MAX_WAIT_MS = 2_000;
/** IDs that a caller may take in a round, a tenth of the default MAX_COUNT: others wait some milliseconds for them. */
const QUANTUM = 10_000;

interface WaitingCall {
  readonly share: CallerShare;
  readonly count: number;
  readonly sinceMs: number;
  readonly taken: PromiseWithResolvers<Allocated>;
}

/** What a caller has in the queue, including the request in progress. */
interface CallerShare {
  readonly name: string;
  /** In order of arrival, without the request in progress. */
  readonly waiting: WaitingCall[];
  requests: number;
  ids: number;
  /** IDs that it may still take in this round. */
  deficit: number;
}

/**
 * Passes HTTP requests to the allocator one at a time, so that the pipeline's partitions never compete with more than
 * one of them, and with a large one, for which the others don't wait. Bounded in requests, IDs and time.
 *
 * Callers take turns by IDs, not by requests (deficit round robin of Shreedhar and Varghese, 1995): a caller waits at
 * most for one request of each other one, however many they have. A caller may have one request here, and more as long
 * as it holds no more than is left in the queue, thus half of it if it is alone, so that others always find room
 * (dynamic thresholds of Choudhury and Hahne).
 */
export class AllocationQueue {
  readonly #options: AllocationQueueOptions;
  readonly #shares = new Map<string, CallerShare>();
  /** The callers with waiting requests; the one whose turn is next is first. */
  readonly #round = new Set<CallerShare>();
  #requests = 0;
  #ids = 0;
  #isWorking = false;
  #hasLarge = false;

  constructor(options: AllocationQueueOptions) {
    this.#options = options;
  }

  /** Allocates IDs. Rejects with OVERLOADED, and with the allocator's errors. */
  take(caller: string, count: number): Promise<Allocated> {
    const share = this.#shares.get(caller) ?? { name: caller, waiting: [], requests: 0, ids: 0, deficit: 0 };
    const refusal = this.#refusal(share, count);
    if (refusal !== undefined) return Promise.reject(refusal);
    this.#hold(share, 1, count);
    const waiting = { share, count, sinceMs: this.#options.monotonicMs(), taken: Promise.withResolvers<Allocated>() };
    share.waiting.push(waiting);
    if (!this.#round.has(share)) share.deficit = QUANTUM;
    this.#round.add(share);
    void this.#work();
    return waiting.taken.promise;
  }

  #refusal({ requests, ids }: CallerShare, count: number): IdallocError | undefined {
    const { maxWaitingIds } = this.#options;
    const left = { requests: MAX_WAITING - this.#requests - 1, ids: maxWaitingIds - this.#ids - count };
    const isAbove = requests + 1 > left.requests || ids + count > left.ids;
    if (left.requests >= 0 && (requests === 0 || !isAbove)) return undefined;
    const own = left.requests < 0 ? '' : `, ${requests} for ${ids} of this caller`;
    return overloaded(`${this.#requests} requests for ${this.#ids} IDs are waiting${own}`);
  }

  #hold(share: CallerShare, requests: 1 | -1, ids: number): void {
    share.requests += requests;
    share.ids += ids;
    this.#requests += requests;
    this.#ids += ids;
    if (share.requests === 0) this.#shares.delete(share.name);
    else this.#shares.set(share.name, share);
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return;
    this.#isWorking = true;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const isLarge = this.#options.isLarge(next.count);
      const served = this.#serve(next, isLarge);
      if (!isLarge) await served;
    }
    this.#isWorking = false;
  }

  async #serve(call: WaitingCall, isLarge: boolean): Promise<void> {
    const { share, count, taken } = call;
    if (isLarge) this.#hasLarge = true;
    try {
      taken.resolve(await this.#allocate(call));
    } catch (error) {
      taken.reject(error);
    }
    this.#hold(share, -1, -count);
    if (isLarge) this.#hasLarge = false;
    void this.#work();
  }

  /**
   * Takes the next request from the queue. A caller whose turn is too short for its request gets more in the next
   * round. Those with a large one are passed over while another large one is in progress.
   */
  #next(): WaitingCall | undefined {
    for (const share of this.#round) {
      const [first] = share.waiting;
      if (first !== undefined && this.#hasLarge && this.#options.isLarge(first.count)) continue;
      if (first !== undefined && first.count > share.deficit) {
        this.#round.delete(share);
        share.deficit += QUANTUM;
        this.#round.add(share); // visited again, after the others
        continue;
      }
      share.waiting.shift();
      share.deficit -= first?.count ?? 0;
      if (share.waiting.length === 0) this.#round.delete(share);
      return first;
    }
    return undefined;
  }

  async #allocate({ count, sinceMs }: WaitingCall): Promise<Allocated> {
    const { source, monotonicMs } = this.#options;
    if (monotonicMs() - sinceMs > MAX_WAIT_MS) throw overloaded(`the request waited longer than ${MAX_WAIT_MS} ms`);
    const [batch] = await source.allocate([count]);
    if (batch === undefined) throw new RangeError('the allocator returned fewer batches than requested');
    return batch;
  }
}

function overloaded(what: string): IdallocError {
  return new IdallocError('OVERLOADED', `${what}: retry, or use another worker`);
}
