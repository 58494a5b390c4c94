import { type BatchHead, headFault, readHead, timestampOf } from './batch-head.ts';
import { inflate } from './codecs.ts';
import { Cursor } from './cursor.ts';
import { AT, CODEC_MASK, FLAGS, LENGTH_END, readInt64 } from './format.ts';
import { HeaderReader, newHeaders } from './headers.ts';
import type { FetchedRecord } from './record.ts';
import { type AbortedTransaction, AbortedTransactions } from './transactions.ts';
import { damaged, UnreadableBatch } from './unreadable.ts';

/** On the records that stand for a batch that can't be read: why. */
export const UNREADABLE = 'idalloc-unreadable';

/** Records and headers read before others get their turn, about 2 ms of work. */
const ITEMS_PER_TURN = 4_000;
/** What a batch that can't be read counts as. */
const STAND_IN_ITEMS = 20;
/** A few KiB of a fetch can inflate to gigabytes. So much is held at once; what lies behind is for the next fetch. */
const MAX_HELD_BYTES = 16 * 1_048_576;

export interface DecodedBatches {
  /** Their offsets rise, from `from` on, and are below `next`. */
  readonly records: FetchedRecord[];
  /** Where to read on: behind all that was read, also where it was left out; `from` when nothing was. */
  readonly next: number;
}

/**
 * The records of a fetched partition from an offset on, whose bytes anybody may have made up. Keys, values and headers
 * are views of what was fetched. Control records are left out, and for read_committed the records of aborted
 * transactions. A last batch that the fetch has cut off is left for the next fetch.
 *
 * Nothing here depends on the input in more than a linear way, and others get their turn in between; who decodes several
 * partitions in a row lets them in between those as well. Nothing is rejected: what can't be read becomes records without
 * a value that say why, so that reading goes on behind it and nothing is left out in silence:
 *
 * - The batch's head is sound, its body is not: one record at its first and one at its last offset.
 * - Its head can't be believed, as for a wrong checksum: one at its first offset, as far as that is possible, and reading
 *   goes on with the next one. Where it ends, and so what else is in it, nobody can say.
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
      reading.standInAt(readInt64(bytes, at), 'the batch is damaged');
      break; // where the next one begins is not known
    }
    await reading.take(bytes.subarray(at, end));
    at = end;
  }
  return { records: reading.records, next: reading.next };
}

/** Goes through the batches of a partition in their order. */
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
    const fault = headFault(batch);
    if (fault !== undefined) {
      this.standInAt(readInt64(batch, AT.baseOffset), fault);
      return this.#count(STAND_IN_ITEMS);
    }
    const head = readHead(batch);
    if (!this.#isLeftOut(batch, head)) await this.#read(batch, head);
    this.next = Math.max(this.next, head.lastOffset + 1);
    await this.#count(1);
  }

  /** One record for what nobody knows the extent of. */
  standInAt(offset: number, reason: string): void {
    const at = Number.isSafeInteger(offset + 1) ? Math.max(offset, this.next) : this.next;
    this.records.push(standIn(at, Number.NaN, `${reason} (at offset ${at})`));
    this.next = at + 1;
  }

  #isLeftOut(batch: Buffer, { attributes, lastOffset }: BatchHead): boolean {
    const isControl = (attributes & FLAGS.control) !== 0;
    if ((attributes & FLAGS.transactional) !== 0 && !this.#aborted.areNone) {
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
      this.#standIn(head, error.message);
      await this.#count(STAND_IN_ITEMS);
    }
  }

  async #body(batch: Buffer, { attributes }: BatchHead): Promise<Buffer> {
    const body = batch.subarray(AT.records);
    const codec = attributes & CODEC_MASK;
    if (codec === 0) return body;
    const inflated = await inflate(codec, body, this.#nextTurn);
    this.#heldBytes += inflated.length;
    return inflated;
  }

  /** Rejects with UnreadableBatch unless the body holds the records that the head says, and nothing else. */
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

  /** One record at each end of the batch: whoever follows offsets must find both. */
  #standIn(head: BatchHead, reason: string): void {
    const { baseOffset, lastOffset, count } = head;
    const why = `${reason} (a batch of ${count} records, offsets ${baseOffset} to ${lastOffset})`;
    const timestampMs = timestampOf(head, 0);
    for (const offset of new Set([baseOffset, lastOffset])) {
      if (offset >= this.next) this.records.push(standIn(offset, timestampMs, why));
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
  cursor.byte(); // attributes, which mean nothing yet
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

function standIn(offset: number, timestampMs: number, reason: string): FetchedRecord {
  const headers = Object.assign(newHeaders(), { [UNREADABLE]: Buffer.from(reason) });
  return { offset, timestampMs, key: null, value: null, headers };
}
