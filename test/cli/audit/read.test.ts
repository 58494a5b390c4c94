import { describe, expect, test } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import type { Finding, FoundBatch } from '../../../src/cli/audit/found.ts';
import { AuditReader, type AuditSink } from '../../../src/cli/audit/read.ts';
import { encodeIdReply, ID_REPLY_FINGERPRINT } from '../../../src/codec/id-reply.ts';
import { encodeLedgerEntry, requestHash } from '../../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../../src/codec/ledger-key.ts';
import { partitionFor } from '../../../src/kafka/records/record.ts';
import { entry as memoryEntry, numbers, statement } from '../../support/memory-records.ts';
import { batchAt, check } from './batches.ts';

const CLOCK_MARGIN_MS = 120_000;
const TOPIC_SIZE = 100;
const id = Buffer.from('a');

function marker(partition: number, offset: number, timestampMs: number, end = offset): TopicRecord {
  const value = encodeLedgerEntry({ kind: 'marker', end, through: 0 });
  return { topic: 'ledger', partition, offset, key: encodeLedgerKey(id), value, headers: {}, timestampMs };
}

function lonelyReply(timestampMs: number, generatedAtMs = batchAt(10).generatedAtMs): TopicRecord {
  const value = encodeIdReply({ correlationId: id, batch: { ...batchAt(10), generatedAtMs } }, 'RANGES');
  return { topic: 'replies', partition: 0, offset: 1, key: id, value, headers: {}, timestampMs };
}

/** Audits one reply without an entry; `starts`: where each partition of the ledger starts. */
function audit(starts: readonly number[], oldest: readonly TopicRecord[], reply: TopicRecord) {
  const batches: FoundBatch[] = [];
  const spans = starts.map((from, partition) => ({ topic: 'ledger', partition, from, to: TOPIC_SIZE }));
  const add: AuditSink['add'] = (found) => void (found.kind === undefined && batches.push(found));
  const sink = { add, addNumbers: () => undefined, find: () => undefined };
  const reader = new AuditReader({ ledger: spans }, sink, { clockMarginMs: CLOCK_MARGIN_MS });
  for (const record of oldest) reader.ledgerRecord(record);
  reader.replyRecord(reply);
  return check(batches, reader.ledgerReachesMs, reader.lostTails);
}

describe('a reply to a request with a request ID', () => {
  const batch = batchAt(10);
  const entry = (requestId: string): TopicRecord => {
    const value = encodeLedgerEntry({
      kind: 'batch',
      requestHash: requestHash(4, 'replies'),
      count: 4,
      replyTopic: 'replies',
      requestOffset: 0,
      batch,
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: ID_REPLY_FINGERPRINT,
      end: 0,
      through: -1,
    });
    const key = encodeLedgerKey(Buffer.from(requestId));
    return { topic: 'ledger', partition: 0, offset: 0, key, value, headers: {}, timestampMs: 1_000 };
  };
  const reply = (requestId: string): TopicRecord => ({
    ...lonelyReply(2_000),
    headers: { 'idalloc-request-id': Buffer.from(requestId) },
  });

  test('agrees with the entry of its request ID, whatever its correlation ID is', () => {
    const { findings, counts } = audit([0], [entry('order')], reply('order'));
    expect([findings, counts.replies]).toEqual([[], 1]);
  });

  test('does not agree with the entry of another request that has its correlation ID', () => {
    const { findings } = audit([0], [entry(String(id))], reply('order'));
    expect(findings.map(({ code }) => code)).toEqual(['UNDECIDED', 'OVERLAP']);
  });
});

describe('a record of a sequence', () => {
  const found: Finding[] = [];
  const reader = new AuditReader(
    { ledger: [{ topic: 'ledger', partition: 0, from: 0, to: TOPIC_SIZE }] },
    {
      add: ({ kind }) => void (kind === undefined && expect.unreachable('it has no IDs')),
      addNumbers: () => undefined,
      find: (finding) => void found.push(finding),
    },
    { clockMarginMs: CLOCK_MARGIN_MS },
  );
  const place = { topic: 'ledger', partition: 0, offset: 0, headers: {}, timestampMs: 1_000 };

  test('is no finding, neither in the ledger nor in a reply', () => {
    reader.ledgerRecord({ ...place, ...numbers('a') });
    reader.ledgerRecord({ ...place, ...statement(3) });
    const own = { sequence: 'invoices', first: 1, count: 1, step: 1, format: '' };
    reader.replyRecord({ ...place, key: id, value: encodeIdReply({ correlationId: id, numbers: own }, 'RANGES') });
    expect([found, reader.counts.ofSequences, reader.counts.replies]).toEqual([[], 3, 1]);
  });

  test('under a key of another kind is a finding', () => {
    reader.ledgerRecord({ ...place, ...numbers('a'), key: encodeLedgerKey(id) });
    reader.ledgerRecord({ ...place, ...statement(3), key: numbers('a').key });
    reader.ledgerRecord({ ...place, value: marker(0, 0, 0).value, key: Buffer.of(9) });
    expect(found.map(({ code }) => code)).toEqual(['UNREADABLE', 'UNREADABLE']);
  });
});

test('an entry whose writer had read beyond it is a finding, unless its partition states afterwards that it lost its tail', () => {
  const findingsAfter = (...after: readonly TopicRecord[]) => {
    const found: Finding[] = [];
    const spans = [{ topic: 'ledger', partition: 0, from: 0, to: TOPIC_SIZE }];
    const sink = { add: () => undefined, addNumbers: () => undefined, find: (one: Finding) => void found.push(one) };
    const reader = new AuditReader({ ledger: spans }, sink, { clockMarginMs: CLOCK_MARGIN_MS });
    const { key, value } = memoryEntry('a', { end: 7 });
    reader.ledgerRecord({ ...marker(0, 2, 1_000), key, value });
    for (const record of after) reader.ledgerRecord(record);
    reader.end();
    return found.map(({ code }) => code).filter((code) => code !== 'OUTSIDE_EVIDENCE'); // its IDs are made up
  };
  expect(findingsAfter()).toEqual(['UNREADABLE']);
  expect(findingsAfter(marker(0, 3, 2_000))).toEqual(['UNREADABLE']);
  expect(findingsAfter(marker(0, 3, 2_000, 9))).toEqual([]);
});

test('an entry from before a stated loss that arrives behind the statement is no finding', () => {
  const found: Finding[] = [];
  const spans = [{ topic: 'ledger', partition: 0, from: 0, to: TOPIC_SIZE }];
  const sink = { add: () => undefined, addNumbers: () => undefined, find: (one: Finding) => void found.push(one) };
  const { key, value } = memoryEntry('a', { end: 7, generatedAtMs: 2_000 + CLOCK_MARGIN_MS });
  for (const [statedMs, codes] of [
    [2_000, []],
    [1_999, ['UNREADABLE']],
  ] as const) {
    const reader = new AuditReader({ ledger: spans }, sink, { clockMarginMs: CLOCK_MARGIN_MS });
    reader.ledgerRecord(marker(0, 0, statedMs, 9));
    reader.ledgerRecord({ ...marker(0, 4, 3_000), key, value });
    reader.end();
    expect(found.splice(0).flatMap(({ code }) => (code === 'OUTSIDE_EVIDENCE' ? [] : code))).toEqual(codes);
  }
});

describe('a reply without an entry', () => {
  const trimmed = [marker(0, 50, 1_000_000), marker(1, 60, 2_000_000)];

  test('is not a finding while the clock of the broker that stamped it may have been ahead of the oldest entry', () => {
    const { findings, counts } = audit([50, 60], trimmed, lonelyReply(2_000_000 + CLOCK_MARGIN_MS - 1));
    expect(findings).toEqual([]);
    expect(counts).toMatchObject({ forgotten: 1 });
  });

  test('is a finding from the margin after the oldest entry of the partition that reaches back least', () => {
    const { findings } = audit([50, 60], trimmed, lonelyReply(2_000_000 + CLOCK_MARGIN_MS));
    expect(findings).toMatchObject([{ code: 'UNDECIDED' }]);
  });

  test('is not a finding if it was decided before, and sent again at the present time', () => {
    const { findings } = audit([50, 60], trimmed, lonelyReply(2_000_000 + 2 * CLOCK_MARGIN_MS, 2_000_000));
    expect(findings).toEqual([]);
  });

  test('is always a finding while nothing of the ledger was trimmed', () => {
    const whole = [marker(0, 0, 1_000_000), marker(1, 0, 2_000_000)];
    expect(audit([0, 0], whole, lonelyReply(0)).findings).toMatchObject([{ code: 'UNDECIDED' }]);
  });

  test('is counted as lost if the home partition of its request states afterwards that it lost its tail', () => {
    const [home, other] = partitionFor(id, 2, () => 0) === 0 ? [0, 1] : [1, 0];
    const stated = (partition: number, atMs: number) => [
      marker(0, 0, 500),
      marker(1, 0, 500),
      marker(partition, 5, atMs, 9),
    ];
    const codes = (markers: readonly TopicRecord[]) => {
      const { findings, counts } = audit([0, 0], markers, lonelyReply(1_000));
      return [...findings.map(({ code }) => code), counts.lost];
    };
    expect(codes(stated(home, 1_001))).toEqual([1]);
    expect(codes(stated(home, 999)), 'decided later').toEqual(['UNDECIDED', 0]);
    expect(codes(stated(other, 1_001))).toEqual(['UNDECIDED', 0]);
    expect(codes([marker(0, 0, 500), marker(1, 0, 500), marker(home, 5, 1_001)]), 'no loss').toEqual(['UNDECIDED', 0]);
  });
});
