import { readLong } from './long.ts';

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const NOTHING = Buffer.alloc(0);
/** The bits of a long in the first four bytes of its varint; a double has room for those above. */
const LOW_BYTES = 4;
const MAX_LONG_BYTES = 10;

/**
 * Reads Avro values in the order of their schema: the counterpart of MessageWriter. It accepts only what our writers
 * write, so that a value has one form: a number without needless bytes, a text of valid UTF-8. Everything else is a
 * RangeError.
 *
 * A reader of millions of messages wants a few numbers of each. So the methods that skip a value check it as strictly
 * as if it were read, make no object of it, and return where it begins; `textAt` and `bigintAt` read it from there
 * later, once everything has been checked.
 */
export class MessageReader {
  buf: Buffer = NOTHING;
  /** Where the next value begins. */
  pos = 0;

  /** Begins with the body of a message, which starts at `start` and has at most `maxBytes`. */
  begin(bytes: Buffer, start: number, maxBytes: number): void {
    const length = bytes.length - start;
    if (length > maxBytes) throw new RangeError(`${length} bytes; at most ${maxBytes} are allowed`);
    this.buf = bytes;
    this.pos = start;
  }

  /** The message ends here. */
  end(): void {
    if (this.pos !== this.buf.length) throw new RangeError('trailing data');
  }

  /** A long as a number. It is exact up to 2^53; above that it is rounded, and has the right sign. */
  long(): number {
    let byte = this.#byte();
    if (byte < 0x80) return (byte >>> 1) ^ -(byte & 1);
    const isNegative = (byte & 1) === 1;
    let low = byte & 0x7f;
    let high = 0;
    let scale = 1;
    for (let length = 2; byte > 0x7f; length += 1) {
      byte = this.#byte();
      if (length <= LOW_BYTES) low |= (byte & 0x7f) << (7 * (length - 1));
      else {
        high += (byte & 0x7f) * scale;
        scale *= 128;
      }
      if (byte === 0 || (length === MAX_LONG_BYTES && byte > 1)) throw notCanonical('number');
    }
    const magnitude = high * 2 ** 27 + (low >>> 1);
    return isNegative ? -magnitude - 1 : magnitude;
  }

  /** A long or an int within bounds. `field` names it in the error. */
  integer(field: string, min: number, max: number = Number.MAX_SAFE_INTEGER): number {
    const value = this.long();
    if (value >= min && value <= max) return value;
    throw new RangeError(`${field} ${value} is outside ${min}..${max}`);
  }

  /** A boolean. */
  flag(): boolean {
    const byte = this.#byte();
    if (byte <= 1) return byte === 1;
    throw notCanonical('boolean');
  }

  /** Skips a long; returns where it begins. */
  skipLong(): number {
    const at = this.pos;
    this.long();
    return at;
  }

  /** Skips bytes of a fixed length; returns where they begin. */
  skipFixed(length: number): number {
    const at = this.pos;
    this.pos += length;
    if (this.pos > this.buf.length) throw truncated();
    return at;
  }

  /** Skips a string; returns where it begins, with its length. */
  skipText(): number {
    const at = this.pos;
    const end = this.integer('the length of a string', 0, this.buf.length - this.pos) + this.pos;
    if (end > this.buf.length) throw truncated();
    for (let from = this.pos; from < end; from += 1) {
      if ((this.buf[from] as number) < 0x80) continue;
      if (!isUtf8(this.buf.subarray(from, end))) throw notCanonical('string');
      break;
    }
    this.pos = end;
    return at;
  }

  /** The string that begins here, with its length. Moves the reader. */
  textAt(at: number): string {
    this.pos = at;
    const length = this.long();
    return this.buf.toString('utf8', this.pos, this.pos + length);
  }

  /** The long that begins here, exactly. Moves the reader. */
  bigintAt(at: number): bigint {
    this.pos = at;
    return readLong(this);
  }

  #byte(): number {
    const byte = this.buf[this.pos];
    if (byte === undefined) throw truncated();
    this.pos += 1;
    return byte;
  }
}

function isUtf8(bytes: Buffer): boolean {
  try {
    utf8.decode(bytes);
    return true;
  } catch {
    return false; // the decoder says no more than that
  }
}

function truncated(): RangeError {
  return new RangeError('truncated');
}

function notCanonical(what: string): RangeError {
  return new RangeError(`a ${what} is not in its canonical encoding`);
}
