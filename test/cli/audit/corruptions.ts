import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import type { IdBatch } from '../../../src/codec/id-batch.ts';
import { decodeIdReply, encodeIdReply, type IdReply } from '../../../src/codec/id-reply.ts';
import { decodeLedgerEntry, encodeLedgerEntry, type LedgerBatchEntry } from '../../../src/codec/ledger-entry.ts';
import { readLedgerKey } from '../../../src/codec/ledger-key.ts';
import { DEFAULT_HEADER_NAMES, type RecordHeaders } from '../../../src/codec/request-headers.ts';
import type { LedgerNumbers, LedgerStatement, Numbers } from '../../../src/codec/sequence-entry.ts';
import { decompose } from '../../../src/core/layout.ts';
import type { FinalTopics } from '../../sim/final-topics.ts';
import { FINE, isReplyTopic, LEDGER, REQUESTS } from '../../sim/setting.ts';

/** The records of one request that was sent, decided and answered once. */
interface Told<Entry> {
  readonly request: TopicRecord;
  readonly record: TopicRecord;
  readonly entry: Entry;
  readonly reply: TopicRecord;
}

/** A history that can be changed: its records are copies. */
export class Corruptible {
  readonly records: TopicRecord[];
  logs: FinalTopics['logs'];
  readonly nowMs: number;

  constructor({ records, logs, nowMs }: FinalTopics) {
    this.records = records.map((record) => ({ ...record }));
    this.logs = logs;
    this.nowMs = nowMs;
  }

  /** Requests for IDs, each alone under its correlation ID. */
  get batches(): readonly Told<LedgerBatchEntry>[] {
    return this.#told().flatMap(({ entry, ...rest }) => (entry.kind === 'batch' ? [{ ...rest, entry }] : []));
  }

  /** Likewise for numbers. */
  get numbers(): readonly Told<LedgerNumbers>[] {
    return this.#told().flatMap(({ entry, ...rest }) => (entry.kind === 'numbers' ? [{ ...rest, entry }] : []));
  }

  get statements(): readonly { readonly record: TopicRecord; readonly entry: LedgerStatement }[] {
    return this.#ledger().flatMap((record) => {
      const entry = decodeLedgerEntry(record.value as Buffer, record.headers as RecordHeaders);
      return entry.kind === 'statement' ? [{ record, entry }] : [];
    });
  }

  /** The nth one; the last for a negative number. */
  static nth<T>(all: readonly T[], n: number): T {
    const found = all.at(n);
    if (found === undefined) throw new RangeError(`there are only ${all.length}`);
    return found;
  }

  change(record: TopicRecord, fields: Partial<TopicRecord>): void {
    const at = this.records.indexOf(record);
    if (at < 0) throw new RangeError('the record is not there');
    this.records[at] = { ...record, ...fields };
  }

  remove(...gone: readonly TopicRecord[]): void {
    for (const record of gone) this.records.splice(this.records.indexOf(record), 1);
  }

  /** Appends a record to the end of a partition. */
  append(record: TopicRecord, fields: Partial<TopicRecord>): void {
    const added = { ...record, ...fields };
    const log = this.logs.ledger.find(({ topic, partition }) => topic === added.topic && partition === added.partition);
    if (log === undefined) throw new RangeError('only the ledger is appended to');
    this.records.push({ ...added, offset: log.to });
    const ledger = this.logs.ledger.map((span) => (span === log ? { ...span, to: span.to + 1 } : span));
    this.logs = { ...this.logs, ledger };
  }

  entry({ record, entry }: { record: TopicRecord; entry: LedgerBatchEntry }, fields: Partial<LedgerBatchEntry>): void {
    this.change(record, { value: encodeLedgerEntry({ ...entry, ...fields }) });
  }

  numbersEntry({ record, entry }: { record: TopicRecord; entry: LedgerNumbers }, fields: Partial<LedgerNumbers>): void {
    this.change(record, { value: encodeLedgerEntry({ ...entry, ...fields }) });
  }

  /** Replaces what a reply says. */
  reply({ reply }: Pick<Told<unknown>, 'reply'>, fields: Omit<IdReply, 'correlationId'> | { batch: IdBatch }): void {
    const correlationId = reply.key as Buffer;
    this.change(reply, { value: encodeIdReply({ correlationId, ...fields } as IdReply, 'RANGES') });
  }

  /** Entry and reply get another batch. */
  both(told: Told<LedgerBatchEntry>, batch: IdBatch, fields: Partial<LedgerBatchEntry> = {}): void {
    this.entry(told, { batch, count: batch.ranges.reduce((sum, { count }) => sum + count, 0), ...fields });
    this.reply(told, { batch });
  }

  bothNumbers(told: Told<LedgerNumbers>, fields: Partial<Numbers>): void {
    this.numbersEntry(told, fields);
    this.reply(told, { numbers: { ...numbersIn(told.reply), ...fields } });
  }

  /** A batch of a single ID that nobody got, at a time of the same term. */
  free({ entry: { batch } }: Told<LedgerBatchEntry>): IdBatch {
    const used = new Set(
      this.#ledger().flatMap((record) => {
        const entry = decodeLedgerEntry(record.value as Buffer, record.headers as RecordHeaders);
        const ranges = entry.kind === 'batch' && entry.batch.workerId === batch.workerId ? entry.batch.ranges : [];
        return ranges.map(({ first }) => decompose(FINE, first).ticks as number);
      }),
    );
    const [{ first } = { first: 0n }] = batch.ranges;
    let tick = decompose(FINE, first).ticks as number;
    while (used.has(tick)) tick -= 1;
    const down = BigInt((decompose(FINE, first).ticks as number) - tick) << FINE.timestampShift;
    return { ...batch, ranges: [{ first: first - down, count: 1 }] };
  }

  #ledger(): TopicRecord[] {
    return this.records.filter(({ topic }) => topic === LEDGER);
  }

  #told() {
    const [requests, replies] = [this.#byName(REQUESTS), this.#byName()];
    const byKey = Map.groupBy(this.#ledger(), ({ key }) => String(key?.toString('latin1')));
    return [...byKey.values()].flatMap((records) => {
      const [record] = records;
      if (records.length > 1 || record?.key == null || record.value === null) return [];
      const key = readLedgerKey(record.key);
      if (key.kind === 'statement') return [];
      const name = key.requestId.toString('latin1');
      const [[request, again] = [], [reply, twice] = []] = [requests.get(name), replies.get(name)];
      if (request === undefined || reply === undefined || again !== undefined || twice !== undefined) return [];
      if (reply.headers[DEFAULT_HEADER_NAMES.requestId] !== undefined) return [];
      return [{ request, record, reply, entry: decodeLedgerEntry(record.value, record.headers as RecordHeaders) }];
    });
  }

  /** By correlation ID, or request ID. */
  #byName(only?: string): ReadonlyMap<string, readonly TopicRecord[]> {
    const some = this.records.filter(({ topic }) => (only === undefined ? isReplyTopic(topic) : topic === only));
    return Map.groupBy(some, ({ key, headers }) => String(headers[DEFAULT_HEADER_NAMES.requestId] ?? key));
  }
}

export function batchIn({ value }: TopicRecord): IdBatch {
  const reply = decodeIdReply(value as Buffer);
  if (!('batch' in reply)) throw new TypeError('it has no batch');
  return reply.batch;
}

export function numbersIn({ value }: TopicRecord): Numbers & { readonly sequence: string } {
  const reply = decodeIdReply(value as Buffer);
  if (!('numbers' in reply)) throw new TypeError('it has no numbers');
  return reply.numbers;
}
