/** Bytes that can be written somewhere else: a Buffer is such, and so is what is only encoded when it is written. */
export interface Bytes {
  readonly length: number;
  /** Writes all of them to `target`, from the index `at` on. */
  copy(target: Uint8Array, at: number): unknown;
}

/** The same bytes, all of them written. */
export function bufferOf(bytes: Bytes): Buffer {
  if (bytes instanceof Buffer) return bytes;
  const buffer = Buffer.allocUnsafe(bytes.length);
  bytes.copy(buffer, 0);
  return buffer;
}

/**
 * Bytes within other bytes. Where a view would be made for each of millions of requests and dropped at once, this is a
 * tenth of its cost: the collector of garbage knows it as three numbers, a view as a piece of memory.
 */
export class Slice implements Bytes {
  readonly bytes: Buffer;
  readonly at: number;
  readonly length: number;

  constructor(bytes: Buffer, at: number, length: number) {
    this.bytes = bytes;
    this.at = at;
    this.length = length;
  }

  static of(bytes: Buffer): Slice {
    return new Slice(bytes, 0, bytes.length);
  }

  /** The bytes as a view. */
  view(): Buffer {
    return this.bytes.subarray(this.at, this.at + this.length);
  }

  toString(encoding: BufferEncoding = 'utf8'): string {
    return this.bytes.toString(encoding, this.at, this.at + this.length);
  }

  /** In a loop, since IDs are short: a call of the platform takes longer than 60 bytes of it. */
  copy(target: Uint8Array, at: number): void {
    const { bytes, at: from, length } = this;
    for (let i = 0; i < length; i += 1) target[at + i] = bytes[from + i] as number;
  }

  equals({ bytes, at, length }: Slice): boolean {
    return length === this.length && isSame(this.bytes, this.at, bytes, at, length);
  }
}

/** Whether `length` bytes from an index on are those of other bytes from another index on. */
export function isSame(one: Uint8Array, at: number, other: Uint8Array, otherAt: number, length: number): boolean {
  for (let i = 0; i < length; i += 1) if (one[at + i] !== other[otherAt + i]) return false;
  return true;
}

/**
 * Returns the memory of bytes that have it for themselves, at once: they are empty from then on. V8 would wait for a
 * collection, and such memory counts as growth of the heap: it makes V8 collect all of that, however small it is.
 */
export function returnMemory({ buffer }: Uint8Array): void {
  const { transfer } = buffer as { transfer?(bytes: number): ArrayBufferLike }; // Node has it from 22 on
  transfer?.call(buffer, 0);
}
