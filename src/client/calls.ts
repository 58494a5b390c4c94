import type { Runtime } from '../async/runtime.ts';
import type { IdBatch } from '../codec/id-batch.ts';
import type { Encoding } from '../codec/id-request.ts';
import { checkCorrelationId, checkReplyTopic, MAX_REQUEST_COUNT } from '../codec/request-checks.ts';
import type { Layout } from '../core/layout.ts';
import { bytesOf, expiryOf, invalidCount, timeoutOf } from './refusals.ts';
import type { BatchRequest, Delivered } from './requester.ts';
import type { Transport, TransportEvents } from './transport.ts';

export interface RequestOptions {
  readonly count: number;
  /**
   * 1 to 256 bytes (text: as UTF-8); while the ledger keeps it (26 h by default), the same one gets the same batch.
   * Default: a new one.
   */
  readonly correlationId?: string | Uint8Array;
  /** Another reply topic than the client's. The client reads it from then on; at most 8 topics in all. */
  readonly replyTopic?: string;
  /** Overrides the client's timeoutMs. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** How the reply encodes its IDs (default RANGES); the result is the same. */
  readonly encoding?: Encoding;
  /**
   * From this moment on, workers refuse the request as EXPIRED unless it has a batch already; default: never. Of
   * concurrent requests with one correlation ID, that of the first counts. It does not end the waiting: see timeoutMs.
   */
  readonly expiresAt?: Date | undefined;
}

/** A call's options, with the correlation ID that its errors name. */
export type AskedFor = RequestOptions & { readonly correlationId: string | Uint8Array };

/** Throws INVALID_COUNT, INVALID_CORRELATION_ID, INVALID_REPLY_TOPIC or MALFORMED_REQUEST. */
export function toRequest(
  options: AskedFor,
  defaults: { readonly replyTopic: string; readonly timeoutMs: number },
): BatchRequest {
  const { count, correlationId, replyTopic, timeoutMs, signal, encoding, expiresAt } = options;
  if (!(Number.isInteger(count) && count >= 1 && count <= MAX_REQUEST_COUNT)) throw invalidCount(count);
  return {
    count,
    correlationId: checkCorrelationId(bytesOf(correlationId)),
    replyTopic: checkReplyTopic(replyTopic ?? defaults.replyTopic),
    encoding: encoding ?? 'RANGES',
    expiresAtMs: expiryOf(expiresAt),
    timeoutMs: timeoutOf(timeoutMs, defaults.timeoutMs),
    signal,
  };
}

/** A batch as the workers sent it. */
export interface RequestedBatch {
  readonly correlationId: string | Uint8Array;
  readonly batch: IdBatch;
  /** The layout of its IDs, for `decode`; undefined when this version knows no layout with the batch's fingerprint. */
  readonly layout: Layout | undefined;
  /** True when the batch was decided for an earlier copy of this request. */
  readonly replayed: boolean;
}

export interface WaitForIds {
  /** Overrides the client's timeoutMs. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/**
 * Sends a request, and follows it until its reply or error. `isAhead`: it is for the buffer, and nobody waits for it
 * yet.
 */
export type FollowRequest = <R extends Delivered>(
  request: BatchRequest,
  isAhead: boolean,
  send: (request: BatchRequest) => Promise<R>,
) => Promise<R>;

/** The dependencies of a client, for tests to replace. */
export interface ClientDependencies {
  readonly runtime: Runtime;
  readonly replyTopic: string;
  readonly link: (events: TransportEvents) => Promise<Transport>;
  /** Default: requests are not followed. */
  readonly follow?: FollowRequest | undefined;
  /** Called once with a function that drops all IDs in the buffer. */
  readonly onOpen?: (dropAll: () => void) => void;
}
