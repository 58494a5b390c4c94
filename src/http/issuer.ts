import type { GateReason } from '../core/gate.ts';
import type { Layout } from '../core/layout.ts';
import { IdallocError } from '../errors.ts';
import { type Allocated, AllocationQueue, type AllocationSource } from './allocation-queue.ts';
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
    this.#queue = new AllocationQueue({ source, maxWaitingIds, monotonicMs });
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
      throw error instanceof IdallocError ? refusal(error) : error;
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
