/** A record batch that can never be read, with the reason. */
export class UnreadableBatch extends Error {}

export function damaged(options?: ErrorOptions): UnreadableBatch {
  return new UnreadableBatch('the batch is damaged', options);
}

/** Beyond this shift only a bigint is exact. */
const MAX_EXACT_SHIFT = 49;

/** Reads fields one after another. A read past the end throws UnreadableBatch. */
export class Cursor {
  readonly bytes: Buffer;
  at: number;

  constructor(bytes: Buffer, at = 0) {
    this.bytes = bytes;
    this.at = at;
  }

  get length(): number {
    return this.bytes.length;
  }

  byte(): number {
    const byte = this.bytes[this.at];
    if (byte === undefined) throw damaged();
    this.at += 1;
    return byte;
  }

  /** Zigzag, of at most 32 bits. */
  varint(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return (value >>> 1) ^ -(value & 1);
    }
    throw damaged();
  }

  /** Zigzag, of at most 64 bits; a bigint where it takes more than 49 of them. */
  varlong(): number | bigint {
    const start = this.at;
    let value = 0;
    for (let shift = 0, scale = 1; shift < MAX_EXACT_SHIFT; shift += 7, scale *= 0x80) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    }
    this.at = start;
    return this.#longVarlong();
  }

  /** A view, not a copy; null for the length -1. */
  sized(): Buffer | null {
    const length = this.varint();
    if (length === -1) return null;
    const start = this.at;
    if (length < 0 || start + length > this.bytes.length) throw damaged();
    this.at = start + length;
    return this.bytes.subarray(start, this.at);
  }

  /** Skips what `sized` would return. */
  skipSized(): void {
    const length = this.varint();
    if (length === -1) return;
    const end = this.at + length;
    if (length < 0 || end > this.bytes.length) throw damaged();
    this.at = end;
  }

  /** Skips these bytes if they come next. */
  skip(expected: Buffer): boolean {
    const start = this.at;
    for (let i = 0; i < expected.length; i += 1) if (this.bytes[start + i] !== expected[i]) return false;
    this.at = start + expected.length;
    return true;
  }

  /** A view of the bytes read since `start`. */
  since(start: number): Buffer {
    return this.bytes.subarray(start, this.at);
  }

  #longVarlong(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, (value >> 1n) ^ -(value & 1n));
    }
    throw damaged();
  }
}
