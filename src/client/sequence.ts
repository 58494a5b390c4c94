import type { Numbers } from '../codec/sequence-entry.ts';
import { formatNumber, numbersOf } from '../codec/sequence-format.ts';
import type { RequestOptions } from './calls.ts';

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
  /** Each number, in order. */
  numbers(): number[];
  /** Each number in the format of the sequence. Throws RangeError for a format that this version does not know. */
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

export function sequenceNumbers(
  about: Pick<SequenceNumbers, 'correlationId' | 'sequence' | 'replayed'>,
  run: Numbers,
): SequenceNumbers {
  const numbers = () => numbersOf(run);
  return { ...about, ...run, numbers, texts: () => numbers().map((number) => formatNumber(run.format, number)) };
}
