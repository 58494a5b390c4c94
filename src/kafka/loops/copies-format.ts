import type { Copies, Copy } from './copies.ts';

/**
 * What members and their leader tell each other of copies of the partitions' state.
 *
 *   by a member    version int8 | [gap, end, behind] copies | [gap] standbys | [gap] warm-ups
 *   by the leader  version int8 | [gap] standbys | [gap] warm-ups
 *
 *   [x]     count, that many x; each number is unsigned, 7 bits a byte, the lowest first, bit 7 set in all but the last
 *   gap     by how much the partition is above the one before it, which at first is -1, less one
 *   end     the offset behind the last entry of the copy
 *   behind  how many offsets the log reached beyond that
 *
 * A newer version is another format. It can't be read here, no more than bytes that are cut off, run on or break the
 * order: for all of these the result is undefined.
 */
const VERSION = 1;

/** Partitions that a member keeps a copy of for others, and those among them that it is to own once that is complete. */
export interface Standing {
  readonly standbys: readonly number[];
  readonly warmups: readonly number[];
}

export interface Told extends Standing {
  readonly copies: Copies;
}

/** A copy that ends beyond its log, or has no offsets, is a copy of something else, and not told. */
export function encodeTold({ copies, standbys, warmups }: Told): Buffer {
  const isOfItsLog = ({ end, logEnd }: Copy) => end >= 0 && end <= logEnd && [end, logEnd].every(Number.isSafeInteger);
  const told = [...copies].filter(([, copy]) => isOfItsLog(copy)).sort(([one], [other]) => one - other);
  const gaps = gapsOf(told.map(([partition]) => partition));
  const fields = told.flatMap(([, { end, logEnd }], i) => [gaps[i] as number, end, logEnd - end]);
  return encoded([told.length, ...fields, ...list(standbys), ...list(warmups)]);
}

export function decodeTold(bytes: Buffer): Told | undefined {
  return decoded(bytes, (reader) => {
    const copies = reader.list((partition) => {
      const end = reader.number();
      const logEnd = end + reader.number();
      if (!Number.isSafeInteger(logEnd)) throw new RangeError('an offset is too large');
      return [partition, { end, logEnd }] as const;
    });
    return { copies: new Map(copies), ...standing(reader) };
  });
}

export function encodeStanding({ standbys, warmups }: Standing): Buffer {
  return encoded([...list(standbys), ...list(warmups)]);
}

export function decodeStanding(bytes: Buffer): Standing | undefined {
  return decoded(bytes, standing);
}

function standing(reader: Reader): Standing {
  const standbys = reader.list((partition) => partition);
  return { standbys, warmups: reader.list((partition) => partition) };
}

function list(partitions: readonly number[]): number[] {
  return [partitions.length, ...gapsOf(partitions.toSorted((one, other) => one - other))];
}

function gapsOf(rising: readonly number[]): number[] {
  return rising.map((partition, i) => partition - (rising[i - 1] ?? -1) - 1);
}

function encoded(numbers: readonly number[]): Buffer {
  const bytes: number[] = [VERSION];
  for (const number of numbers) {
    let left = number;
    for (; left >= 0x80; left = Math.floor(left / 0x80)) bytes.push((left % 0x80) + 0x80);
    bytes.push(left);
  }
  return Buffer.from(bytes);
}

function decoded<T>(bytes: Buffer, read: (reader: Reader) => T): T | undefined {
  if (bytes[0] !== VERSION) return undefined;
  const reader = new Reader(bytes);
  try {
    const value = read(reader);
    return reader.isAtEnd ? value : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

const MAX_PARTITION = 2 ** 31 - 1;
/** Eight bytes have room for every exact number. */
const MAX_SCALE = 0x80 ** 7;

/** Behind the version. What only claims to be long ends with the bytes, since each item takes some. */
class Reader {
  readonly #bytes: Buffer;
  #at = 1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  number(): number {
    let value = 0;
    for (let scale = 1; scale <= MAX_SCALE; scale *= 0x80) {
      const byte = this.#bytes[this.#at];
      if (byte === undefined) throw new RangeError('a number is cut off');
      this.#at += 1;
      value += (byte % 0x80) * scale;
      if (byte < 0x80) return value;
    }
    throw new RangeError('a number takes too many bytes');
  }

  list<T>(read: (partition: number) => T): T[] {
    const items: T[] = [];
    let partition = -1;
    for (let left = this.number(); left > 0; left -= 1) {
      partition += this.number() + 1;
      if (partition > MAX_PARTITION) throw new RangeError('a partition is out of range');
      items.push(read(partition));
    }
    return items;
  }
}
