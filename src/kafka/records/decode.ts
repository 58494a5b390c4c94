import { returnMemory } from '../../core/slice.ts';
import { decompress } from './codecs.ts';
import { damaged, UnreadableBatch } from './cursor.ts';
import { newHeaders, RecordReader } from './fetched-record.ts';
import {
  AT,
  type BatchHead,
  CHECKED_FROM,
  CODEC_MASK,
  endOfBatch,
  FLAGS,
  headProblem,
  readHead,
  readInt64,
  timestampOf,
} from './format.ts';
import type { FetchedRecord } from './record.ts';
import { type AbortedTransaction, AbortedTransactions } from './transactions.ts';

/** Header of the placeholder records for an unreadable batch: why it can't be read. */
export const UNREADABLE = 'idalloc-unreadable';

/** Records and headers read before yielding to the event loop, about 1 ms of work. */
const ITEMS_PER_TURN = 2_000;
/** The items that an unreadable batch counts as. */
const PLACEHOLDER_ITEMS = 20;
/**
 * A few KiB of a fetch can decompress to gigabytes. One read ends after the batch with which it has decompressed this
 * much.
 */
const MAX_READ_BYTES = 4 * 1_048_576;
/** Smaller decompressed bodies may share their memory, and are not worth it. */
const LEAST_RETURNED_BYTES = 65_536;

export interface DecodedBatches {
  /** In rising order of their offsets, which are at least `from` and below `next`. */
  readonly records: FetchedRecord[];
  /** The offset to read next: after everything read, including what was skipped; `from` if nothing was read. */
  readonly next: number;
}

export interface Decoding {
  readonly fetched: { readonly records: Buffer; readonly aborted: readonly AbortedTransaction[] };
  readonly from: number;
  readonly isolation: 'read_committed' | 'read_uncommitted';
  readonly nextTurn: () => Promise<void>;
  /** Whether one record stands for each dense batch, which takes no time however many records it has. */
  readonly skipsDense?: boolean | undefined;
  /** Of a record of more bytes than this, only how many it has is read. By default all of any record is. */
  readonly longestRecord?: number | undefined;
}

/** Decodes what was fetched in one read, whatever the number of records. */
export async function decodeBatches(
  fetched: Decoding['fetched'],
  from: number,
  isolation: Decoding['isolation'],
  nextTurn: Decoding['nextTurn'],
): Promise<DecodedBatches> {
  return await new BatchDecoder({ fetched, from, isolation, nextTurn }).read(Number.POSITIVE_INFINITY);
}

/** A batch that is being read. */
interface OpenBatch {
  readonly head: BatchHead;
  readonly body: RecordReader;
  readonly bytes: Buffer;
  /** How many records were read, and the lowest offset that the next one may have. */
  count: number;
  least: number;
}

/**
 * Decodes the records of a fetched partition, starting at an offset, as many at a time as the caller has room for. The
 * bytes are untrusted: any producer may have crafted them. Keys, values and headers are views of the fetched bytes.
 * Control records are skipped, and so are the records of aborted transactions for read_committed. A last batch that is
 * cut off is left for the next fetch.
 *
 * Time is linear in the input, and the event loop gets its turn in between; a caller that decodes several partitions in
 * a row yields between them as well. Nothing is rejected: a batch that can't be read becomes records without a value
 * that contain the reason, so that reading continues after it and nothing is skipped silently:
 *
 * - The batch's head is valid, its body is not: one record at its first offset, or after those that an earlier read has
 *   returned, and one at its last.
 * - Its head is invalid, for example its checksum: one record at its first offset, as far as that is possible, and
 *   reading continues at the next offset. Where the batch ends, and so what else is in it, is unknown.
 */
export class BatchDecoder {
  readonly #bytes: Buffer;
  readonly #aborted: AbortedTransactions;
  readonly #nextTurn: () => Promise<void>;
  readonly #skipsDense: boolean;
  readonly #longestRecord: number | undefined;
  /** The offset to read next, but within an open batch that of the first record of this read. */
  #next: number;
  /** The start of the next batch in the bytes. */
  #at = 0;
  #open: OpenBatch | undefined;
  #records: FetchedRecord[] = [];
  /** Records and headers of this read, and bytes that were decompressed for it. */
  #readItems = 0;
  #readBytes = 0;
  /** Items since the event loop had its turn. */
  #items = 0;

  constructor({ fetched, from, isolation, nextTurn, skipsDense = false, longestRecord }: Decoding) {
    this.#skipsDense = skipsDense;
    this.#longestRecord = longestRecord;
    this.#next = from;
    this.#bytes = fetched.records;
    this.#aborted = new AbortedTransactions(isolation === 'read_committed' ? fetched.aborted : []);
    this.#nextTurn = nextTurn;
  }

  /** Whether nothing is left to read, but for a last batch that is cut off. */
  get isDone(): boolean {
    return this.#open === undefined && endOfBatch(this.#bytes, this.#at) === undefined;
  }

  /** Records below the offset are not needed. */
  skipTo(offset: number): void {
    this.#next = Math.max(this.#next, offset);
  }

  /** Reads on: everything, or until it has `maxItems` records and headers, the last record with all of its headers. */
  async read(maxItems: number): Promise<DecodedBatches> {
    this.#records = [];
    this.#readItems = 0;
    this.#readBytes = 0;
    while (!this.isDone) {
      if (this.#open === undefined) await this.#takeNext();
      if (this.#open !== undefined) await this.#readOpen(this.#open, maxItems);
      if (this.#readItems >= maxItems || this.#readBytes >= MAX_READ_BYTES) break;
    }
    if (this.#open !== undefined) this.#next = Math.max(this.#next, this.#open.least);
    return { records: this.#records, next: this.#next };
  }

  /** Opens the next batch, skips it, or adds placeholders for it. */
  async #takeNext(): Promise<void> {
    const end = endOfBatch(this.#bytes, this.#at) ?? this.#bytes.length;
    const isEndKnown = end > this.#at + AT.magic;
    const batch = this.#bytes.subarray(this.#at, isEndKnown ? end : undefined);
    this.#at = isEndKnown ? end : this.#bytes.length;
    const problem = isEndKnown ? headProblem(batch) : 'the batch is damaged';
    if (problem !== undefined) {
      this.#addPlaceholder(readInt64(batch, AT.baseOffset), problem);
      return this.#count(PLACEHOLDER_ITEMS);
    }
    const head = readHead(batch);
    if (this.#isLeftOut(batch, head)) return this.#passed(head);
    if (this.#skipsDense && head.isDense) return this.#skip(batch, head);
    try {
      const bytes = await this.#body(batch, head);
      const body = new RecordReader(head, bytes, this.#longestRecord);
      this.#open = { head, body, bytes, count: 0, least: head.baseOffset };
    } catch (error) {
      await this.#unreadable(head, error);
    }
  }

  /** One record for a batch whose end is unknown. */
  #addPlaceholder(offset: number, reason: string): void {
    const at = Number.isSafeInteger(offset + 1) ? Math.max(offset, this.#next) : this.#next;
    this.#add(placeholder(at, Number.NaN, `${reason} (at offset ${at})`), 0);
    this.#next = at + 1;
  }

  #isLeftOut(batch: Buffer, { attributes, lastOffset }: BatchHead): boolean {
    const isControl = (attributes & FLAGS.control) !== 0;
    if ((attributes & FLAGS.transactional) !== 0 && !this.#aborted.isEmpty) {
      const producerId = batch.readBigInt64BE(AT.producerId);
      if (isControl) this.#aborted.end({ producerId, lastOffset });
      else if (this.#aborted.includes({ producerId, lastOffset })) return true;
    }
    return isControl || lastOffset < this.#next;
  }

  /**
   * Adds one record for all of a batch, with its checksum as the value: another batch at these offsets has another one.
   */
  #skip(batch: Buffer, head: BatchHead): Promise<void> {
    const { lastOffset: offset, baseOffset, isDense } = head;
    const value = batch.subarray(AT.crc, CHECKED_FROM);
    const since = Math.max(baseOffset, this.#next);
    const timestampMs = timestampOf(head, 0);
    this.#add({ offset, timestampMs, key: null, value, headers: newHeaders(), isDense, since }, 0);
    return this.#passed(head);
  }

  async #body(batch: Buffer, { attributes }: BatchHead): Promise<Buffer> {
    const body = batch.subarray(AT.records);
    const codec = attributes & CODEC_MASK;
    if (codec === 0) return body;
    const decompressed = await decompress(codec, body, this.#nextTurn);
    this.#readBytes += decompressed.length;
    return decompressed;
  }

  /** Reads on in a batch, which is unreadable unless its body holds exactly the records that its head announces. */
  async #readOpen(open: OpenBatch, maxItems: number): Promise<void> {
    const before = this.#records.length;
    const { head, body } = open;
    try {
      for (; open.count < head.count; open.count += 1) {
        if (this.#readItems >= maxItems) return;
        const record = body.next();
        if (record.offset < open.least || record.offset > head.lastOffset) throw damaged();
        open.least = record.offset + 1;
        if (record.offset >= this.#next) this.#add(record, body.headers);
        this.#items += 1 + body.headers;
        if (this.#items >= ITEMS_PER_TURN) await this.#count(0);
      }
      if (!body.isAtEnd) throw damaged();
      const isCopy = (head.attributes & CODEC_MASK) !== 0;
      if (isCopy && !body.isInUse && open.bytes.length >= LEAST_RETURNED_BYTES) returnMemory(open.bytes);
      await this.#passed(head);
    } catch (error) {
      this.#records.length = before;
      await this.#unreadable(head, error);
    }
  }

  #add(record: FetchedRecord, headers: number): void {
    this.#records.push(record);
    this.#readItems += 1 + headers;
  }

  async #passed({ lastOffset }: BatchHead): Promise<void> {
    this.#open = undefined;
    this.#next = Math.max(this.#next, lastOffset + 1);
    await this.#count(1);
  }

  /**
   * One record at each end of what was not read of the batch, so that a reader sees no gap in the offsets at either
   * end.
   */
  async #unreadable(head: BatchHead, error: unknown): Promise<void> {
    if (!(error instanceof UnreadableBatch)) throw error;
    const { baseOffset, lastOffset, count } = head;
    const why = `${error.message} (a batch of ${count} records, offsets ${baseOffset} to ${lastOffset})`;
    const timestampMs = timestampOf(head, 0);
    for (const offset of new Set([Math.max(baseOffset, this.#next), lastOffset])) {
      if (offset <= lastOffset) this.#add(placeholder(offset, timestampMs, why), 0);
    }
    await this.#passed(head);
    await this.#count(PLACEHOLDER_ITEMS);
  }

  async #count(items: number): Promise<void> {
    this.#items += items;
    if (this.#items < ITEMS_PER_TURN) return;
    this.#items = 0;
    await this.#nextTurn();
  }
}

function placeholder(offset: number, timestampMs: number, reason: string): FetchedRecord {
  const headers = Object.assign(newHeaders(), { [UNREADABLE]: Buffer.from(reason) });
  return { offset, timestampMs, key: null, value: null, headers };
}
