import { ID_REPLY_FINGERPRINT, WIDE_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeIdRequest, type IdRequest } from '../../src/codec/id-request.ts';
import { encodeLedgerEntry, type LedgerBatchEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey, encodeNumbersKey, encodeStatementKey } from '../../src/codec/ledger-key.ts';
import { type LedgerNumbers, type LedgerStatement, statementHeaders } from '../../src/codec/sequence-entry.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { encodeBatch } from '../../src/kafka/records/encode.ts';
import { RecordReader } from '../../src/kafka/records/fetched-record.ts';
import { AT, readHead } from '../../src/kafka/records/format.ts';
import type { RequestRecord } from '../../src/pipeline/ports.ts';

/** The topic that requests name for their replies unless they say otherwise. */
export const REPLIES = 'id.replies.orders';
export const layout = presetLayout('default');

/** A good request, unless the fields say otherwise. */
export function request(
  offset: number,
  id: string,
  fields: Partial<IdRequest> & { readonly headers?: RequestRecord['headers'] } = {},
): RequestRecord {
  const { headers = {}, ...rest } = fields;
  const value = encodeIdRequest({ count: 1, correlationId: Buffer.from(id), replyTopic: REPLIES, ...rest });
  return record(offset, value, headers);
}

/** Any record of the request topic, as it is fetched. */
export function record(
  offset: number,
  value: Buffer | null,
  headers: RequestRecord['headers'] = {},
  timestampMs = 1_699_999_999_000 + offset,
): RequestRecord {
  const key = Buffer.from('k');
  const batch = encodeBatch([{ key, value, headers }], 0);
  const { fields } = new RecordReader(readHead(batch), batch.subarray(AT.records)).next();
  return { offset, key, value, headers, timestampMs, ...(fields && { fields }) };
}

/** The same records, fetched in one batch. Their offsets follow each other. */
export function inOneBatch(records: readonly RequestRecord[]): RequestRecord[] {
  const batch = encodeBatch(records, 0);
  const reader = new RecordReader(readHead(batch), batch.subarray(AT.records));
  return records.map((one): RequestRecord => {
    const { fields } = reader.next();
    return { ...one, ...(fields && { fields }) };
  });
}

/** A ledger entry as another worker would write it. */
export function entry(
  id: string,
  fields: Partial<Pick<LedgerBatchEntry, 'count' | 'replyTopic' | 'requestOffset' | 'end' | 'through'>> & {
    readonly first?: bigint;
    readonly generatedAtMs?: number;
  } = {},
): { readonly key: Buffer; readonly value: Buffer } {
  const { first = 77_000n, count = 1, replyTopic = REPLIES, generatedAtMs = 1_700_000_000_000, ...rest } = fields;
  const value = encodeLedgerEntry({
    kind: 'batch',
    requestHash: requestHash(count, replyTopic),
    count,
    replyTopic,
    requestOffset: 0,
    batch: {
      ranges: [{ first, count }],
      step: layout.step,
      datacenterId: 3,
      workerId: 9,
      fence: 10n,
      epochMs: layout.epochMs,
      layoutFingerprint: layout.fingerprint,
      generatedAtMs,
    },
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: ID_REPLY_FINGERPRINT,
    end: 0,
    through: -1,
    ...rest,
  });
  return { key: encodeLedgerKey(Buffer.from(id)), value };
}

/** A record of numbers of the sequence `invoices`, as another worker would write it. */
export function numbers(
  id: string,
  fields: Partial<Pick<LedgerNumbers, 'requestOffset' | 'end' | 'through' | 'at' | 'first' | 'count' | 'step'>> = {},
): { readonly key: Buffer; readonly value: Buffer } {
  const value = encodeLedgerEntry({
    kind: 'numbers',
    requestHash: requestHash(fields.count ?? 1, REPLIES),
    replyTopic: REPLIES,
    requestOffset: 0,
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: WIDE_REPLY_FINGERPRINT,
    end: 0,
    through: -1,
    at: 0,
    first: 1,
    count: 1,
    step: 1,
    format: '',
    ...fields,
  });
  return { key: encodeNumbersKey('invoices', Buffer.from(id)), value };
}

/** A statement of a sequence: an operator's, of the first edition, unless the fields say otherwise. */
export function statement(
  at: number,
  fields: Partial<Omit<LedgerStatement, 'kind' | 'at'>> = {},
  sequence = 'invoices',
) {
  const definition = { step: 1, max: 1_000, format: '', closed: false, edition: 1 };
  const place = { end: 0, through: -1, at, next: 1, first: undefined, isLoss: false };
  const entry: LedgerStatement = { kind: 'statement', ...place, ...definition, ...fields };
  return { key: encodeStatementKey(sequence), value: encodeLedgerEntry(entry), headers: statementHeaders(entry) };
}
