import type { Bytes } from '../core/slice.ts';
import { type Long, MAX_LONG_BYTES, putLong } from './long.ts';

/** A slab has room for many messages, since nearly all are far smaller. */
const SLAB_BYTES = 64 * 1024;
const MAX_INT = 0x7fff_ffff;

/**
 * Writes Avro values, one message after another into shared memory, so that a message costs no allocation and no copy.
 * A message is begun, written field by field in the order of its schema, and ended; nothing else may be written
 * meanwhile.
 */
export class MessageWriter {
  readonly #slabBytes: number;
  /** Allocated for the first message, since most processes that read messages write none. */
  #slab = Buffer.alloc(0);
  #used = 0;
  #bytes = this.#slab;
  #start = 0;
  #at = 0;

  constructor(slabBytes = SLAB_BYTES) {
    this.#slabBytes = slabBytes;
  }

  /** `maxBytes`: an upper bound of the message's length. */
  begin(maxBytes: number): void {
    if (maxBytes > this.#slabBytes) {
      this.#bytes = Buffer.allocUnsafe(maxBytes);
      this.#start = 0;
    } else {
      if (this.#used + maxBytes > this.#slab.length) {
        this.#slab = Buffer.allocUnsafeSlow(this.#slabBytes);
        this.#used = 0;
      }
      this.#bytes = this.#slab;
      this.#start = this.#used;
    }
    this.#at = this.#start;
  }

  /** The message, a view. */
  end(): Buffer {
    if (this.#at > this.#bytes.length) throw new RangeError('a message is longer than was announced');
    if (this.#bytes === this.#slab) this.#used = this.#at;
    return this.#bytes.subarray(this.#start, this.#at);
  }

  /** Bytes as they are. */
  raw(bytes: Uint8Array): void {
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  /** Bytes of a fixed length. */
  fixed(bytes: Uint8Array, length: number): void {
    if (bytes.length !== length) throw new RangeError(`${bytes.length} bytes where ${length} are expected`);
    this.raw(bytes);
  }

  long(value: Long): void {
    this.#at = putLong(this.#bytes, this.#at, value);
  }

  int(value: number): void {
    if (!Number.isInteger(value) || Math.abs(value) > MAX_INT) throw new RangeError(`${value} is not a 32-bit integer`);
    this.long(value);
  }

  /** Bytes after their length. */
  sized(bytes: Bytes): void {
    this.long(bytes.length);
    bytes.copy(this.#bytes, this.#at);
    this.#at += bytes.length;
  }

  /** A string. */
  text(text: string): void {
    const { length } = text;
    const at = this.#at + (length < 64 ? 1 : 2); // where it starts if it is ASCII, and shorter than 8 KiB
    for (let i = 0; i < length; i += 1) {
      const code = text.charCodeAt(i);
      if (code > 0x7f) {
        this.sized(Buffer.from(text));
        return;
      }
      this.#bytes[at + i] = code;
    }
    this.long(length);
    this.#at = at + length;
  }
}

/** Upper bounds of the bytes of a value. */
export const MAX_BYTES = { long: MAX_LONG_BYTES, int: 5, text: (text: string) => 3 + 3 * text.length } as const;
