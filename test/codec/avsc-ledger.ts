import { decodeFramed, loadSchema } from '../../src/codec/avro.ts';
import { countIds, plainRanges, type WireBatch, wireToBatch } from '../../src/codec/id-batch.ts';
import type { LedgerEntry } from '../../src/codec/ledger-entry.ts';
import { toSafeNumber } from '../../src/codec/long.ts';
import type { RecordHeaders } from '../../src/codec/request-headers.ts';
import { LEDGER_SCHEMAS } from '../../src/codec/schemas.ts';
import { checkNumbers, checkStatement, RENEWAL, statementFacts } from '../../src/codec/sequence-entry.ts';

const entries = loadSchema(LEDGER_SCHEMAS['ledger-entry'], 64 * 1024);
const ofSequences = loadSchema(LEDGER_SCHEMAS['ledger-sequence'], 16 * 1024);

/** The fields of a decided request, as both schemas name them. */
interface WireRequest {
  readonly request_hash: Buffer;
  readonly count: number;
  readonly reply_topic: string;
  readonly request_offset: bigint;
  readonly framing: 'SINGLE_OBJECT' | 'CONFLUENT';
  readonly schema_fingerprint: Buffer;
}

/**
 * An entry as avsc decodes it by the schemas, each value checked by hand afterwards: it shares no cursor and no number
 * with the reader of the ledger. Throws for an entry that must not be accepted.
 */
export function decodedByAvsc(value: Buffer, headers: RecordHeaders = {}): LedgerEntry {
  const wire = decodeFramed(entries, value) as
    | { end: bigint; through: bigint; batch: (WireRequest & Omit<WireBatch, 'ids'>) | null }
    | undefined;
  if (wire === undefined) return ofSequence(value, headers);
  const { end, through } = positionOf(wire);
  if (wire.batch === null) return { kind: 'marker', end, through };
  const { batch } = wire;
  const total = countIds(batch.ranges);
  if (total < 1 || total !== batch.count) throw new RangeError('the count is not that of the ranges');
  const ids = wireToBatch(batch, plainRanges(batch.ranges, batch.step));
  return { kind: 'batch', ...requestOf(batch), count: batch.count, batch: ids, end, through };
}

function ofSequence(value: Buffer, headers: RecordHeaders): LedgerEntry {
  const wire = decodeFramed(ofSequences, value) as { end: bigint; through: bigint; at: bigint; content: object };
  const position = positionOf(wire);
  const content = wire.content as Record<string, never>;
  const numbers = content['idalloc.ledger.SequenceNumbers'] as
    | (WireRequest & { first: bigint; step: bigint; format: string })
    | undefined;
  if (numbers !== undefined) {
    const at = toSafeNumber(wire.at, 'at', RENEWAL);
    const { first, count, step, format } = numbers;
    return { kind: 'numbers', ...position, at, ...requestOf(numbers), ...checkNumbers(first, count, step, format) };
  }
  const at = toSafeNumber(wire.at, 'at', 0);
  const said = content['idalloc.ledger.SequenceStatement'] as unknown as {
    readonly next: bigint;
    readonly step: bigint;
    readonly max: bigint;
    readonly format: string;
    readonly closed: boolean;
  };
  const [next, step, max] = [said.next, said.step, said.max].map((one) => toSafeNumber(one, 'a number', 0));
  const statement = { next: next as number, step: step as number, max: max as number, format: said.format };
  checkStatement(statement);
  return { kind: 'statement', ...position, at, ...statement, closed: said.closed, ...statementFacts(headers) };
}

function positionOf({ end, through }: { readonly end: bigint; readonly through: bigint }) {
  return { end: toSafeNumber(end, 'end', 0), through: toSafeNumber(through, 'through', -1) };
}

function requestOf(wire: WireRequest) {
  return {
    requestHash: wire.request_hash,
    replyTopic: wire.reply_topic,
    requestOffset: toSafeNumber(wire.request_offset, 'request_offset', 0),
    framing: wire.framing,
    schemaFingerprint: wire.schema_fingerprint,
  };
}
