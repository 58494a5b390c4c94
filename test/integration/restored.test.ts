import { expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import type { Followed } from '../support/followed.ts';
import { OwnEtcd, requireOwnEtcd } from '../support/own-etcd.ts';
import { Realm, SHORT_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import { runIdalloc } from '../support/worker-process.ts';

const ERROR_LEVEL = 50;
const FATAL_LEVEL = 60;
const HOUR_MS = 3_600_000;
const RESERVE_MS = Number(SHORT_LEASE.RESERVATION_MS);

async function ask(realm: Realm, replies: Followed, correlationId: string, count = 1_000): Promise<readonly bigint[]> {
  await realm.send([{ correlationId, count }]);
  return expandIds(await replies.batch(correlationId));
}

test.for(['restored from a backup', 'wiped'] as const)(
  'an etcd that was %s stops every worker, and after a rebuild the same processes continue above all issued IDs',
  async (harm, { annotate, skip }) => {
    requireOwnEtcd({ skip });
    await using etcd = await OwnEtcd.start();
    const env = { ...SHORT_LEASE, ETCD_ENDPOINTS: etcd.endpoints.join(','), POOL_FIRST: '0', POOL_LAST: '2' };
    await using realm = await Realm.create(suiteServers(), { env });
    const replies = await realm.follow();
    const worker = realm.worker();
    await worker.ready();
    const issued = [...(await ask(realm, replies, 'before the backup'))];
    await etcd.backUp();
    issued.push(...(await ask(realm, replies, 'after the backup')));
    const raised = worker.lines.length;
    const stored = await Promise.all([0, 1, 2].map((workerId) => realm.ceiling(workerId)));
    const witnessed = async () => Math.max(0, ...(await realm.withWitness()).map(({ ticks }) => ticks));
    await expect.poll(witnessed).toBeGreaterThan(Math.max(...stored.map(({ ticks }) => ticks)));
    issued.push(...(await ask(realm, replies, 'after a raise')));

    await (harm === 'wiped' ? etcd.wipe() : etcd.restore());
    const restoredMs = performance.now();
    await worker.line(({ reason }) => reason === 'RESTORED', raised);
    const noticedMs = performance.now() - restoredMs;
    const late = realm.worker();
    await late.line(({ reason }) => reason === 'RESTORED');
    for (const one of [worker, late]) {
      const readiness = await one.ops('/readyz');
      expect([readiness.status, await readiness.json()]).toEqual([
        503,
        { status: 'not ready', reason: 'RESTORED', detail: expect.stringMatching(/namespace rebuild/) },
      ]);
      expect(await one.metric('idalloc_gate{reason="RESTORED"}')).toBe(1);
    }
    const shown = await realm.command(['namespace', 'show'], 1);
    expect(shown).toMatchObject({ holders: [], fault: { code: 'RESTORED' } });

    const { checks } = await realm.command(['doctor'], 1);
    expect(checks.find(({ name }: { name: string }) => name === 'namespace')).toMatchObject({
      state: 'fault',
      detail: expect.stringMatching(/^RESTORED: /),
      fix: expect.stringMatching(/idalloc namespace rebuild/),
    });
    for (const { lines } of [worker, late]) {
      const alarms = lines.filter(({ level = 0, code }) => level >= ERROR_LEVEL && code === 'RESTORED');
      expect(alarms.map(({ error }) => error)).toEqual([expect.stringMatching(/run 'idalloc namespace rebuild'/)]);
    }

    const refused = await runIdalloc(['namespace', 'rebuild'], realm.env);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain('NOT_CONFIRMED');
    expect(worker.gate()).toBe('RESTORED');

    const [now, past] = [Date.now(), Date.now() - HOUR_MS].map((ms) => new Date(ms).toISOString()) as [string, string];
    const doubtful = ['namespace', 'rebuild', '--yes', '--now', now, '--forged-after', past];
    const unforged = { code: 1, stderr: expect.stringMatching(/REBUILD_REFUSED.*--forged-after/) };
    expect(await runIdalloc(doubtful, realm.env), 'a worker may have written such a witness').toMatchObject(unforged);

    const { uuid } = await realm.command(['namespace', 'rebuild', '--yes']);
    const rebuiltMs = performance.now();
    const answered = replies.reply('after the rebuild');
    await realm.send([{ correlationId: 'after the rebuild', count: 1_000 }]);
    await worker.line(({ msg }) => msg === 'gate open', raised);
    await late.ready();
    await answered;
    const servedMs = performance.now() - rebuiltMs;
    const after = await ask(realm, replies, 'after the rebuild');
    const lowest = after[0] ?? 0n;
    expect(issued.every((id) => id < lowest)).toBe(true);
    expect(new Set([...issued, ...after]).size).toBe(issued.length + after.length);
    expect(await realm.command(['namespace', 'show'])).toMatchObject({ uuid, fault: null });
    const held = await runIdalloc(['namespace', 'rebuild', '--yes'], realm.env);
    expect(held).toMatchObject({ code: 1, stderr: expect.stringMatching(/^REBUILD_REFUSED: .* by /) });

    await report(
      annotate,
      `etcd ${harm}: gate closed with RESTORED ${noticedMs.toFixed(0)} ms after etcd was back, first reply ` +
        `${servedMs.toFixed(0)} ms after the rebuild, whose floor lies ${RESERVE_MS} ms ahead`,
    );
  },
);

test('a namespace that was moved and rebuilt goes on at its new prefix, and a worker of the old one refuses', async () => {
  await using realm = await Realm.create(suiteServers(), { env: SHORT_LEASE });
  const replies = await realm.follow();
  const moved = { ...realm.env, ETCD_PREFIX: `${realm.env.ETCD_PREFIX}-moved` };
  const worker = realm.worker();
  await worker.ready();
  await realm.command(['sequence', 'create', 'invoices']);
  const issued = await ask(realm, replies, 'before');
  await realm.send([{ correlationId: 'order-1', count: 2, sequence: 'invoices' }]);
  await replies.reply('order-1');

  const held = await runIdalloc(['namespace', 'move', '--yes'], moved);
  expect(held).toMatchObject({ code: 1, stderr: expect.stringMatching(/^REBUILD_REFUSED: worker IDs are held/) });
  await worker.stop();
  const { from, to, moved: isMoved } = await realm.command(['namespace', 'move', '--yes'], 0, moved);
  expect([from, to, isMoved]).toEqual([
    realm.keys.root,
    `${moved.ETCD_PREFIX}/datacenter/${realm.datacenterId}/`,
    true,
  ]);
  const late = realm.worker();
  await late.ended();
  expect(late.lines.find(({ level }) => level === FATAL_LEVEL)?.msg).toMatch(/^NAMESPACE_MISMATCH: .*-moved/);
  expect((await realm.command(['sequence', 'show', 'invoices'], 0, moved)).etcd_next).toBe(3);

  await realm.command(['namespace', 'rebuild', '--yes'], 0, moved);
  await realm.worker(moved).ready();
  const after = await ask(realm, replies, 'after');
  expect(issued.every((id) => id < (after[0] ?? 0n))).toBe(true);
  await realm.send([{ correlationId: 'order-2', count: 1, sequence: 'invoices' }]);
  expect(await replies.reply('order-2')).toMatchObject({ reply: { numbers: { first: 3 } } });
  expect(
    (await realm.command(['journal'], 0, moved)).entries.map(({ command }: { command: string }) => command),
  ).toEqual(['namespace move', 'namespace rebuild']);
});
