import type { NumberRun } from '../core/sequence.ts';
import { decodeLedgerEntry, LEDGER_ENTRY_HEADER } from './ledger-entry.ts';
import type { RecordHeaders } from './request-headers.ts';
import { type LedgerStatement, MAX_FORMAT_CHARS, RENEWAL, SEQUENCE_ENTRY_HEADER } from './sequence-entry.ts';

/** The state of the index of an entry's writer. */
interface WriterPosition {
  readonly end: number;
  readonly through: number;
}

/** What is known of the time of an entry besides the broker's. */
interface WriterTime {
  /** Of a batch of IDs: when its writer allocated them, by a guarded clock. */
  readonly batch?: { readonly generatedAtMs: number } | undefined;
}

/**
 * The part of an entry that the index needs: the state of its writer's index, the offset of its request, when its IDs
 * were allocated, and what a sequence becomes.
 */
export type LedgerPosition = WriterPosition &
  WriterTime &
  (
    | { readonly kind?: 'batch' | 'marker'; readonly requestOffset?: number | undefined; readonly at?: undefined }
    | ({ readonly kind: 'numbers'; readonly requestOffset: number; readonly at: number } & NumberRun)
    | ({ readonly requestOffset?: undefined } & Omit<LedgerStatement, keyof WriterPosition>)
  );

/**
 * Whether a record at this offset counts: one of a sequence only where it was written for, every other one anywhere.
 */
export function countsAt({ at }: { readonly end: number; readonly at?: number | undefined }, offset: number): boolean {
  return at === undefined || at === RENEWAL || at === offset;
}

/**
 * Whether a record of a sequence at this offset changes it: it counts there, and is no renewal, which repeats numbers.
 */
export function changesSequence({ at }: { readonly at: number }, offset: number): boolean {
  return at === offset;
}

/**
 * Reads the position from an entry's value, and from the headers of a statement. Throws LEDGER_UNREADABLE for exactly
 * the entries for which decodeLedgerEntry does.
 *
 * A restore reads millions of entries and needs only this. So the fields are scanned without creating objects, several
 * times as fast as decoding; a value with anything unusual is decoded instead.
 */
export function readLedgerPosition(value: Buffer, headers?: RecordHeaders): LedgerPosition {
  const walked = new Walk(value).entry();
  if (walked !== undefined) return walked;
  return decodeLedgerEntry(value, headers);
}

/** Values and numbers with more bytes than these are left to the decoder. */
const MAX_WALKED_BYTES = 16 * 1024;
/** 48 bits with the sign: arithmetic on them is exact. */
const NUMBER_BYTES = 7;
const INT_BYTES = 4;
/** Below 2^62: plus MAX_COUNT steps still below 2^63. */
const ID_BYTES = 9;
const STEP_BYTES = 5;
const MAX_COUNT = 100_000;
/** Sums up to here are exact. */
const MAX_WALKED_NUMBER = 2 ** 52;

/** The fields of `schemas/ledger-entry.avsc` and `schemas/ledger-sequence.avsc`, in their order. */
class Walk {
  readonly #bytes: Buffer;
  #at = 0;
  #error = false;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  /** The position, if decodeLedgerEntry would certainly accept the value. */
  entry(): LedgerPosition | undefined {
    if (this.#bytes.length > MAX_WALKED_BYTES) return undefined;
    if (SEQUENCE_ENTRY_HEADER.every((byte, at) => this.#bytes[at] === byte)) return this.#numbers();
    this.#header();
    const end = this.#long(NUMBER_BYTES, 0);
    const through = this.#long(NUMBER_BYTES, -1);
    const branch = this.#long(1, 0);
    const decision = branch === 1 ? this.#batch() : undefined;
    if (this.#error || branch > 1 || this.#at !== this.#bytes.length) return undefined;
    return { end, through, ...decision };
  }

  #header(): void {
    for (const byte of LEDGER_ENTRY_HEADER) if (this.#bytes[this.#at++] !== byte) this.#error = true;
  }

  #batch(): { readonly requestOffset: number; readonly batch: { readonly generatedAtMs: number } } {
    this.#skip(16); // request_hash
    const count = this.#long(INT_BYTES, 1, MAX_COUNT);
    this.#ascii();
    const requestOffset = this.#long(NUMBER_BYTES, 0);
    this.#long(1, 0, 1); // framing
    this.#skip(8); // schema_fingerprint
    if (this.#ranges() !== count) this.#error = true;
    this.#long(STEP_BYTES, 1);
    this.#long(INT_BYTES); // datacenter_id
    this.#long(INT_BYTES); // worker_id
    this.#long(ID_BYTES); // fence
    this.#long(NUMBER_BYTES); // epoch
    this.#skip(8); // layout_fingerprint
    const generatedAtMs = this.#long(NUMBER_BYTES, 0);
    return { requestOffset, batch: { generatedAtMs } };
  }

  /** A statement is rare, and left to the decoder. */
  #numbers(): LedgerPosition | undefined {
    this.#skip(SEQUENCE_ENTRY_HEADER.length);
    const end = this.#long(NUMBER_BYTES, 0);
    const through = this.#long(NUMBER_BYTES, -1);
    const at = this.#long(NUMBER_BYTES, RENEWAL);
    this.#long(1, 0, 0); // the branch
    this.#skip(16); // request_hash
    const count = this.#long(INT_BYTES, 1);
    this.#ascii();
    const requestOffset = this.#long(NUMBER_BYTES, 0);
    this.#long(1, 0, 1); // framing
    this.#skip(8); // schema_fingerprint
    const first = this.#long(NUMBER_BYTES, 0);
    const step = this.#long(STEP_BYTES, 1);
    const isShort = this.#ascii() <= MAX_FORMAT_CHARS;
    const isWhole = isShort && first + (count - 1) * step <= MAX_WALKED_NUMBER && this.#at === this.#bytes.length;
    return isWhole && !this.#error
      ? { kind: 'numbers', end, through, at, requestOffset, first, count, step }
      : undefined;
  }

  /** One block of ranges, as our encoder writes them; returns their number of IDs. */
  #ranges(): number {
    let total = 0;
    for (let left = this.#long(2, 0); left > 0 && !this.#error; left--) {
      this.#long(ID_BYTES, 0);
      total += this.#long(INT_BYTES, 1, MAX_COUNT);
    }
    this.#long(1, 0, 0);
    return total;
  }

  /** The length of a string; one with non-ASCII characters is left to the decoder. */
  #ascii(): number {
    const length = this.#long(2, 0);
    for (let left = length; left > 0; left--) {
      const byte = this.#bytes[this.#at++] ?? 0x80;
      if (byte > 0x7f) {
        this.#error = true;
        return length;
      }
    }
    return length;
  }

  #skip(bytes: number): void {
    this.#at += bytes;
  }

  /**
   * A number within bounds, in the fewest bytes and at most `most` of them; anything else sets #error. Above 2^53 it is
   * rounded, but has its sign.
   */
  #long(most: number, min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY): number {
    const negative = ((this.#bytes[this.#at] ?? 0) & 1) === 1;
    let zigzag = 0;
    let scale = 1;
    for (let length = 1; length <= most; length++) {
      const byte = this.#bytes[this.#at++] ?? 0x80;
      zigzag += (byte & 0x7f) * scale;
      scale *= 128;
      if (byte > 0x7f) continue;
      const value = negative ? -(zigzag + 1) / 2 : zigzag / 2;
      if ((byte !== 0 || length === 1) && value >= min && value <= max) return value;
      break;
    }
    this.#error = true;
    return 0;
  }
}
