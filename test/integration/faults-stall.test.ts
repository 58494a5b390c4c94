import { setTimeout as lasting } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { batchOf, type Followed } from '../support/followed.ts';
import { Load } from '../support/load.ts';
import { KEPT_LEASE, Realm, SHORT_LEASE, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { checkWholeHistory, report, settledRecords } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

/** How long a process is stopped by SIGSTOP, which has the effects of a blocked event loop. */
const STALL_MS = 8_000;
const BURSTS = 8;
/** Longer than the heartbeat interval of the group, shorter than all timeouts. */
const BURST_MS = 1_200;
const BETWEEN_MS = 300;
const PARTITIONS = 3;
const ANSWERED = 100;

async function ask(realm: Realm, replies: Followed, correlationId: string): Promise<IdBatch> {
  await realm.send([{ correlationId, count: 100 }]);
  return await replies.batch(correlationId);
}

async function stall(worker: WorkerProcess, milliseconds: number): Promise<void> {
  worker.kill('SIGSTOP');
  try {
    await lasting(milliseconds);
  } finally {
    worker.kill('SIGCONT');
  }
}

/** Stalls the only worker while requests wait, until it has served them by itself. */
async function stalled(lease: Readonly<Record<string, string>>) {
  await using realm = await Realm.create(suiteServers(), {
    partitions: PARTITIONS,
    env: { ...lease, ...SHORT_SESSION },
  });
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  const before = await ask(realm, replies, 'before');
  const line = worker.lines.length;
  const stalling = stall(worker, STALL_MS);
  await realm.send([{ correlationId: 'meanwhile', count: 100 }]);
  await stalling;
  const wokenMs = Date.now();
  const reply = await replies.reply('meanwhile');
  const after = batchOf(reply);
  await expect.poll(() => worker.gate(), { timeout: 30_000 }).toBe('open');
  const reasons = worker.lines.slice(line).flatMap(({ msg, reason }) => (msg?.startsWith('gate ') ? [reason] : []));
  return { before, after, reasons, wokenMs, tookMs: Number(reply.seen.message.timestamp) - wokenMs };
}

test(`a worker stalled for ${STALL_MS / 1_000} s allocates nothing past its own deadline, and continues by itself`, async ({
  annotate,
}) => {
  const [kept, lost] = await Promise.all([stalled(KEPT_LEASE), stalled(SHORT_LEASE)]);

  // The lease of 30 s outlives the stall; the own deadline of 3 s and the session do not.
  expect(kept.reasons[0]).toBe('PROCESS_PAUSED');
  expect(kept.reasons).not.toContain('LEASE_LOST');
  expect(kept.after).toMatchObject({ workerId: kept.before.workerId, fence: kept.before.fence });
  // The lease of 5 s has expired, and the identity is lost with it.
  expect(lost.reasons).toContain('LEASE_LOST');
  expect(lost.after.fence).toBeGreaterThan(lost.before.fence);
  for (const { before, after, wokenMs } of [kept, lost]) {
    expect(after.generatedAtMs).toBeGreaterThanOrEqual(wokenMs);
    if (after.workerId !== before.workerId) continue;
    expect((expandIds(after)[0] ?? 0n) > (expandIds(before).at(-1) ?? 0n)).toBe(true);
  }
  await report(annotate, `first decision after a stall: ${kept.tookMs} ms with the lease, ${lost.tookMs} ms without`);
});

test(`through ${BURSTS} stalls of ${BURST_MS} ms under load each request gets one batch, under one identity`, async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  const worker = realm.worker();
  await worker.ready();
  const load = new Load(realm, { partitions: PARTITIONS });
  try {
    await replies.replies(ANSWERED);
    for (let i = 0; i < BURSTS; i += 1) {
      await stall(worker, BURST_MS);
      await lasting(BETWEEN_MS);
    }
  } finally {
    await load.stop();
  }
  const history = await checkWholeHistory(realm, load.requests, replies, () =>
    settledRecords(realm, realm.ledgerTopic, ledger),
  );
  await report(annotate, `stalls in bursts: ${JSON.stringify(history)}`);
  expect(history).toMatchObject({ losers: 0 });
  // The worker notices each stall and asks etcd whether it still holds its identity, which it always does.
  const closed = worker.lines.filter(({ msg }) => msg === 'gate closed').map(({ reason }) => reason);
  expect(new Set(closed)).toEqual(new Set(['PROCESS_PAUSED']));
  expect(worker.lines.filter(({ msg }) => msg === 'worker ID acquired')).toHaveLength(1);
});
