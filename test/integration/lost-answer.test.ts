import { expect, test } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { decodeLeaseRecord } from '../../src/codec/namespace-values.ts';
import { decompose } from '../../src/core/layout.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import type { Followed } from '../support/followed.ts';
import { type GrpcProxy, startGrpcProxy } from '../support/grpc-proxy.ts';
import { idFor } from '../support/home.ts';
import { LAYOUT, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { PARTITIONS, Site } from '../support/site.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const TXN = '/etcdserverpb.KV/Txn';
const POOL = [0, 1, 2];
/** Raises the ceiling often, and tolerates enough time without etcd to connect again. */
const OFTEN = {
  LEASE_TTL_SECONDS: '20',
  LEASE_HEARTBEAT_MS: '1500',
  ETCD_REFUSE_AFTER_MS: '10000',
  RESERVATION_MS: '12000',
} as const;

/** Reads are transactions too. Of the writes, a claim puts a lease record, and an extension only a raised ceiling. */
const isClaim = (request: Buffer) => request.includes('"heartbeat_token"');
const isExtension = (request: Buffer) => /\d{9,} [\w-]{36}/.test(request.toString('latin1')) && !isClaim(request);

/** A worker that reaches etcd only through the proxy. */
class Scene implements AsyncDisposable {
  readonly #stack = new AsyncDisposableStack();
  readonly proxy: GrpcProxy;
  readonly realm: Realm;
  readonly replies: Followed;

  private constructor(proxy: GrpcProxy, realm: Realm, replies: Followed) {
    this.proxy = proxy;
    this.realm = realm;
    this.replies = replies;
    this.#stack.defer(() => proxy.close());
    this.#stack.use(realm);
  }

  static async open(lease: Readonly<Record<string, string>>): Promise<Scene> {
    const servers = suiteServers();
    const proxy = await startGrpcProxy(servers.etcdEndpoints[0] ?? '');
    const env = { ...lease, ETCD_ENDPOINTS: proxy.endpoint, POOL_FIRST: '0', POOL_LAST: String(POOL.at(-1)) };
    const realm = await Realm.create(servers, { env });
    return new Scene(proxy, realm, await realm.follow());
  }

  async ask(correlationId: string): Promise<IdBatch> {
    await this.realm.send([{ correlationId, count: 100 }]);
    return await this.replies.batch(correlationId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stack.disposeAsync();
  }
}

/** Expects that IDs allocated just now are below the ceiling that is stored now. */
async function checkCovered(realm: Realm, batch: IdBatch): Promise<void> {
  const { ticks } = await realm.ceiling(batch.workerId);
  expect(decompose(LAYOUT, expandIds(batch).at(-1) ?? 0n).ticks).toBeLessThan(ticks);
}

function readBackFrom(worker: WorkerProcess, line: number) {
  return worker.line(({ msg }) => msg === 'no response to a write: reading back whether it took effect', line);
}

test('after a lost answer to an acquire the worker reads back its identity, and takes no second one', async () => {
  await using scene = await Scene.open({});
  const { proxy, realm } = scene;
  const lost = proxy.dropAnswers(TXN, 1, isClaim);
  const worker = realm.worker();
  await lost;
  await worker.ready();
  await readBackFrom(worker, 0);
  expect(proxy.dropped).toBe(1);

  const batch = await scene.ask('a');
  const owners = await Promise.all(POOL.map((workerId) => realm.owner(workerId)));
  expect(owners.flatMap((owner, workerId) => (owner === undefined ? [] : [workerId]))).toEqual([batch.workerId]);
  const owner = owners[batch.workerId];
  const ceilings = await Promise.all(POOL.map((workerId) => realm.ceiling(workerId)));
  expect(ceilings.filter(({ ticks }) => ticks > 0)).toEqual([ceilings[batch.workerId]]);
  expect(batch.fence).toBe(owner?.createRevision);
  expect(ceilings[batch.workerId]?.nonce).toBe(decodeLeaseRecord(owner?.value ?? Buffer.alloc(0)).heartbeatToken);
  await checkCovered(realm, batch);
});

test('after a lost answer to an extension the worker continues under its fence, and extends from there', async () => {
  await using scene = await Scene.open(OFTEN);
  const { proxy, realm } = scene;
  const worker = realm.worker();
  await worker.ready();
  const before = await scene.ask('before');
  const line = worker.lines.length;
  const ceilingMs = async () => (await realm.ceiling(before.workerId)).ticks;

  await proxy.dropAnswers(TXN, 1, isExtension);
  const raised = await ceilingMs();
  await readBackFrom(worker, line);
  // Each extension compares the revision of the previous one: so the worker has recognised the lost one as its own.
  await expect.poll(ceilingMs, { timeout: 60_000 }).toBeGreaterThan(raised);

  const after = await scene.ask('after');
  expect(after).toMatchObject({ workerId: before.workerId, fence: before.fence });
  expect((await realm.owner(before.workerId))?.createRevision).toBe(before.fence);
  expect((expandIds(after)[0] ?? 0n) > (expandIds(before).at(-1) ?? 0n)).toBe(true);
  await checkCovered(realm, after);
  expect(worker.lines.slice(line).filter(({ msg }) => msg === 'gate closed')).toEqual([]);
  expect((await worker.ops('/readyz')).status).toBe(200);
});

/** Pairs of requests, one for each partition: the first few share a transaction of etcd already. */
const MOST_PAIRS = 200;

test('after a lost answer to swaps of two partitions each document has its own next number', async () => {
  const servers = suiteServers();
  await using stack = new AsyncDisposableStack();
  const proxy = await startGrpcProxy(servers.etcdEndpoints[0] ?? '');
  stack.defer(() => proxy.close());
  await using site = await Site.open(servers, { env: { ETCD_ENDPOINTS: proxy.endpoint } });
  const names = [0, 1].map((partition) => idFor('orders', partition, PARTITIONS));
  for (const name of names) expect(await site.command('sequence', 'create', name)).toMatchObject({ code: 0 });
  const worker = site.start(0);
  await worker.ready();
  const { env, datacenterId, ledgerTopic } = site.realm;
  const pending = [0, 1].map((nth) => ledgerHeadKeys(env.ETCD_PREFIX ?? '', datacenterId, ledgerTopic, nth).pending);
  let isLost = false;
  const lost = proxy
    .dropAnswers(TXN, 1, (request) => request.includes('"records":[{') && pending.every((key) => request.includes(key)))
    .then(() => {
      isLost = true;
    });
  // A slow etcd: what arrives during one round of swaps shares the next one.
  proxy.slow(20);
  const numbers = names.map((): Promise<unknown>[] => []);
  for (let nth = 0; nth < MOST_PAIRS && !isLost; nth += 1) {
    const asked = names.map((sequence) => site.asked({ correlationId: `${sequence}-${nth}`, sequence, count: 1 }));
    for (const [i, one] of asked.entries()) numbers[i]?.push(one);
    await Promise.race([lost, Promise.all(asked)]);
  }
  expect(isLost, 'swaps share a transaction').toBe(true);
  proxy.slow(0);
  for (const all of numbers) {
    const told = (await Promise.all(all)).map(Number).toSorted((a, b) => a - b);
    expect(told).toEqual(all.map((_, i) => i + 1));
  }
  expect(await worker.metric('idalloc_sequence_swaps_total{outcome="unanswered"}')).toBe(2);
  await site.audited();
});
