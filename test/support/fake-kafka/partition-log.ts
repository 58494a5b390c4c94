import { headOf, isCommitMarker, offsetAtTime, stamped } from './batches.ts';

interface StoredBatch {
  readonly base: number;
  readonly last: number;
  readonly bytes: Buffer;
}

/** An aborted transaction: its producer, its first offset, and the offset of its marker. */
export interface Aborted {
  readonly producerId: bigint;
  readonly firstOffset: number;
  readonly markerOffset: number;
}

/**
 * The record batches of one partition, as bytes. Offsets are dense; retention removes the head, truncation the tail.
 */
export class PartitionLog {
  #start = 0;
  #batches: StoredBatch[] = [];
  #end = 0;
  #aborted: Aborted[] = [];
  /** Open transactions by producer, with their first offsets. */
  readonly #open = new Map<bigint, number>();

  get start(): number {
    return this.#start;
  }

  get end(): number {
    return this.#end;
  }

  /** The offset below which no transaction is open. */
  get stableEnd(): number {
    return Math.min(this.#end, ...this.#open.values());
  }

  /** The producers of open transactions. */
  get open(): readonly bigint[] {
    return [...this.#open.keys()];
  }

  /** Batches with offsets in [from, below), for tests; all of them by default. */
  batches(from = 0, below = Number.POSITIVE_INFINITY): readonly Buffer[] {
    return this.#batches.filter(({ base, last }) => base < below && last >= from).map(({ bytes }) => bytes);
  }

  /** Takes over all that another log has, as it is: the same records at the same offsets. */
  copy(from: PartitionLog): void {
    this.#start = from.#start;
    this.#end = from.#end;
    this.#batches = [...from.#batches];
    this.#aborted = [...from.#aborted];
    for (const [producerId, first] of from.#open) this.#open.set(producerId, first);
  }

  /** Stores a batch at the end; with the broker's timestamp for LogAppendTime. Returns its first offset. */
  append(batch: Buffer, leaderEpoch: number, appendedAtMs?: number): number {
    const bytes = stamped(batch, this.#end, leaderEpoch, appendedAtMs);
    this.#keep(bytes);
    return headOf(bytes).baseOffset;
  }

  /**
   * The bytes of the batches from the one with offset `from` to the one that ends below `below`: at most `maxBytes`,
   * where the last may be truncated, but not the first. If the first must be there it is, whatever its size.
   */
  read(from: number, below: number, maxBytes: number, isFirstWhole: boolean): Buffer {
    const found: Buffer[] = [];
    let left = maxBytes;
    for (let at = this.#indexOf(from); at < this.#batches.length; at += 1) {
      const { last, bytes } = this.#batches[at] as StoredBatch;
      const isWhole = bytes.length <= left || (isFirstWhole && found.length === 0);
      if (last >= below || (!isWhole && (left <= 0 || found.length === 0))) break;
      found.push(isWhole ? bytes : bytes.subarray(0, left));
      left -= bytes.length;
    }
    return found.length === 1 ? (found[0] as Buffer) : Buffer.concat(found);
  }

  /** Aborted transactions with records in [from, below). */
  aborted(from: number, below: number): readonly Aborted[] {
    return this.#aborted.filter(({ firstOffset, markerOffset }) => firstOffset < below && markerOffset >= from);
  }

  /** The first record that is not older than the time; undefined if all are. */
  offsetAt(timestampMs: number): number | undefined {
    for (const { bytes } of this.#batches) {
      const offset = offsetAtTime(bytes, timestampMs);
      if (offset !== undefined) return Math.max(offset, this.#start);
    }
    return undefined;
  }

  /** Drops everything below an offset, except the batch that contains it, as on a disk. */
  trim(start: number): void {
    this.#start = Math.max(this.#start, Math.min(start, this.#end));
    this.#batches = this.#batches.filter(({ last }) => last >= this.#start);
    this.#aborted = this.#aborted.filter(({ markerOffset }) => markerOffset >= this.#start);
  }

  /** Loses everything from an offset on, including the whole batch that contains it. */
  truncate(from: number): void {
    const lost = this.#batches.find(({ last }) => last >= from);
    if (lost === undefined) return;
    const kept = this.#batches.filter(({ last }) => last < from);
    this.#batches = [];
    this.#aborted = [];
    this.#open.clear();
    this.#end = Math.max(this.#start, lost.base);
    for (const { bytes } of kept) this.#keep(bytes);
  }

  #keep(bytes: Buffer): void {
    const { baseOffset, lastOffset, producerId, isTransactional, isControl } = headOf(bytes);
    this.#batches.push({ base: baseOffset, last: lastOffset, bytes });
    this.#end = lastOffset + 1;
    if (!isTransactional) return;
    const first = this.#open.get(producerId);
    if (!isControl) this.#open.set(producerId, first ?? baseOffset);
    else {
      this.#open.delete(producerId);
      if (first === undefined || isCommitMarker(bytes)) return;
      this.#aborted.push({ producerId, firstOffset: first, markerOffset: baseOffset });
    }
  }

  /** The index of the first batch that ends at an offset or after it. */
  #indexOf(offset: number): number {
    let [low, high] = [0, this.#batches.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#batches[middle] as StoredBatch).last < offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
