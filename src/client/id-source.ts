import type { Layout } from '../core/layout.ts';
import type { RequestedBatch, RequestOptions, WaitForIds } from './calls.ts';
import type { ClientMetrics } from './metrics.ts';
import type { Sequence } from './sequence.ts';

/**
 * Where a service gets its IDs from. IdClient is one; a service that names this type instead of the class can be given
 * any other one in its tests.
 */
export interface IdSource {
  /** Number of IDs in the buffer: a gauge. */
  readonly buffered: number;
  /** At this number of IDs in the buffer or fewer, more are requested: a gauge. */
  readonly lowWater: number;
  /**
   * The layout of the last reply's IDs, for `decode`; undefined before the first reply, or when this version does not
   * know it.
   */
  readonly layout: Layout | undefined;
  /**
   * The next ID.
   *
   * @throws IdallocError BUFFER_EMPTY; CLIENT_CLOSED.
   */
  next(): bigint;
  /**
   * The next `count` IDs, all or none.
   *
   * @throws IdallocError as next(); INVALID_COUNT above half of maxBuffered.
   */
  take(count: number): bigint[];
  /**
   * The next ID as an exact JavaScript number, in a namespace whose layout fits into 53 bits, such as `js-safe`.
   *
   * @throws IdallocError as next(); CONFIG_INVALID for any other layout, without taking an ID.
   */
  nextNumber(): number;
  /**
   * The next `count` IDs as JavaScript numbers, all or none.
   *
   * @throws IdallocError as take() and nextNumber().
   */
  takeNumbers(count: number): number[];
  /**
   * takeAsync for JavaScript numbers.
   *
   * @throws IdallocError as takeAsync; CONFIG_INVALID when the layout has larger IDs.
   */
  takeNumbersAsync(count: number, options?: WaitForIds): Promise<readonly number[]>;
  /**
   * The next `count` IDs: those of the buffer if it has that many, otherwise others that are requested for callers that
   * wait, first come, first served. A refusal that a retry may lift does not end the wait, but is its error if the time
   * ends before.
   *
   * @throws IdallocError NO_REPLY, or KAFKA_UNAVAILABLE, CONFIG_INVALID or TOPIC_INVALID if requests can't be sent;
   * QUEUE_FULL, CLIENT_CLOSED, INVALID_COUNT above half of maxBuffered; RequestRefused when the workers reject the
   * request; the signal's reason.
   */
  takeAsync(count: number, options?: WaitForIds): Promise<readonly bigint[]>;
  /**
   * Waits until the buffer holds `count` IDs, by default enough for coverSeconds.
   *
   * @throws IdallocError and the signal's reason as takeAsync.
   */
  ready(count?: number, options?: WaitForIds): Promise<void>;
  /**
   * Requests one batch, bypassing the buffer. Until a reply comes the request is resent, which never yields a second
   * batch; nor does another call with the same correlation ID after an error. A refusal that passes, such as one for a
   * quota, does not end the wait while timeoutMs has room for the next try.
   *
   * @throws RequestRefused with the workers' code; IdallocError NO_REPLY, KAFKA_UNAVAILABLE, CONFIG_INVALID,
   * QUEUE_FULL, CLIENT_CLOSED, CONFLICT, INVALID_COUNT, MALFORMED_REQUEST, INVALID_CORRELATION_ID, INVALID_REPLY_TOPIC,
   * TOPIC_INVALID; the signal's reason. They have correlationId and count.
   */
  request(options: RequestOptions): Promise<RequestedBatch>;
  /**
   * A named sequence, whose numbers follow each other without a gap. An operator creates it (`idalloc sequence
   * create`).
   *
   * @throws IdallocError MALFORMED_REQUEST for a text that is not a name.
   */
  sequence(name: string): Sequence;
  /** What the client has done since it was opened, and how it is now. Never throws. */
  metrics(): ClientMetrics;
  /**
   * Rejects all waiting calls with CLIENT_CLOSED and closes all connections. IDs in the buffer are discarded. Never
   * rejects.
   */
  close(): Promise<void>;
}
