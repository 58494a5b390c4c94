import { afterAll, beforeAll, expect, test } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { witnessKey, witnessValue } from '../../src/codec/witness.ts';
import { tickStartMs, toTicks } from '../../src/core/layout.ts';
import { wallMs } from '../../src/core/units.ts';
import { claimKey } from '../../src/identity/bindings.ts';
import { DATACENTER_ID, LAYOUT, Realm, SHORT_LEASE } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc, type WorkerProcess } from '../support/worker-process.ts';

const FORGED_MS = Date.UTC(2095, 0, 1);
const HOUR_MS = 3_600_000;
let realm: Realm;
let waiting: WorkerProcess;
let issued: readonly bigint[];

const rebuild = (...more: string[]) => runIdalloc(['namespace', 'rebuild', '--json', ...more], realm.env);
const iso = (milliseconds: number) => new Date(milliseconds).toISOString();

/** Writes a forged witness of a reservation decades ahead, for the namespace in use. */
async function forge(): Promise<void> {
  const [known] = await realm.withWitness();
  if (known === undefined) throw new Error('the namespace has no witness to forge another after');
  const forged = { uuid: known.uuid, workerId: 7, fence: 999n, leaseId: 5n };
  const value = witnessValue({ ticks: toTicks(LAYOUT, wallMs(FORGED_MS)), modRevision: 1n });
  await realm.sendRaw([{ key: witnessKey(DATACENTER_ID, forged), value }], realm.witnessTopic);
}

beforeAll(async () => {
  realm = await Realm.create(suiteServers(), { env: SHORT_LEASE });
  const replies = await realm.follow();
  const worker = realm.worker();
  await worker.ready();
  await realm.send([{ correlationId: 'before', count: 1_000 }]);
  issued = expandIds(await replies.batch('before'));
  await worker.stop();
  await forge();
  waiting = realm.worker();
  await waiting.line(({ reason }) => reason === 'RESTORED');
});

afterAll(() => realm?.[Symbol.asyncDispose]());

test('a rebuild that counts the forged witness would start decades ahead, and says so before the confirmation', async () => {
  const { code, stderr } = await runIdalloc(['namespace', 'rebuild', '--now', iso(Date.now())], realm.env);
  expect(code).toBe(1);
  expect(stderr).toMatch(/witness .*, up to 2095-01-01/);
  expect(stderr).toMatch(/NOT_CONFIRMED: .* with IDs from 2095-01-01/);
});

test('a rebuild refuses to ignore witnesses that a worker may have written', async () => {
  const { code, stderr } = await rebuild(
    '--yes',
    '--forged-after',
    iso(Date.now() - HOUR_MS),
    '--now',
    iso(Date.now()),
  );
  expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringMatching(/REBUILD_REFUSED.*--forged-after/) });
});

test('a rebuild that ignores the forged witness lets the same process continue above all issued IDs', async () => {
  const replies = await realm.follow();
  const { code, stdout, stderr } = await rebuild('--yes', '--forged-after', iso(Date.now() + HOUR_MS));
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(Date.parse(JSON.parse(stdout).floor_time)).toBeLessThan(Date.now() + HOUR_MS);
  await waiting.ready();
  await realm.send([{ correlationId: 'after', count: 1_000 }]);
  const after = expandIds(await replies.batch('after'));
  expect(issued.every((id) => id < (after[0] ?? 0n))).toBe(true);
  await waiting.stop();
  expect((await realm.withWitness()).filter(({ ticks }) => tickStartMs(LAYOUT, ticks) >= FORGED_MS)).toEqual([]);
});

test('a rebuild under another prefix recovers from one that counted the forged witness', async () => {
  await forge();
  expect((await rebuild('--yes', '--now', iso(Date.now()))).code).toBe(0);
  const again = await rebuild('--yes', '--now', iso(Date.now()), '--forged-after', iso(Date.now() + HOUR_MS));
  expect(JSON.parse(again.stdout).floor_time).toMatch(/^2095/);
  await realm.etcd.transact([], [{ delete: claimKey(realm.env.ID_SPACE ?? '', DATACENTER_ID) }]);
  const env = { ...realm.env, ETCD_PREFIX: `${realm.env.ETCD_PREFIX}-2` };
  const args = ['namespace', 'rebuild', '--yes', '--now', iso(Date.now()), '--forged-after', iso(Date.now() + HOUR_MS)];
  expect(await runIdalloc(args, env)).toMatchObject({ code: 0 });
  const replies = await realm.follow();
  const worker = realm.worker({ ETCD_PREFIX: env.ETCD_PREFIX });
  await worker.ready();
  await realm.send([{ correlationId: 'elsewhere', count: 1_000 }]);
  const after = expandIds(await replies.batch('elsewhere'));
  expect(issued.every((id) => id < (after[0] ?? 0n))).toBe(true);
});
