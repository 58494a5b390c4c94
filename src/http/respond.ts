import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { Problem } from './problem.ts';

export const JSON_TYPE = 'application/json; charset=utf-8';
/** A client that has not read its response within this time is disconnected. */
const RESPONSE_LIMIT_MS = 30_000;

/** Responses from this size on are compressed for clients that accept it. */
const GZIP_FROM_BYTES = 1_024;
/**
 * Up to this size, which a body in one piece does not exceed, at once: that takes a quarter of a millisecond. More in
 * another thread.
 */
const GZIP_AT_ONCE_BYTES = 32_768;

/** Settings of the plugin: only what `send` passes to it, and nothing that a request contains is unpacked. */
export const COMPRESSION = {
  global: false,
  encodings: ['gzip' as const],
  /**
   * Speed before size: the fields of IDs repeat so much that the fastest level leaves a tenth. The smaller window and
   * memory hold a response to 128 KiB while it is compressed.
   */
  zlibOptions: { level: 1, windowBits: 14, memLevel: 7 },
  threshold: GZIP_FROM_BYTES,
  syncThreshold: GZIP_AT_ONCE_BYTES,
};

/**
 * What a handler returns for a body: the reply, where the body is long enough and the client accepts it compressed;
 * else the body itself. Fastify sends that as well, and does not watch the stream of the response until it ends.
 */
export function respond(
  reply: FastifyReply,
  replayed: boolean,
  body: string | Readable,
): string | Readable | FastifyReply {
  if (replayed) reply.header('idempotency-replayed', 'true');
  reply.header('cache-control', 'no-store');
  if (!reply.hasHeader('content-type')) reply.type(JSON_TYPE);
  const isShort = typeof body === 'string' && body.length < GZIP_FROM_BYTES;
  if (isShort || !acceptsGzip(reply.request.headers['accept-encoding'])) return body;
  reply.compress(body);
  return reply;
}

/** Whether gzip has a weight; that of `*` counts only where gzip is not named, which the plugin does not see. */
function acceptsGzip(accepted: string | string[] | undefined): boolean {
  if (accepted === undefined) return false;
  const entries = String(accepted).toLowerCase().split(',');
  const weights = new Map(
    entries.map((entry) => {
      const [name = '', ...parameters] = entry.split(';').map((part) => part.trim());
      const weight = parameters.find((one) => one.startsWith('q='));
      return [name === 'x-gzip' ? 'gzip' : name, weight === undefined ? 1 : Number(weight.slice(2)) || 0];
    }),
  );
  return (weights.get('gzip') ?? weights.get('*') ?? 0) > 0;
}

/** Its connection is closed, so nobody reads it. */
const GONE = new Problem(499, 'the caller has closed the connection');

/** Aborted when the caller's connection closes, so that nothing waits for a response that nobody reads. */
export function untilGone({ raw }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  raw.once('close', () => gone.abort(GONE));
  return gone.signal;
}

/** Cuts the connection if the response has not been read in time. */
export function limitResponse({ raw }: FastifyReply): void {
  const timer = setTimeout(() => raw.destroy(), RESPONSE_LIMIT_MS);
  raw.once('close', () => clearTimeout(timer));
}
