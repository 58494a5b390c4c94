import type { IdBatch } from '../codec/id-batch.ts';
import type { Encoding } from '../codec/id-request.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import { formatNumber, numbersOf } from '../codec/sequence-format.ts';
import type { Layout } from '../core/layout.ts';
import type { ClientMetrics } from './metrics.ts';

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
   * Rejects all waiting calls with CLIENT_CLOSED and closes all connections. IDs in the buffer are discarded.
   * Never rejects.
   */
  close(): Promise<void>;
}

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

export interface SequenceTakeOptions extends Omit<RequestOptions, 'count' | 'encoding' | 'correlationId'> {
  /**
   * 1 to 256 bytes (text: as UTF-8), such as the ID of the order that is invoiced. The same one gets the same numbers,
   * so keep it with the document until they are in use: with another one, numbers that were given out and lost would be
   * a gap.
   */
  readonly correlationId: string | Uint8Array;
}

/** Numbers of a sequence, which follow all that were given out before. */
export interface SequenceNumbers extends Numbers {
  readonly correlationId: string | Uint8Array;
  readonly sequence: string;
  /** True when they were given out for an earlier copy of this request. */
  readonly replayed: boolean;
  /** Each number, in order. Never throws. */
  numbers(): number[];
  /**
   * Each number in the format of the sequence.
   *
   * @throws RangeError for a format that this version does not know.
   */
  texts(): string[];
}

/** A named sequence, for numbers without a gap. */
export interface Sequence {
  readonly name: string;
  /**
   * Requests the next numbers, and waits for them.
   *
   * @throws IdallocError as `request` does; RequestRefused with UNKNOWN_SEQUENCE, SEQUENCE_CLOSED, SEQUENCE_EXHAUSTED
   * or SEQUENCE_STOPPED; INVALID_CORRELATION_ID without a correlation ID.
   */
  take(count: number, options: SequenceTakeOptions): Promise<SequenceNumbers>;
}

/** The numbers of a reply as a caller gets them. Never throws. */
export function sequenceNumbers(
  about: Pick<SequenceNumbers, 'correlationId' | 'sequence' | 'replayed'>,
  run: Numbers,
): SequenceNumbers {
  const numbers = () => numbersOf(run);
  return { ...about, ...run, numbers, texts: () => numbers().map((number) => formatNumber(run.format, number)) };
}
