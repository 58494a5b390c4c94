import { getContainerRuntimeClient, getReaper, LABEL_TESTCONTAINERS_SESSION_ID } from 'testcontainers';
import { afterAll, beforeAll, expect, inject, test, vi } from 'vitest';
import { buildWorkerImages, FAULTS_IMAGE } from '../../ops/dev/images.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { decode } from '../../src/ids/ids.ts';
import type { StartedIdAllocContainer } from '../../src/testcontainers/container.ts';
import {
  IdAllocContainer,
  IdAllocEnvironment,
  type StartedIdAllocEnvironment,
} from '../../src/testcontainers/index.ts';
import { ownerLabels } from '../support/container-servers.ts';
import { requireEngine } from '../support/engine.ts';
import { unique } from '../support/unique.ts';
import { report } from '../support/whole-history.ts';

const BUILD_MS = 900_000;
const WITHIN = { timeout: 120_000, interval: 50 };
/** Enough requests that some reach the partitions of each worker. */
const REQUESTS = 24;
const STEP_MS = -5_000;
const { noEngine } = inject('servers');
let env: StartedIdAllocEnvironment;

function log(line: string): void {
  process.stderr.write(`testcontainers test: ${line}\n`);
}

beforeAll(async () => {
  if (noEngine !== undefined) return;
  await buildWorkerImages(log);
  const begin = performance.now();
  env = await new IdAllocEnvironment()
    .withWorkers(2)
    .withImages({ worker: FAULTS_IMAGE })
    .withLabels(ownerLabels())
    .start();
  log(`Kafka, etcd, two workers and a client in ${Math.round(performance.now() - begin)} ms`);
}, BUILD_MS);

afterAll(() => env?.stop());

/** IDs over HTTP, from one worker only. */
async function idsOf(worker: StartedIdAllocContainer): Promise<{ ids: bigint[]; workerId: number }> {
  const answer = await fetch(`${worker.apiUrl}/api/v1/ids?count=50`, { signal: AbortSignal.timeout(5_000) });
  if (!answer.ok) throw new Error(`no IDs: ${await answer.text()}`);
  const { ids } = (await answer.json()) as { ids: { value_string: string }[] };
  const values = ids.map(({ value_string }) => BigInt(value_string));
  return { ids: values, workerId: decode(values[0] ?? 0n).workerId };
}

function reason(worker: StartedIdAllocContainer): Promise<string> {
  return worker.readiness().then(({ ready, reason: why }) => (ready ? 'ready' : (why ?? 'none')));
}

/** How often a worker has lost its lease: it has another within a moment. */
async function leasesLost({ opsUrl }: StartedIdAllocContainer): Promise<number> {
  const metrics = await (await fetch(`${opsUrl}/metrics`)).text();
  return Number(/^idalloc_gate_changes_total\{reason="LEASE_LOST"\} (\d+)$/m.exec(metrics)?.[1] ?? 0);
}

test('an Idempotency-Key has one ID, whichever worker is asked', async (context) => {
  requireEngine(context);
  const ask = async ({ apiUrl }: StartedIdAllocContainer) => {
    const headers = { 'idempotency-key': 'order-4711' };
    const answer = await fetch(`${apiUrl}/api/v1/id`, { method: 'POST', headers });
    return [answer.status, await answer.json()];
  };
  const [first, second] = await Promise.all(env.workers.map(ask));
  expect(first).toEqual([200, { id: expect.any(String) }]);
  expect(second).toEqual(first);
});

test('a paused worker, a clock step and a lost lease have their effects, and no ID is allocated twice', async (context) => {
  requireEngine(context);
  const [first, second] = env.workers;
  if (first === undefined || second === undefined) throw new TypeError('there are two workers');
  const begun = await Promise.all([idsOf(first), idsOf(second)]);
  expect(begun[0].workerId).not.toBe(begun[1].workerId);
  const seen = [...begun.flatMap(({ ids }) => ids), ...env.client.take(500)];
  const beginMs = performance.now();

  await env.pauseWorker(0);
  await expect(first.readiness()).rejects.toThrow('timeout');
  const asked = Array.from({ length: REQUESTS }, () => env.client.request({ count: 10, timeoutMs: WITHIN.timeout }));
  for (const { batch } of await Promise.all(asked)) {
    expect(batch.workerId).toBe(begun[1].workerId);
    seen.push(...expandIds(batch));
  }
  await env.resumeWorker(0);
  // Right after it resumes it may still report ready, but allocates nothing.
  const { ids, workerId } = await vi.waitFor(() => idsOf(first), WITHIN);
  seen.push(...ids);

  await env.stepClock(1, STEP_MS);
  await expect.poll(() => reason(second), WITHIN).toMatch(/^CLOCK_/);
  await expect.poll(() => reason(first), WITHIN).toBe('ready');
  await env.stepClock(1, -STEP_MS);
  await expect.poll(() => reason(second), WITHIN).toBe('ready');
  seen.push(...(await idsOf(second)).ids);

  const lost = await leasesLost(first);
  expect(await env.loseLease(0)).toBe(workerId);
  await expect.poll(() => leasesLost(first), WITHIN).toBe(lost + 1);
  await expect.poll(() => reason(second), WITHIN).toBe('ready');
  await expect.poll(() => reason(first), WITHIN).toBe('ready');
  seen.push(...(await idsOf(first)).ids, ...(await env.client.takeAsync(500)));

  expect(new Set(seen).size).toBe(seen.length);
  await report(context.annotate, `three faults and their ends in ${Math.round(performance.now() - beginMs)} ms`);
});

test("a separate worker joins servers by address and by container, and reports that its clock can't be stepped", async (context) => {
  requireEngine(context);
  await using worker = await new IdAllocContainer()
    .withKafka('kafka:19092')
    .withEtcd(env.etcd)
    .withLabels(ownerLabels())
    .start();
  expect(await worker.readiness()).toEqual({ ready: true });
  const others = await Promise.all(env.workers.map(idsOf));
  expect(others.map(({ workerId }) => workerId)).not.toContain((await idsOf(worker)).workerId);
  await expect(worker.stepClock(1_000)).rejects.toThrow(
    /clock of image idalloc:local can't be stepped.*Dockerfile\.faults/,
  );
  expect(await worker.readiness()).toEqual({ ready: true });
});

test('an environment whose workers do not start reports the reason, and leaves nothing behind', async (context) => {
  requireEngine(context);
  const label = { 'idalloc.test.case': unique() };
  const client = await getContainerRuntimeClient();
  const { dockerode } = client.container;
  const { sessionId } = await getReaper(client);
  // Only containers of this process: others may use the same engine.
  const ours = JSON.stringify({ label: [`${LABEL_TESTCONTAINERS_SESSION_ID}=${sessionId}`] });
  const networks = async () => (await dockerode.listNetworks({ filters: ours })).map(({ Id }) => Id).sort();
  const before = await networks();
  const failing = new IdAllocEnvironment()
    .withLabels({ ...ownerLabels(), ...label })
    .withWorkerEnvironment({ LEASE_TTL_SECONDS: '1' })
    .start();
  await expect(failing).rejects.toThrow(/idalloc:local did not start[\s\S]*LEASE_TTL_SECONDS/);
  const filters = { label: [`idalloc.test.case=${label['idalloc.test.case']}`] };
  expect(await dockerode.listContainers({ all: true, filters })).toEqual([]);
  expect(await networks()).toEqual(before);
});
