import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import { encodeCeiling, encodeLeaseRecord } from '../../src/codec/namespace-values.ts';
import { toTicks } from '../../src/core/layout.ts';
import { wallMs } from '../../src/core/units.ts';
import { LAYOUT, Realm, SHORT_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { ask, checkSuccession, ONE_ID, ticksOf, WORKER_ID } from '../support/succession.ts';
import { report } from '../support/whole-history.ts';

const RESERVE_MS = Number(SHORT_LEASE.RESERVATION_MS);

/** A lease with a reservation more than twice as long as in the other tests. */
const LONG_RESERVATION = { LEASE_TTL_SECONDS: '10', ETCD_REFUSE_AFTER_MS: '7000', RESERVATION_MS: '9000' };
/** The address of owners as a crash loop leaves them; their lease outlives the test. */
const CRASHING_IP = '192.0.2.7';
const LEFTOVERS = 5;
const LEFTOVERS_TTL_SECONDS = 60;
/** How often the stored ceiling is read. */
const POLL_MS = 50;

test('a process that finds recent owners at its address, as after a crash loop, waits a second for each but three', async ({
  annotate,
}) => {
  await using realm = await Realm.create(suiteServers(), { env: { ...SHORT_LEASE, WORKER_IP: CRASHING_IP } });
  await realm.worker().ready(); // creates the namespace, and is one of the owners at the address
  const leaseId = 4_711n;
  await realm.etcd.grantLease(leaseId, LEFTOVERS_TTL_SECONDS);
  for (let workerId = 0; workerId < LEFTOVERS; workerId += 1) {
    const record = { assignedWorkerIp: CRASHING_IP, leaseTtlSeconds: 10, heartbeatToken: 'x', grantedAtMs: Date.now() };
    const key = realm.keys.owner(workerId);
    const owner = { put: key, value: encodeLeaseRecord(record), leaseId };
    const raised = { ticks: toTicks(LAYOUT, wallMs(Date.now() + RESERVE_MS)), nonce: 'x' };
    const ceiling = { put: realm.keys.ceiling(workerId), value: encodeCeiling(raised) };
    await realm.etcd.transact([{ key, createRevision: 0n }], [owner, ceiling]);
  }
  const owners = (await realm.etcd.range(`${realm.keys.root}workers/`)).kvs.length;
  const late = realm.worker();
  const waiting = await late.line(({ reason }) => reason === 'NO_IDENTITY');
  const acquired = await late.line(({ msg }) => msg === 'worker ID acquired');
  const heldBackMs = acquired.seenMs - waiting.seenMs;
  await report(annotate, `${owners} recent owners at one address: waited ${Math.round(heldBackMs)} ms`);
  expect(heldBackMs).toBeGreaterThanOrEqual(1_000 * (owners - 3) - 100);
});

test('a successor with a shorter reservation waits for a ceiling far ahead, and never lowers it', async () => {
  await using realm = await Realm.create(suiteServers(), { env: ONE_ID });
  const replies = await realm.follow();
  const first = realm.worker(LONG_RESERVATION);
  await first.ready();
  const before = await ask(realm, replies, 'before');
  await first.stop();
  const ceiling = await realm.ceiling(WORKER_ID);

  const second = realm.worker();
  const ready = second.ready();
  const seen = [ceiling.ticks];
  while (second.gate() !== 'open') {
    seen.push((await realm.ceiling(WORKER_ID)).ticks);
    await Promise.race([ready, pause(POLL_MS)]);
  }
  seen.push((await realm.ceiling(WORKER_ID)).ticks);
  expect(seen).toEqual(seen.toSorted((a, b) => a - b));
  await ready;
  checkSuccession(before, await ask(realm, replies, 'after'), ceiling.ticks);
});

/** The tick of the newest ID. */
function lastTick(batches: readonly IdBatch[]): number {
  const newest = batches.at(-1);
  return newest === undefined ? 0 : (ticksOf(newest).at(-1) ?? 0);
}

test('over several reservations under load every ID is below the ceiling stored at its time, and no ceiling falls', async () => {
  await using realm = await Realm.create(suiteServers(), { env: ONE_ID });
  const replies = await realm.follow();
  await realm.worker().ready();
  const polls: { readonly sentMs: number; readonly ticks: number }[] = [];
  const poll = async () => {
    const sentMs = Date.now();
    polls.push({ sentMs, ticks: (await realm.ceiling(WORKER_ID)).ticks });
  };
  await poll();
  const batches: IdBatch[] = [];
  const first = polls[0]?.ticks ?? 0;
  // Until the ceiling has risen three times, and IDs are above the one that was stored at the beginning.
  while (new Set(polls.map(({ ticks }) => ticks)).size <= 3 || lastTick(batches) <= first) {
    batches.push(await ask(realm, replies, `r${batches.length}`, 5_000));
    await poll();
  }

  for (const batch of batches) {
    // A poll sent after the allocation shows the ceiling of that time or a higher one, so the check can't fail wrongly.
    const after = polls.find(({ sentMs }) => sentMs >= batch.generatedAtMs);
    expect(ticksOf(batch).at(-1)).toBeLessThan(after?.ticks ?? 0);
  }
  const ceilings = polls.map(({ ticks }) => ticks);
  expect(ceilings).toEqual(ceilings.toSorted((a, b) => a - b));
  expect(new Set(batches.map(({ fence }) => fence)).size).toBe(1);
});

test.for([
  ['the epoch', { LAYOUT_EPOCH_MS: '1767225600001' }, 'epoch_ms is 1767225600000, configured 1767225600001'],
  ['the pool', { POOL_LAST: '8' }, 'pool is 7..7, configured 7..8'],
  [
    'the layout',
    { LAYOUT: 'discord', LAYOUT_EPOCH_MS: '1767225600000' },
    'layout.fields is timestamp:41,datacenter:5,worker:5,sequence:12, configured timestamp:42',
  ],
] as const)(
  'a worker whose configuration differs from the namespace in %s exits, and names the difference',
  async ([, env, named]) => {
    await using realm = await Realm.create(suiteServers(), { env: ONE_ID });
    await realm.worker().ready();
    const ceiling = await realm.ceiling(WORKER_ID);
    const other = realm.worker(env);
    expect(await other.ended()).toEqual({ code: 1, signal: null });
    const last = other.lines.find(({ level }) => level === 60);
    expect(last?.msg).toMatch(/^NAMESPACE_MISMATCH: /);
    expect(last?.msg).toContain(named);
    expect((await realm.ceiling(WORKER_ID)).ticks).toBeGreaterThanOrEqual(ceiling.ticks);
  },
);
