import { expect, test } from 'vitest';
import { encodeLedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { BATCH, CORRELATION_ID } from '../codec/samples.ts';
import type { Followed } from '../support/followed.ts';
import { idFor } from '../support/home.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { LogLine, WorkerProcess } from '../support/worker-process.ts';

const ERROR_LEVEL = 50;
const MARKER = encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 });
const ENTRY = encodeLedgerEntry({
  kind: 'batch',
  requestHash: requestHash(5, 'replies'),
  count: 5,
  replyTopic: 'replies',
  requestOffset: 0,
  batch: BATCH,
  framing: 'SINGLE_OBJECT',
  schemaFingerprint: Buffer.alloc(8),
  end: 0,
  through: -1,
});

/** The marker with the fingerprint of an unknown schema. */
function ofAnotherSchema(): Buffer {
  const value = Buffer.from(MARKER);
  value[2] = (value[2] ?? 0) ^ 0xff;
  return value;
}

/** A foreign entry for each ledger partition after the first, which stays healthy. */
const FOREIGN = [
  { name: 'text', key: Buffer.from('k'), value: Buffer.from('hello') },
  { name: 'an empty value', key: Buffer.from('k'), value: Buffer.alloc(0) },
  { name: 'a tombstone', key: encodeLedgerKey(CORRELATION_ID), value: null },
  { name: 'a decision without a key', key: null, value: ENTRY },
  { name: 'an entry of an unknown schema', key: null, value: ofAnotherSchema() },
  { name: 'an entry with bytes after its end', key: null, value: Buffer.concat([MARKER, Buffer.of(0)]) },
  { name: 'half an entry', key: encodeLedgerKey(CORRELATION_ID), value: ENTRY.subarray(0, ENTRY.length / 2) },
] as const;
const PARTITIONS = 1 + FOREIGN.length;
const WELL = 0;

const unreadable = (partition: number) => (line: LogLine) =>
  line.msg === 'ledger partition stopped' &&
  line.code === 'LEDGER_UNREADABLE' &&
  line.partition === partition &&
  (line.level ?? 0) >= ERROR_LEVEL;

const idOf = (name: string, partition: number) => idFor(`${name}-${partition}`, partition, PARTITIONS);

async function ask(realm: Realm, name: string): Promise<void> {
  const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);
  await realm.send(partitions.map((partition) => ({ correlationId: idOf(name, partition), count: 3 })));
}

/**
 * Expects that each partition with a foreign entry stops with a reason, the healthy one serves, and the worker is not
 * ready.
 */
async function expectStopped(realm: Realm, worker: WorkerProcess, replies: Followed, name: string): Promise<void> {
  await ask(realm, name);
  expect('batch' in (await replies.reply(idOf(name, WELL))).reply).toBe(true);
  for (const [i, { name: what }] of FOREIGN.entries()) {
    const { error } = await worker.line(unreadable(i + 1));
    expect(error, what).toMatch(/^LEDGER_UNREADABLE: ledger partition \d+ stops at offset \d+: /);
  }
  expect(await worker.metric('idalloc_errors_total{code="LEDGER_UNREADABLE"}')).toBeGreaterThanOrEqual(FOREIGN.length);
  expect(await worker.metric('idalloc_ledger_stopped_partitions')).toBe(FOREIGN.length);
  expect(await worker.metric('idalloc_gate{reason="open"}')).toBe(1);
  const readyz = await worker.ops('/readyz');
  const detail = expect.stringContaining(`ledger partition ${FOREIGN.length} stops at offset `);
  expect([readyz.status, await readyz.json()]).toEqual([
    503,
    { status: 'not ready', reason: 'LEDGER_UNREADABLE', detail },
  ]);
}

test('a ledger partition with a foreign entry stops with the reason until it is trimmed; the others continue', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const running = realm.worker();
  await running.hasPartitions(PARTITIONS);
  await ask(realm, 'before');
  await replies.replies(PARTITIONS);

  await realm.sendRaw(
    FOREIGN.map(({ key, value }, i) => ({ key, value, partition: i + 1 })),
    realm.ledgerTopic,
  );
  await expectStopped(realm, running, replies, 'running');
  await running.stop();
  // An append may have been in flight when the foreign entry was written before it: it got no reply, and is the last.
  const decisions = await realm.decisions(ledger);
  const started = realm.worker();
  await started.hasPartitions(PARTITIONS);
  await expectStopped(realm, started, replies, 'started');

  const answered = await replies.replies(PARTITIONS + 2);
  expect(answered.size).toBe(PARTITIONS + 2);
  expect(await realm.decisions(ledger)).toBe(decisions + 1);
  await realm.trimLedger();
  await started.ready();
  expect((await started.ops('/readyz')).status).toBe(200);
  expect(await started.metric('idalloc_ledger_stopped_partitions')).toBe(0);
  await ask(realm, 'trimmed');
  for (let partition = 0; partition < PARTITIONS; partition += 1) {
    expect('batch' in (await replies.reply(idOf('trimmed', partition))).reply, `partition ${partition}`).toBe(true);
  }
  for (const worker of [running, started]) {
    expect(worker.lines.filter(({ level = 0 }) => level > ERROR_LEVEL)).toEqual([]);
  }
});
