import { type BatchHead, headProblem, readHead, timestampOf } from './batch-head.ts';
import { decompress } from './codecs.ts';
import { Cursor } from './cursor.ts';
import { AT, CODEC_MASK, FLAGS, LENGTH_END, readInt64 } from './format.ts';
import { HeaderReader, newHeaders } from './headers.ts';
import type { FetchedRecord } from './record.ts';
import { type AbortedTransaction, AbortedTransactions } from './transactions.ts';
import { damaged, UnreadableBatch } from './unreadable.ts';

/** Header of the placeholder records for an unreadable batch: why it can't be read. */
export const UNREADABLE = 'idalloc-unreadable';

/** Records and headers read before yielding to the event loop, about 2 ms of work. */
const ITEMS_PER_TURN = 4_000;
/** The items that an unreadable batch counts as. */
const PLACEHOLDER_ITEMS = 20;
/** A few KiB of a fetch can decompress to gigabytes. At most this much is held; the rest is left for the next fetch. */
const MAX_HELD_BYTES = 16 * 1_048_576;

export interface DecodedBatches {
  /** In rising order of their offsets, which are at least `from` and below `next`. */
  readonly records: FetchedRecord[];
  /** The offset to read next: after everything read, including what was skipped; `from` if nothing was read. */
  readonly next: number;
}

/**
 * Decodes the records of a fetched partition, starting at an offset. The bytes are untrusted: any producer may have
 * crafted them. Keys, values and headers are views of the fetched bytes. Control records are skipped, and so are the
 * records of aborted transactions for read_committed. A last batch that is cut off is left for the next fetch.
 *
 * Time is linear in the input, and the event loop gets its turn in between; a caller that decodes several partitions in
 * a row yields between them as well. Nothing is rejected: a batch that can't be read becomes records without a value
 * that contain the reason, so that reading continues after it and nothing is skipped silently:
 *
 * - The batch's head is valid, its body is not: one record at its first and one at its last offset.
 * - Its head is invalid, for example its checksum: one record at its first offset, as far as that is possible, and
 *   reading continues at the next offset. Where the batch ends, and so what else is in it, is unknown.
 */
export async function decodeBatches(
  fetched: { readonly records: Buffer; readonly aborted: readonly AbortedTransaction[] },
  from: number,
  isolation: 'read_committed' | 'read_uncommitted',
  nextTurn: () => Promise<void>,
): Promise<DecodedBatches> {
  const reading = new Reading(from, isolation === 'read_committed' ? fetched.aborted : [], nextTurn);
  const bytes = fetched.records;
  for (let at = 0; at + LENGTH_END <= bytes.length && !reading.isFull; ) {
    const end = at + LENGTH_END + bytes.readInt32BE(at + AT.length);
    if (end > bytes.length) break;
    if (end <= at + AT.magic) {
      reading.placeholderAt(readInt64(bytes, at), 'the batch is damaged');
      break; // where the next batch starts is unknown
    }
    await reading.take(bytes.subarray(at, end));
    at = end;
  }
  return { records: reading.records, next: reading.next };
}

/** Reads the batches of a partition in order. */
class Reading {
  readonly records: FetchedRecord[] = [];
  next: number;
  readonly #aborted: AbortedTransactions;
  readonly #nextTurn: () => Promise<void>;
  #items = 0;
  #heldBytes = 0;

  constructor(from: number, aborted: readonly AbortedTransaction[], nextTurn: () => Promise<void>) {
    this.next = from;
    this.#aborted = new AbortedTransactions(aborted);
    this.#nextTurn = nextTurn;
  }

  get isFull(): boolean {
    return this.#heldBytes >= MAX_HELD_BYTES;
  }

  async take(batch: Buffer): Promise<void> {
    const problem = headProblem(batch);
    if (problem !== undefined) {
      this.placeholderAt(readInt64(batch, AT.baseOffset), problem);
      return this.#count(PLACEHOLDER_ITEMS);
    }
    const head = readHead(batch);
    if (!this.#isLeftOut(batch, head)) await this.#read(batch, head);
    this.next = Math.max(this.next, head.lastOffset + 1);
    await this.#count(1);
  }

  /** One record for a batch whose end is unknown. */
  placeholderAt(offset: number, reason: string): void {
    const at = Number.isSafeInteger(offset + 1) ? Math.max(offset, this.next) : this.next;
    this.records.push(placeholder(at, Number.NaN, `${reason} (at offset ${at})`));
    this.next = at + 1;
  }

  #isLeftOut(batch: Buffer, { attributes, lastOffset }: BatchHead): boolean {
    const isControl = (attributes & FLAGS.control) !== 0;
    if ((attributes & FLAGS.transactional) !== 0 && !this.#aborted.isEmpty) {
      const producerId = batch.readBigInt64BE(AT.producerId);
      if (isControl) this.#aborted.end({ producerId, lastOffset });
      else if (this.#aborted.includes({ producerId, lastOffset })) return true;
    }
    return isControl || lastOffset < this.next;
  }

  async #read(batch: Buffer, head: BatchHead): Promise<void> {
    const before = this.records.length;
    try {
      await this.#readRecords(await this.#body(batch, head), head);
    } catch (error) {
      if (!(error instanceof UnreadableBatch)) throw error;
      this.records.length = before;
      this.#addPlaceholders(head, error.message);
      await this.#count(PLACEHOLDER_ITEMS);
    }
  }

  async #body(batch: Buffer, { attributes }: BatchHead): Promise<Buffer> {
    const body = batch.subarray(AT.records);
    const codec = attributes & CODEC_MASK;
    if (codec === 0) return body;
    const decompressed = await decompress(codec, body, this.#nextTurn);
    this.#heldBytes += decompressed.length;
    return decompressed;
  }

  /** Rejects with UnreadableBatch unless the body holds exactly the records that the head announces. */
  async #readRecords(body: Buffer, head: BatchHead): Promise<void> {
    const cursor = new Cursor(body);
    const headers = new HeaderReader(cursor);
    let least = head.baseOffset;
    for (let i = 0; i < head.count; i += 1) {
      const record = readRecord(cursor, headers, head);
      if (record.offset < least || record.offset > head.lastOffset) throw damaged();
      least = record.offset + 1;
      if (record.offset >= this.next) this.records.push(record);
      this.#items += 1 + headers.read;
      if (this.#items >= ITEMS_PER_TURN) await this.#count(0);
    }
    if (cursor.at !== body.length) throw damaged();
  }

  /** One record at each end of the batch, so that a reader sees no gap in the offsets at either end. */
  #addPlaceholders(head: BatchHead, reason: string): void {
    const { baseOffset, lastOffset, count } = head;
    const why = `${reason} (a batch of ${count} records, offsets ${baseOffset} to ${lastOffset})`;
    const timestampMs = timestampOf(head, 0);
    for (const offset of new Set([baseOffset, lastOffset])) {
      if (offset >= this.next) this.records.push(placeholder(offset, timestampMs, why));
    }
  }

  async #count(items: number): Promise<void> {
    this.#items += items;
    if (this.#items < ITEMS_PER_TURN) return;
    this.#items = 0;
    await this.#nextTurn();
  }
}

/**
 * Record: length varint, attributes int8, timestamp delta varlong, offset delta varint, key bytes, value bytes, headers;
 * bytes: length varint, -1 for null; headers: count varint, then name and value as bytes.
 */
function readRecord(cursor: Cursor, headers: HeaderReader, head: BatchHead): FetchedRecord {
  const length = cursor.varint();
  const end = cursor.at + length;
  if (length < 0 || end > cursor.length) throw damaged();
  cursor.byte(); // attributes, still unused
  const timestampMs = timestampOf(head, cursor.varlong());
  const offset = head.baseOffset + cursor.varint();
  const record = {
    offset,
    timestampMs,
    key: cursor.sized(),
    value: cursor.sized(),
    headers: headers.headers(),
  };
  if (headers.isCut ? cursor.at > end : cursor.at !== end) throw damaged();
  cursor.at = end;
  return record;
}

function placeholder(offset: number, timestampMs: number, reason: string): FetchedRecord {
  const headers = Object.assign(newHeaders(), { [UNREADABLE]: Buffer.from(reason) });
  return { offset, timestampMs, key: null, value: null, headers };
}
