import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { parseApiTokens } from '../codec/api-tokens.ts';
import { renewed } from '../core/renewed.ts';
import { headerValues } from './envelope.ts';
import { malformed } from './parameters.ts';
import { Problem } from './problem.ts';

/** Idempotency keys and rate limits are per caller. */
export interface Caller {
  readonly name: string;
  /** The name in metrics, one of a closed set. */
  readonly label: string;
}

/** Throws Problem 401. */
export type Identify = (request: IncomingMessage) => Caller;

export interface CallersOptions {
  /** The current, valid lines of name:token; without it, no token is required. */
  readonly tokens?: (() => string) | undefined;
  /** Whether connections have a verified client certificate. */
  readonly mutualTls: boolean;
  readonly monotonicMs: () => number;
}

export const ANONYMOUS: Caller = { name: 'anonymous', label: 'anonymous' };
const MTLS_LABEL = 'mtls';
const BEARER = /^Bearer +([A-Za-z0-9._~+/-]+=*) *$/i;

/** Identifies callers by token, or else by client certificate; if neither is required, all are one anonymous caller. */
export function identifyBy({ tokens, mutualTls, monotonicMs }: CallersOptions): Identify {
  if (tokens !== undefined) return byToken(renewed(() => [tokens()], hashed, monotonicMs));
  return mutualTls ? ({ socket }) => certified(socket as TLSSocket) : () => ANONYMOUS;
}

interface HashedToken {
  readonly caller: Caller;
  readonly hash: Buffer;
}

function hashed([text = '']: readonly string[]): readonly HashedToken[] {
  return parseApiTokens(text).map(({ name, token }) => ({ caller: { name, label: name }, hash: hashOf(token) }));
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
  if (typeof name === 'string' && name !== '') return { name, label: MTLS_LABEL };
  throw unauthorized('the client certificate must have exactly one common name (CN)', 'Bearer');
}

function unauthorized(detail: string, challenge: string): Problem {
  return new Problem(401, detail, { challenge });
}
