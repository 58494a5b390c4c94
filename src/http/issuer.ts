import type { GateReason } from '../core/gate.ts';
import type { Layout } from '../core/layout.ts';
import { IdallocError } from '../errors.ts';
import { type Allocated, AllocationQueue, type AllocationSource } from './allocation-queue.ts';
import { IdempotencyCache } from './idempotency.ts';
import { Problem } from './problem.ts';
import type { RateLimit } from './rate-limit.ts';

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

export interface Issued {
  readonly batch: Allocated;
  /** True when an earlier request with the same key got this batch. */
  readonly replayed: boolean;
}

/** The queue may hold as many IDs as the layout has in this time; those of one caller at most half of them. */
const WAITING_MS = 2_000;
const RETRY_SOON_SECONDS = 1;
const RETRY_LATER_SECONDS = 5;

/**
 * Issues IDs over HTTP from the allocator that the pipeline uses, so that all IDs differ. It outlives the listener, so that
 * keys are still known when the port opens again.
 */
export class Issuer {
  readonly #options: IssuerOptions;
  readonly #queue: AllocationQueue;
  readonly #known: IdempotencyCache<Allocated>;

  constructor(options: IssuerOptions) {
    const { layout, source, monotonicMs } = options;
    this.#options = options;
    const perTick = layout.sequencesPerTick - layout.sequenceStartBelow + 1;
    const maxWaitingIds = Math.floor((perTick * WAITING_MS) / layout.tickMs);
    this.#queue = new AllocationQueue({ source, maxWaitingIds, monotonicMs });
    this.#known = new IdempotencyCache({ monotonicMs, weigh: ({ ranges }) => ranges.length });
  }

  /**
   * New IDs, or those of the caller's key; `request` describes the request of the key. A known key is answered regardless of
   * the gate, since nothing is allocated for it, and counts against the limit, since its response costs as much. Rejects with a
   * Problem: 422 for a key of another request, 429 above the caller's limit or share of keys, 503 with the reason while
   * nothing can be allocated.
   */
  async issue(caller: string, count: number, request: string, key: string | undefined): Promise<Issued> {
    if (key === undefined) return { batch: await this.#allocate(caller, count), replayed: false };
    const { value, replayed } = this.#known.once(caller, key, request, () => this.#allocate(caller, count));
    if (!replayed) return { batch: await value, replayed };
    const { rateLimit } = this.#options;
    rateLimit?.take(caller, count);
    try {
      return { batch: await value, replayed };
    } catch (error) {
      rateLimit?.giveBack(caller, count);
      throw error;
    }
  }

  /** Throws Problem 503 with the reason while the gate is closed. */
  requireOpen(): void {
    const reason = this.#options.gateReason();
    if (reason !== undefined) throw closed(reason);
  }

  /** Counts a decoded ID against the caller's limit, before it is decoded. Throws 429 above it. */
  countDecoded(caller: string): void {
    this.#options.rateLimit?.take(caller, 1);
  }

  async #allocate(caller: string, count: number): Promise<Allocated> {
    const { rateLimit } = this.#options;
    this.requireOpen();
    rateLimit?.take(caller, count);
    try {
      const batch = await this.#queue.take(caller, count);
      this.#options.issued(count);
      return batch;
    } catch (error) {
      rateLimit?.giveBack(caller, count);
      throw error instanceof IdallocError ? refusal(error) : error;
    }
  }
}

function closed(reason: GateReason): Problem {
  const detail = 'this worker does not allocate IDs now: retry, or use another worker';
  const retryAfterSeconds = reason === 'STOPPING' ? RETRY_SOON_SECONDS : RETRY_LATER_SECONDS;
  return new Problem(503, detail, { code: reason, retryAfterSeconds });
}

function refusal({ code, message }: IdallocError): Problem {
  const retryAfterSeconds = code === 'OVERLOADED' ? RETRY_SOON_SECONDS : RETRY_LATER_SECONDS;
  return new Problem(503, message, { code, retryAfterSeconds });
}
