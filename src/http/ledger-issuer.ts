import { httpRequestId, maxHttpKeyBytes } from '../codec/http-key.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import { ANONYMOUS, type Caller, type RateLimit } from './callers.ts';
import type { Allocated } from './issuer.ts';
import { malformed, Problem } from './problem.ts';

/** What a caller wants under an Idempotency-Key. */
export interface KeyedRequest {
  readonly count: number;
  /** The caller's, 1 to 255 bytes. */
  readonly key: Buffer;
  /** Ends the wait with its reason. */
  readonly signal: AbortSignal;
}

export interface KeyedNumbers extends KeyedRequest {
  readonly sequence: string;
  /** Nothing is decided: the key gets what it has, or else EXPIRED. */
  readonly isLookUp: boolean;
}

export interface IssuedIds {
  readonly batch: Allocated;
  /** True when they were decided for an earlier request with the same key. */
  readonly replayed: boolean;
}

export interface IssuedNumbers {
  readonly numbers: Numbers;
  /** True when they were decided for an earlier request with the same key. */
  readonly replayed: boolean;
}

/**
 * Asks the workers of the group, of which this one is only a part: the ledger decides what a key has. The key is what
 * names the request in the ledger. Rejects with IdallocError, also for a worker's refusal.
 */
export interface AskLedger {
  ids(request: KeyedRequest): Promise<IssuedIds>;
  numbers(request: KeyedNumbers): Promise<IssuedNumbers>;
}

export interface LedgerIssuerOptions {
  readonly ledger: AskLedger;
  /** Limits the IDs and numbers of each caller; undefined: no limit. */
  readonly rateLimit?: RateLimit | undefined;
  readonly maxWaiting?: number;
  readonly monotonicMs: () => number;
  /** Called when the wait of a request has ended, unless its caller has gone. */
  readonly observe: (outcome: 'answered' | 'refused' | 'failed', milliseconds: number) => void;
}

/** Each waiting request has a connection, a timer and a record in the topic. */
const MAX_WAITING = 1_000;
const SOON = 1;
const LATER = 5;
/** When an operator has to act. */
const MUCH_LATER = 60;

/**
 * How the workers' refusals are reported: the status, and the seconds after which a retry may succeed if the refusal
 * does not name them.
 */
export const REFUSAL_STATUSES: Partial<Record<ErrorCode, readonly [status: number, retryAfterSeconds?: number]>> = {
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
 * What the ledger decides, over HTTP: IDs under an Idempotency-Key, and numbers of sequences. Nothing is kept here, so
 * that a key gets the same from every worker, for as long as the ledger keeps it. Waits are bounded; a caller may have
 * as many as are free, so half of them if it is alone.
 */
export class LedgerIssuer {
  readonly #options: LedgerIssuerOptions;
  readonly #maxWaiting: number;
  readonly #waiting = new Map<string, number>();
  #total = 0;

  constructor(options: LedgerIssuerOptions) {
    this.#options = options;
    this.#maxWaiting = options.maxWaiting ?? MAX_WAITING;
  }

  /**
   * The IDs of the caller's key; other callers have others under it. Rejects with a Problem: 400 for a key that is too
   * long beside the caller's name, 429 above its rate or share of the waits, 503 while nobody can be asked, 504 without
   * an answer in time.
   */
  async ids(caller: Caller, request: KeyedRequest): Promise<IssuedIds> {
    const name = caller === ANONYMOUS ? '' : caller.name;
    if (request.key.length > maxHttpKeyBytes(name)) throw tooLong(name);
    const key = httpRequestId(name, request.key);
    return await this.#answered(caller, request.count, () => this.#options.ledger.ids({ ...request, key }));
  }

  /** The numbers of the key, whoever asks. Rejects likewise; a look-up with 404 where the key has none. */
  async numbers(caller: Caller, request: KeyedNumbers): Promise<IssuedNumbers> {
    try {
      return await this.#answered(caller, request.count, () => this.#options.ledger.numbers(request));
    } catch (error) {
      if (request.isLookUp && error instanceof Problem && error.code === 'EXPIRED') throw hasNone(request);
      throw error;
    }
  }

  async #answered<T>({ name }: Caller, count: number, ask: () => Promise<T>): Promise<T> {
    const own = this.#waiting.get(name) ?? 0;
    if (own >= this.#maxWaiting - this.#total) {
      const detail = `${own} requests of this caller wait for the ledger, of ${this.#total} in all: retry when one of them is answered`;
      throw new Problem(429, detail, { retryAfterSeconds: SOON });
    }
    const { rateLimit, monotonicMs, observe } = this.#options;
    rateLimit?.take(name, count);
    this.#count(name, 1);
    const beganMs = monotonicMs();
    try {
      const issued = await ask();
      observe('answered', monotonicMs() - beganMs);
      return issued;
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error;
      const problem = problemOf(error);
      observe(problem.status < 500 ? 'refused' : 'failed', monotonicMs() - beganMs);
      throw problem;
    } finally {
      this.#count(name, -1);
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
function problemOf({ code, message, retryable, retryAfterMs }: IdallocError): Problem {
  const [status, usualSeconds] = REFUSAL_STATUSES[code] ?? (retryable ? [503, LATER] : [502]);
  const retryAfterSeconds = retryAfterMs === undefined ? usualSeconds : Math.max(SOON, Math.ceil(retryAfterMs / 1_000));
  return new Problem(status, inWordsOfHttp(code, message), {
    code,
    ...(retryAfterSeconds === undefined ? {} : { retryAfterSeconds }),
  });
}

/**
 * What the workers call correlation ID or request ID, the caller knows as its Idempotency-Key. It can't set how long a
 * request is valid or waits, and after both the same key is right.
 */
function inWordsOfHttp(code: ErrorCode, message: string): string {
  if (code === 'EXPIRED') return 'the workers came to this request too late: ask again with the same Idempotency-Key';
  const text = message
    .replaceAll(/correlation ID|request ID/g, 'Idempotency-Key')
    .replace('set a longer timeoutMs, or request fewer', 'request fewer');
  return code !== 'CONFLICT' || text.includes('Idempotency-Key')
    ? text
    : `this Idempotency-Key was used before: ${text}`;
}

function tooLong(caller: string): Problem {
  const most = maxHttpKeyBytes(caller);
  const detail = `Idempotency-Key must have at most ${Math.max(0, most)} bytes for this caller: the ledger has it behind the caller's name, '${caller}', and the two share 256 bytes`;
  return malformed(detail);
}

/**
 * Without a code: nothing was wrong. It must not invite to take numbers for a document that has had some for longer
 * than the ledger keeps them.
 */
function hasNone({ sequence }: KeyedNumbers): Problem {
  const detail = `the ledger has no numbers of ${sequence} for this Idempotency-Key: it got none, or longer ago than the ledger keeps them`;
  return new Problem(404, detail);
}
