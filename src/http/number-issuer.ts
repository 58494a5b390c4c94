import type { Numbers } from '../codec/sequence-entry.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import { Problem } from './problem.ts';
import type { RateLimit } from './rate-limit.ts';

export interface NumberRequest {
  readonly sequence: string;
  readonly count: number;
  /** 1 to 255 bytes that name the request in the ledger. */
  readonly key: Buffer;
  /** Ends the wait with its reason. */
  readonly signal: AbortSignal;
}

export interface TakenNumbers {
  readonly numbers: Numbers;
  /** True when they were decided for an earlier request with the same key. */
  readonly replayed: boolean;
}

/** Takes numbers from the workers of the group, of which this one is only a part. Rejects with IdallocError, also for a worker's refusal. */
export type TakeNumbers = (request: NumberRequest) => Promise<TakenNumbers>;

export interface NumberIssuerOptions {
  readonly take: TakeNumbers;
  /** Of the IDs and numbers of each caller; undefined: no limit. */
  readonly rateLimit?: RateLimit | undefined;
  readonly maxWaiting?: number;
}

/** Each waiting request has a connection, a timer and a record in the topic. */
const MAX_WAITING = 1_000;
const SOON = 1;
const LATER = 5;
/** When an operator has to act. */
const MUCH_LATER = 60;

/** How the workers' refusals are reported: the status, and the seconds after which a retry may succeed. */
const REFUSALS: Partial<Record<ErrorCode, readonly [status: number, retryAfterSeconds?: number]>> = {
  MALFORMED_REQUEST: [400],
  INVALID_COUNT: [400],
  UNKNOWN_SEQUENCE: [404],
  SEQUENCE_EXHAUSTED: [409],
  SEQUENCE_CLOSED: [410],
  FORGOTTEN: [410],
  CONFLICT: [422],
  QUOTA_EXCEEDED: [429, SOON],
  SEQUENCE_STOPPED: [503, MUCH_LATER],
  TOPIC_INVALID: [503, MUCH_LATER],
  CONFIG_INVALID: [503, MUCH_LATER],
  OVERTAKEN: [503, SOON],
  KAFKA_UNAVAILABLE: [503, LATER],
  STOPPING: [503, SOON],
  EXPIRED: [504, SOON],
  NO_REPLY: [504, SOON],
};

/**
 * Numbers of sequences over HTTP. Nothing is kept here: the ledger decides what a key has, so that it gets the same numbers from
 * every worker. Waits are bounded; a caller may have as many as are free, so half of them if it is alone.
 */
export class NumberIssuer {
  readonly #options: NumberIssuerOptions;
  readonly #maxWaiting: number;
  readonly #waiting = new Map<string, number>();
  #total = 0;

  constructor(options: NumberIssuerOptions) {
    this.#options = options;
    this.#maxWaiting = options.maxWaiting ?? MAX_WAITING;
  }

  /** Rejects with a Problem: 429 above the caller's rate or share of the waits, 503 while nobody can be asked, 504 without an answer in time. */
  async take(caller: string, request: NumberRequest): Promise<TakenNumbers> {
    const own = this.#waiting.get(caller) ?? 0;
    if (own >= this.#maxWaiting - this.#total) {
      const detail = `${own} requests of this caller wait for numbers, of ${this.#total} in all: retry when one of them is answered`;
      throw new Problem(429, detail, { retryAfterSeconds: SOON });
    }
    this.#options.rateLimit?.take(caller, request.count);
    this.#count(caller, 1);
    try {
      return await this.#options.take(request);
    } catch (error) {
      throw error instanceof IdallocError ? problemOf(error) : error;
    } finally {
      this.#count(caller, -1);
    }
  }

  #count(caller: string, more: 1 | -1): void {
    const own = (this.#waiting.get(caller) ?? 0) + more;
    this.#total += more;
    if (own === 0) this.#waiting.delete(caller);
    else this.#waiting.set(caller, own);
  }
}

/** A code without a row is not the caller's: the other workers can't be understood, or can't serve anyone. */
function problemOf({ code, message, retryable }: IdallocError): Problem {
  const [status, retryAfterSeconds] = REFUSALS[code] ?? (retryable ? [503, LATER] : [502]);
  return new Problem(status, message, { code, ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }) });
}
