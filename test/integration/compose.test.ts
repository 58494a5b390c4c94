import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { docker } from '../../ops/dev/docker-engine.ts';
import { ensureImages } from '../../ops/dev/images.ts';
import { ROOT } from '../../ops/dev/paths.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { ComposeProject, composeLog } from '../support/compose-project.ts';
import { blockCommands, readPage } from '../support/docs.ts';
import { requireEngine } from '../support/engine.ts';

const READY_MS = 120_000;
const execute = promisify(execFile);

/** What quickstart tells those to paste who have Docker only, without `docker compose`. */
const PASTED = blockCommands(readPage('docs/quickstart.md')).flatMap(({ command }) => {
  const [, words] = /^docker compose (exec .*)$/.exec(command) ?? [];
  return words === undefined ? [] : [words.split(' ')];
});

/** The URL at which the host reaches a port of a container. */
async function urlOf(container: string, port: number): Promise<string> {
  const { stdout } = await docker(['port', container, String(port)]);
  return `http://${stdout.split('\n')[0]?.trim()}`;
}

test('docker-compose.yml serves requests and commands from the host and within, with workers that can write only to their index', async (context) => {
  requireEngine(context);
  await ensureImages(['kafka', 'etcd', 'node'], composeLog);
  const [kafka, etcd, api, ops] = await freePorts(4);
  await using project = await ComposeProject.create('docker-compose.yml', {
    IDALLOC_KAFKA_PORT: `${kafka}`,
    IDALLOC_ETCD_PORT: `${etcd}`,
    IDALLOC_API_PORT: `${api}`,
    IDALLOC_OPS_PORT: `${ops}`,
  });
  /** With these a command on the host uses its servers. */
  const host = {
    ...process.env,
    KAFKA_BROKERS: `127.0.0.1:${kafka}`,
    ETCD_ENDPOINTS: `http://127.0.0.1:${etcd}`,
    DATACENTER_ID: '0',
    ALLOW_WEAK_LEDGER: '1',
    TOPIC_REPLICATION_FACTOR: '1',
  };
  const compose = (...args: readonly string[]) => project.compose(...args);
  composeLog('building the image of the worker');
  await compose('build');
  await compose('up', '-d');
  const [worker = ''] = await project.readyWorkers(1, 'worker', 'more-workers');
  const fromHost = async (...args: string[]) => {
    const options = { cwd: ROOT, env: host, timeout: READY_MS };
    return JSON.parse((await execute(process.execPath, ['src/main.ts', ...args, '--json'], options)).stdout);
  };
  const reply = await fromHost('request', '--count', '3');
  expect(reply).toMatchObject({ count: 3, datacenter_id: 0, replayed: false });
  expect(new Set(reply.ids.map((id: { value_string: string }) => id.value_string)).size).toBe(3);

  expect(JSON.stringify(await fromHost('leases'))).toContain(`"worker_id":${reply.worker_id},`);
  expect(await fromHost('namespace', 'show')).toMatchObject({ holders: [reply.worker_id], fault: null });
  // What doctor says of this machine is not of Compose.
  const { checks } = await fromHost('doctor').catch(({ stdout }: { stdout: string }) => JSON.parse(stdout));
  const ofServers = checks.filter(({ name }: { name: string }) => /^(Kafka|etcd) /.test(name));
  expect(ofServers).not.toContainEqual(expect.objectContaining({ state: 'fault' }));
  expect(ofServers.length).toBeGreaterThan(1);

  expect(PASTED.length).toBeGreaterThan(2);
  for (const [exec = '', ...words] of PASTED) composeLog(await compose(exec, '-T', ...words));

  const overHttp = await fetch(`${await urlOf(worker, 8080)}/api/v1/ids?count=3`);
  expect(await overHttp.json()).toMatchObject({ ids: { length: 3 } });

  await fromHost('sequence', 'create', 'invoices');
  const numbered = { method: 'POST', headers: { 'idempotency-key': 'order-1' } };
  const invoice = await fetch(`${await urlOf(worker, 8080)}/api/v1/sequences/invoices`, numbered);
  expect(await invoice.json()).toMatchObject({ numbers: ['1'] });

  const touch = (path: string) => docker(['exec', worker, 'node', '-e', `fs.writeFileSync('${path}', '')`]);
  expect((await docker(['exec', worker, 'node', '-p', 'process.getuid()'])).stdout.trim()).toBe('1000');
  expect((await touch('/app/x')).code).not.toBe(0);
  expect((await touch('/var/lib/idalloc/x')).code).toBe(0);
  await expect.poll(() => healthOf(worker), { timeout: READY_MS, interval: 500 }).toBe('healthy');

  expect((await fetch(`${await urlOf(worker, 9464)}/readyz`)).status).toBe(200);
  await compose('up', '-d', '--scale', 'more-workers=2');
  await project.readyWorkers(3, 'worker', 'more-workers');
}, 900_000);

async function healthOf(container: string): Promise<string> {
  return (await docker(['inspect', '--format', '{{.State.Health.Status}}', container])).stdout.trim();
}
