import { afterAll, beforeAll, expect, test } from 'vitest';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import { decodeIdReply, encodeIdReply } from '../../src/codec/id-reply.ts';
import {
  decodeLedgerEntry,
  encodeLedgerEntry,
  type LedgerBatchEntry,
  type LedgerEntry,
} from '../../src/codec/ledger-entry.ts';
import { readLedgerKey } from '../../src/codec/ledger-key.ts';
import type { LedgerNumbers } from '../../src/codec/sequence-entry.ts';
import type { Seen } from '../support/followed.ts';
import { recordsOf } from '../support/mirror.ts';
import { Realm, SHORT_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const PARTITIONS = 3;
const REQUESTS = 40;
const DOCUMENTS = 6;
const SEQUENCE = 'invoices';
/** Above every ceiling, in the default layout. */
const LATER_MS = 3_600_000;
const LATER = BigInt(LATER_MS) << 22n;
const CREATE_TIME = { 'message.timestamp.type': 'CreateTime' };

let realm: Realm;
/** What workers have written, by topic. */
let written: ReadonlyMap<string, readonly Seen[]>;
let copies = 0;

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { partitions: PARTITIONS, env: { ...SHORT_LEASE, WORKER_ID: '7' } });
  const replies = await realm.follow();
  // Two terms of one worker ID.
  for (const [from, to] of [
    [0, REQUESTS / 2],
    [REQUESTS / 2, REQUESTS],
  ] as const) {
    const worker = realm.worker();
    await worker.ready();
    if (from === 0) await run('sequence', 'create', SEQUENCE, '--format', 'INV-{number:6}');
    await realm.send(
      Array.from({ length: to - from }, (_, i) => ({ correlationId: `c${from + i}`, count: 1 + (i % 5) })),
    );
    await realm.send(
      Array.from({ length: DOCUMENTS / 2 }, (_, i) => {
        return { correlationId: `d${i + (from * DOCUMENTS) / REQUESTS}`, count: 2, sequence: SEQUENCE };
      }),
    );
    await replies.replies(to + (to * DOCUMENTS) / REQUESTS);
    await worker.stop();
  }
  const topics = [realm.ledgerTopic, realm.replyTopic];
  written = new Map(await Promise.all(topics.map(async (topic) => [topic, await recordsOf(realm, topic)] as const)));
});

afterAll(() => realm?.[Symbol.asyncDispose]());

async function run(...args: readonly string[]) {
  const { code, stdout, stderr } = await runIdalloc([...args, '--json'], realm.env);
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  return { code, found: JSON.parse(stdout) };
}

/** The codes of the findings of each correlation ID. */
async function audit(env: Readonly<Record<string, string>> = {}, ...flags: readonly string[]) {
  const { code, stdout, stderr } = await runIdalloc(['audit', '--json', ...flags], { ...realm.env, ...env });
  expect(stdout, stderr).toMatch(/^\{.*\}\n$/);
  const found = JSON.parse(stdout);
  const findings = found.findings as readonly {
    readonly code: string;
    readonly batches: readonly { readonly correlation_id: string }[];
  }[];
  const of = (correlationId: string) =>
    findings
      .filter(({ batches }) => batches.some(({ correlation_id }) => correlation_id === correlationId))
      .map((finding) => finding.code);
  return { code, found, of };
}

type Changed = Pick<Seen['message'], 'key' | 'value'>;

/**
 * Writes records to a topic that is empty, each at its offset and with its time, but some of them changed; left out if
 * undefined.
 */
async function write(
  topic: string,
  records: readonly Seen[],
  change: (one: Seen, correlationId: string) => Partial<Changed> | undefined,
): Promise<void> {
  const messages = records.flatMap((one) => {
    const { key, value, headers, timestamp } = one.message;
    const changed = change(one, correlationOf(one));
    if (changed === undefined) return [];
    return [{ partition: one.partition, timestamp, key, value, ...(headers && { headers }), ...changed }];
  });
  if (messages.length > 0) await realm.sendRaw(messages, topic);
}

function correlationOf({ message: { key } }: Seen): string {
  if (key === null) return '';
  try {
    const named = readLedgerKey(key);
    return named.kind === 'statement' ? '' : named.requestId.toString();
  } catch {
    return key.toString(); // of a reply
  }
}

type ChangeEntry = (entry: LedgerEntry) => Partial<Changed>;

/** Audits a copy of the ledger in which the records of one correlation ID are changed. */
async function auditChanged(correlationId: string, change: ChangeEntry) {
  copies += 1;
  const topic = `${realm.ledgerTopic}.${copies}`;
  await realm.createTopic(topic, { partitions: PARTITIONS, configs: CREATE_TIME });
  await write(topic, written.get(realm.ledgerTopic) ?? [], (one, of) => {
    if (of !== correlationId) return {};
    return change(decodeLedgerEntry(one.message.value as Buffer));
  });
  return await audit({ LEDGER_TOPIC: topic });
}

const batchOf = (correlationId: string): IdBatch => {
  const seen = written.get(realm.replyTopic)?.find((one) => correlationOf(one) === correlationId);
  const reply = decodeIdReply(seen?.message.value as Buffer);
  if (!('batch' in reply)) throw new Error(`${correlationId} has no batch`);
  return reply.batch;
};
/** A change of an entry of IDs. */
const ids =
  (changed: (entry: LedgerBatchEntry) => LedgerBatchEntry): ChangeEntry =>
  (entry) => {
    if (entry.kind !== 'batch') throw new Error(`an entry of kind ${entry.kind}`);
    return { value: encodeLedgerEntry(changed(entry)) };
  };
/** A change of the batch of an entry. */
const batch = (changed: (batch: IdBatch) => Partial<IdBatch>): ChangeEntry =>
  ids((entry) => ({ ...entry, batch: { ...entry.batch, ...changed(entry.batch) } }));
/** A change of numbers. */
const numbers =
  (changed: (entry: LedgerNumbers) => Partial<LedgerNumbers>): ChangeEntry =>
  (entry) => {
    if (entry.kind !== 'numbers') throw new Error(`an entry of kind ${entry.kind}`);
    return { value: encodeLedgerEntry({ ...entry, ...changed(entry) }) };
  };
const firstOf = ({ ranges }: IdBatch): bigint => ranges[0]?.first ?? 0n;
/** Keeps the offsets of what follows. */
const MARKER = () => ({ key: null, value: encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 }) });

test('an audit of what workers wrote finds nothing, and says how many requests were answered', async () => {
  const { code, found } = await audit();
  expect({ code, found }).toMatchObject({
    code: 0,
    found: { requests: REQUESTS + DOCUMENTS, answered: REQUESTS + DOCUMENTS, findings: [] },
  });
  // A copy of the ledger is as good as the ledger: what the other tests find is what they change.
  expect((await auditChanged('none', () => ({}))).code).toBe(0);
});

test.for<readonly [what: string, correlationId: string, string, ChangeEntry]>([
  ['has the IDs of another one', 'c5', 'OVERLAP', batch(() => ({ ranges: batchOf('c10').ranges }))],
  ['is gone', 'c6', 'UNDECIDED', MARKER],
  [
    'has fewer IDs than its request wants',
    'c7',
    'MISMATCH',
    ids((e) => ({ ...e, count: 1, batch: { ...e.batch, ranges: [{ first: firstOf(e.batch), count: 1 }] } })),
  ],
  ['has the hash of another request', 'c8', 'MISMATCH', ids((e) => ({ ...e, requestHash: Buffer.alloc(16, 1) }))],
  [
    'has IDs above the ceiling of its worker',
    'c9',
    'ABOVE_CEILING',
    batch(({ ranges, generatedAtMs }) => ({
      ranges: ranges.map(({ first, count }) => ({ first: first + LATER, count })),
      generatedAtMs: generatedAtMs + LATER_MS,
    })),
  ],
  ['has a lower fence than earlier ones', `c${REQUESTS - 1}`, 'FENCE', batch(() => ({ fence: 1n }))],
  ['is gone, and had numbers', 'd1', 'GAP', MARKER],
  ['has numbers for another offset', 'd2', 'VOID', numbers(({ at }) => ({ at: at + 1 }))],
  ['has numbers in another format than their sequence', 'd3', 'FORMAT', numbers(() => ({ format: 'INX-{number:6}' }))],
])('an audit finds an entry that %s', async ([, correlationId, code, change]) => {
  const audited = await auditChanged(correlationId, change);
  expect(audited.code).toBe(1);
  expect(audited.found.finding_counts, JSON.stringify(audited.found.findings)).toHaveProperty(code);
  if (code !== 'GAP') expect(audited.of(correlationId)).toContain(code); // which names what follows the gap
});

const refusal = (key: Buffer, code: string) => ({
  value: encodeIdReply({ correlationId: key, error: { code, message: 'forged' } }, 'RANGES'),
});

test('an audit names each reply that is missing, was changed, or refuses what was decided', async () => {
  const expected: Readonly<Record<string, string>> = {
    c11: 'MISSING_REPLY',
    c12: 'DIVERGENT',
    c13: 'WRONG_REFUSAL',
    c14: 'WRONG_REFUSAL',
    d4: 'FORMAT',
  };
  await realm.recreate(realm.replyTopic);
  await write(realm.replyTopic, written.get(realm.replyTopic) ?? [], ({ message }, correlationId) => {
    const [key, value] = [message.key as Buffer, message.value as Buffer];
    switch (correlationId) {
      case 'c11':
        return undefined;
      case 'c12': {
        const { batch } = decodeIdReply(value) as { batch: IdBatch };
        return {
          value: encodeIdReply(
            { correlationId: key, batch: { ...batch, generatedAtMs: batch.generatedAtMs + 1 } },
            'RANGES',
          ),
        };
      }
      case 'c13':
        return refusal(key, 'CONFLICT');
      case 'c14':
        return refusal(key, 'FORGOTTEN');
      case 'd4': {
        const reply = decodeIdReply(value);
        if (!('numbers' in reply)) throw new Error('no numbers');
        return {
          value: encodeIdReply({ ...reply, numbers: { ...reply.numbers, format: 'INX-{number:6}' } }, 'RANGES'),
        };
      }
      default:
        return {};
    }
  });
  const { code, of, found } = await audit();
  expect(code).toBe(1);
  for (const [correlationId, finding] of Object.entries(expected)) {
    expect(of(correlationId), `${correlationId} in ${JSON.stringify(found.findings)}`).toContain(finding);
  }
  const named = Object.keys(expected);
  const others = found.findings.filter(
    ({ batches }: { batches: readonly { correlation_id: string }[] }) =>
      !batches.some(({ correlation_id }) => named.includes(correlation_id)),
  );
  expect(others).toEqual([]);
});

test('an audit does not pass where every reply is missing', async () => {
  await realm.recreate(realm.replyTopic);
  const { code, found } = await audit();
  expect({ code, counts: found.finding_counts }).toEqual({
    code: 1,
    counts: { MISSING_REPLY: REQUESTS + DOCUMENTS },
  });
});

test('an audit counts a request that waits, and finds it once its time is over', async () => {
  await realm.recreate(realm.replyTopic);
  await write(realm.replyTopic, written.get(realm.replyTopic) ?? [], () => ({}));
  await realm.send([{ correlationId: 'waits', count: 1 }]);
  const young = await audit();
  expect(young).toMatchObject({ code: 0, found: { requests: REQUESTS + DOCUMENTS + 1, waiting: 1, findings: [] } });
  const old = await audit({}, '--grace-ms', '0');
  expect(old.code).toBe(1);
  expect(old.of('waits')).toEqual(['UNANSWERED']);
});
