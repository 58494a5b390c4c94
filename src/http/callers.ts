import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Runtime } from '../async/runtime.ts';
import { TokenBucket } from '../async/token-bucket.ts';
import { type ApiRight, parseApiTokens } from '../codec/api-tokens.ts';
import { renewed } from '../core/secret.ts';
import { headerValues, malformed, Problem } from './problem.ts';

/** Idempotency keys of IDs, and limits, are per caller. */
export interface Caller {
  readonly name: string;
  /** The name in metrics, one of a closed set. */
  readonly label: string;
  /** What the token allows; without a token, numbers of every sequence. */
  readonly rights: readonly ApiRight[];
}

/** Throws Problem 401; 429 where too many logins from the remote address have failed. */
export type Identify = (request: IncomingMessage) => Caller;

export interface CallersOptions {
  /** The current, valid lines of name:token; without it, no token is required. */
  readonly tokens?: (() => string) | undefined;
  /** Whether connections have a verified client certificate. */
  readonly mutualTls: boolean;
  readonly monotonicMs: () => number;
}

const WITHOUT_TOKEN: readonly ApiRight[] = ['sequences:*'];
export const ANONYMOUS: Caller = { name: 'anonymous', label: 'anonymous', rights: WITHOUT_TOKEN };
/** How many logins of a remote address may fail; above it, connections are closed. */
const FAILED_PER_SECOND = 10;
const OF_FAILURES = { what: 'failed logins per second from this address', closes: true };
/** How many documents a remote address may request. */
const VISITS_PER_SECOND = 10;
const OF_VISITS = { what: 'documents per second for this address', closes: false };
/** How many TLS handshakes a remote address may begin: each takes more time than a request. */
const HANDSHAKES_PER_SECOND = 100;
/** How much a remote address may ask of the port for health and metrics, beside what probes ask. */
const OPS_PER_SECOND = 50;
/** A request waits for the limit so long at most: refused at once, its client would only ask again at once. */
const OPS_MAX_WAIT_MS = 2_000;
const OF_OPS = { what: 'requests per second from this address', closes: true };
const UNAUTHORIZED = 401;
const MTLS_LABEL = 'mtls';
const BEARER = /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

/**
 * Identifies callers by token, or else by client certificate; if neither is required, all are one anonymous caller.
 * Failed logins are limited per remote address; logins that succeed never are, since a proxy has one address for all of
 * its users.
 */
export function identifyBy({ tokens, mutualTls, monotonicMs }: CallersOptions): Identify {
  if (tokens !== undefined) return limited(byToken(renewed(() => [tokens()], hashed, monotonicMs)), monotonicMs);
  return mutualTls ? limited(({ socket }) => certified(socket as TLSSocket), monotonicMs) : () => ANONYMOUS;
}

function limited(identify: Identify, monotonicMs: () => number): Identify {
  const failures = new RateLimit(FAILED_PER_SECOND, monotonicMs, OF_FAILURES);
  return (request) => {
    try {
      return identify(request);
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== UNAUTHORIZED) throw error;
      failures.take(networkOf(request.socket.remoteAddress ?? ''), 1);
      throw error;
    }
  };
}

/**
 * Limits what needs no login, which no caller can be charged for: the documents. Throws Problem 429 above the limit.
 */
export function visitorLimit(monotonicMs: () => number): (request: IncomingMessage) => void {
  const limit = new RateLimit(VISITS_PER_SECOND, monotonicMs, OF_VISITS);
  return ({ socket }) => limit.take(networkOf(socket.remoteAddress ?? ''), 1);
}

/**
 * Limits requests for metrics and status: above the limit of its address, a request is answered when its turn comes.
 * Rejects with Problem 429 if that would take longer than two seconds. Nothing waits after the signal.
 */
export function opsLimit(
  { monotonicMs, sleep }: Pick<Runtime, 'monotonicMs' | 'sleep'>,
  ended: AbortSignal,
): (request: IncomingMessage) => Promise<void> {
  const limit = new RateLimit(OPS_PER_SECOND, monotonicMs, OF_OPS);
  return async ({ socket }) => {
    const waitMs = limit.reserve(networkOf(socket.remoteAddress ?? ''), 1, OPS_MAX_WAIT_MS);
    if (waitMs > 0) await sleep(waitMs, ended);
  };
}

/** Whether a remote address may begin another TLS handshake now. */
export function handshakeLimit(monotonicMs: () => number): (socket: Socket) => boolean {
  const limit = new RateLimit(HANDSHAKES_PER_SECOND, monotonicMs);
  return ({ remoteAddress = '' }) => limit.charge(networkOf(remoteAddress), 1) === 0;
}

/** The address; of IPv6 only its /64 network, since one host usually has all of that. */
function networkOf(address: string): string {
  const mapped = /^::ffff:([0-9.]+)$/i.exec(address)?.[1];
  if (mapped !== undefined || !address.includes(':')) return mapped ?? address;
  const [head = [], tail = []] = address.split('::').map((part) => part.split(':').filter((group) => group !== ''));
  const zeros = Math.max(0, 8 - head.length - tail.length);
  return [...head, ...new Array<string>(zeros).fill('0'), ...tail].slice(0, 4).join(':');
}

interface HashedToken {
  readonly caller: Caller;
  readonly hash: Buffer;
}

function hashed([text = '']: readonly string[]): readonly HashedToken[] {
  return parseApiTokens(text).map(({ name, token, rights }) => ({
    caller: { name, label: name, rights },
    hash: hashOf(token),
  }));
}

function hashOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** Compares all tokens, each in constant time, against timing attacks. */
function byToken(known: () => readonly HashedToken[]): Identify {
  return (request) => {
    const [value, ...others] = headerValues(request, 'authorization');
    if (others.length > 0) throw malformed('Authorization must be given once');
    const token = value === undefined ? undefined : BEARER.exec(value)?.[1];
    if (token === undefined) throw unauthorized('a bearer token is required: Authorization: Bearer …', 'Bearer');
    const hash = hashOf(token);
    let caller: Caller | undefined;
    for (const one of known()) if (timingSafeEqual(one.hash, hash)) caller = one.caller;
    if (caller === undefined) throw unauthorized('unknown bearer token', 'Bearer error="invalid_token"');
    return caller;
  };
}

function certified(socket: TLSSocket): Caller {
  const name: unknown = socket.getPeerCertificate().subject?.CN;
  if (typeof name === 'string' && name !== '') return { name, label: MTLS_LABEL, rights: WITHOUT_TOKEN };
  throw unauthorized('the client certificate must have exactly one common name (CN)', 'Bearer');
}

function unauthorized(detail: string, challenge: string): Problem {
  return new Problem(UNAUTHORIZED, detail, { challenge });
}

/** Callers that are remembered; one that has been idle for a second counts as new. */
const MAX_CALLERS = 1_024;

interface RateLimitOptions {
  /** What is counted, for the message. */
  readonly what: string;
  /** Whether the connection is closed above the limit. */
  readonly closes: boolean;
}

const OF_CALLERS: RateLimitOptions = { what: 'IDs per second for this caller', closes: false };

/**
 * A limit for each caller. A request for more than one second has needs a full bucket, and leaves its caller a debt.
 */
export class RateLimit {
  readonly #perSecond: number;
  readonly #monotonicMs: () => number;
  readonly #options: RateLimitOptions;
  /** Least recently used first. */
  readonly #buckets = new Map<string, TokenBucket>();

  constructor(perSecond: number, monotonicMs: () => number, options: RateLimitOptions = OF_CALLERS) {
    this.#perSecond = perSecond;
    this.#monotonicMs = monotonicMs;
    this.#options = options;
  }

  /** Throws Problem 429 with the time of a retry. */
  take(caller: string, count: number): void {
    this.reserve(caller, count, 0);
  }

  /** Returns the milliseconds until the turn of what is charged now. Throws Problem 429 if it is further off. */
  reserve(caller: string, count: number, maxWaitMs: number): number {
    const waitMs = this.charge(caller, count, maxWaitMs);
    if (waitMs <= maxWaitMs) return waitMs;
    const { what, closes } = this.#options;
    const detail = `rate limit exceeded: ${this.#perSecond} ${what}`;
    throw new Problem(429, detail, { retryAfterSeconds: Math.ceil(waitMs / 1_000), closes });
  }

  /** Returns how long to wait in milliseconds. Charges nothing if that is more than `maxWaitMs`. */
  charge(caller: string, count: number, maxWaitMs = 0): number {
    const bucket = this.#bucketOf(caller);
    const waitMs = Math.max(0, bucket.waitMs(count, { nowMs: this.#monotonicMs() }));
    if (waitMs <= maxWaitMs) bucket.owe(count);
    return waitMs;
  }

  /** Returns the tokens of IDs that were taken but not issued. */
  giveBack(caller: string, count: number): void {
    this.#bucketOf(caller).giveBack(count);
  }

  #bucketOf(caller: string): TokenBucket {
    const bucket = this.#buckets.get(caller) ?? new TokenBucket(this.#perSecond, this.#perSecond);
    this.#buckets.delete(caller);
    this.#buckets.set(caller, bucket);
    if (this.#buckets.size > MAX_CALLERS) this.#forgetOldest();
    return bucket;
  }

  #forgetOldest(): void {
    for (const caller of this.#buckets.keys()) return void this.#buckets.delete(caller);
  }
}
