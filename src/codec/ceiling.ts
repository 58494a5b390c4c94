import { type Ticks, ticks } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/**
 * A worker ID's ceiling: the first tick that no worker may use yet, and the nonce of the attempt that wrote it, by
 * which its writer recognises it.
 *
 *   ceiling = ticks " " nonce;  ticks: decimal, no leading zero, below 2^53;  nonce: 1..64 of A-Z a-z 0-9 _ -
 */
export interface Ceiling {
  /** Whole ticks since the layout's epoch, from 0 up. */
  readonly ticks: Ticks;
  readonly nonce: string;
}

const CEILING = /^(0|[1-9][0-9]{0,15}) ([A-Za-z0-9_-]{1,64})$/;
const MAX_CEILING_BYTES = 16 + 1 + 64;

/** Encodes a ceiling. RangeError for one that decodeCeiling would reject. */
export function encodeCeiling(ceiling: Ceiling): Buffer {
  const text = `${ceiling.ticks} ${ceiling.nonce}`;
  if (parse(text) === undefined) throw new RangeError(`${JSON.stringify(text)} is not a ceiling`);
  return Buffer.from(text, 'latin1');
}

/**
 * Decodes the value of a ceiling's key. Throws NAMESPACE_DAMAGED if it is malformed: that must never count as "none
 * yet".
 */
export function decodeCeiling(value: Buffer): Ceiling {
  const ceiling = value.length <= MAX_CEILING_BYTES ? parse(value.toString('latin1')) : undefined;
  if (ceiling !== undefined) return ceiling;
  throw new IdallocError(
    'NAMESPACE_DAMAGED',
    `a ceiling of ${value.length} bytes is not of the form "<ticks> <nonce>": ` +
      'something else wrote to the namespace; restore the ceiling above every ID that was issued',
  );
}

function parse(text: string): Ceiling | undefined {
  const [, digits, nonce] = CEILING.exec(text) ?? [];
  if (digits === undefined || nonce === undefined) return undefined;
  const value = Number(digits);
  return Number.isSafeInteger(value) ? { ticks: ticks(value), nonce } : undefined;
}
