import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, inject, test } from 'vitest';
import { docker, ensureCompose } from '../../ops/dev/docker-engine.ts';
import { ensureImages } from '../../ops/dev/images.ts';
import { freePorts } from '../../ops/dev/ports.ts';
import { blockCommands, readPage } from '../support/docs.ts';

const ROOT = join(import.meta.dirname, '../..');
const BUILD_MS = 600_000;
const READY_MS = 120_000;
const execute = promisify(execFile);
const { noEngine } = inject('servers');

function log(line: string): void {
  process.stderr.write(`compose test: ${line}\n`);
}

interface ComposeProject {
  readonly compose: (...args: string[]) => Promise<string>;
  readonly project: string;
  /** With these a command on the host uses its servers. */
  readonly host: NodeJS.ProcessEnv;
}

/** A new Compose project, on free ports of this machine. */
async function composeProject(): Promise<ComposeProject> {
  const words = await ensureCompose(log);
  if ('unavailable' in words) throw new Error(words.unavailable);
  const [program = '', ...prefix] = words;
  const [kafka, etcd, api, ops] = await freePorts(4);
  const project = `idalloc-test-${randomUUID()}`;
  const buildKit = (await docker(['buildx', 'version'])).code === 0;
  const env = {
    ...process.env,
    DOCKER_BUILDKIT: buildKit ? '1' : '0',
    COMPOSE_PROJECT_NAME: project,
    IDALLOC_KAFKA_PORT: `${kafka}`,
    IDALLOC_ETCD_PORT: `${etcd}`,
    IDALLOC_API_PORT: `${api}`,
    IDALLOC_OPS_PORT: `${ops}`,
  };
  const compose = async (...args: string[]): Promise<string> => {
    const options = { cwd: ROOT, env, timeout: BUILD_MS, maxBuffer: 1 << 26 };
    const { stdout } = await execute(program, [...prefix, ...args], options);
    return stdout;
  };
  const host = {
    ...process.env,
    KAFKA_BROKERS: `127.0.0.1:${kafka}`,
    ETCD_ENDPOINTS: `http://127.0.0.1:${etcd}`,
    DATACENTER_ID: '0',
    ALLOW_WEAK_LEDGER: '1',
    TOPIC_REPLICATION_FACTOR: '1',
  };
  return { compose, project, host };
}

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

/** The status of /readyz, asked within the container: only one worker has ports on the host. */
async function readiness(container: string): Promise<string> {
  const ask =
    "fetch('http://127.0.0.1:9464/readyz').then(({ status }) => console.log(status), () => console.log('none'))";
  return (await docker(['exec', container, 'node', '-e', ask])).stdout.trim();
}

async function workersOf({ compose }: ComposeProject): Promise<string[]> {
  return (await compose('ps', '-q', 'worker', 'more-workers')).split('\n').filter(Boolean);
}

/** Resolves with the containers of the workers, when all `count` of them are ready. */
async function readyWorkers(project: ComposeProject, count: number): Promise<string[]> {
  const workers = await workersOf(project);
  try {
    expect(workers).toHaveLength(count);
    for (const worker of workers) {
      await expect.poll(() => readiness(worker), { timeout: READY_MS, interval: 250 }).toBe('200');
    }
    return workers;
  } catch (error) {
    log(await project.compose('logs', '--tail=40'));
    throw error;
  }
}

async function containersOf(project: string): Promise<string[]> {
  const { stdout } = await docker([
    'ps',
    '--all',
    '--quiet',
    '--filter',
    `label=com.docker.compose.project=${project}`,
  ]);
  return stdout.split('\n').filter(Boolean);
}

test('docker-compose.yml serves requests and commands from the host and within, with workers that can write only to their index', async (context) => {
  if (noEngine !== undefined && !process.env.CI) context.skip(`needs a container engine: ${noEngine}`);
  if (noEngine !== undefined) throw new Error(`CI is set, so the images must be tested: ${noEngine}`);
  await ensureImages(['kafka', 'etcd', 'node'], log);
  const running = await composeProject();
  const { compose, project, host } = running;
  try {
    log('building the image of the worker');
    await compose('build');
    await compose('up', '-d');
    const [worker = ''] = await readyWorkers(running, 1);
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
    for (const [exec = '', ...words] of PASTED) log(await compose(exec, '-T', ...words));

    const overHttp = await fetch(`${await urlOf(worker, 8080)}/api/v1/ids?count=3`);
    expect(await overHttp.json()).toMatchObject({ ids: { length: 3 } });

    const touch = (path: string) => docker(['exec', worker, 'node', '-e', `fs.writeFileSync('${path}', '')`]);
    expect((await docker(['exec', worker, 'node', '-p', 'process.getuid()'])).stdout.trim()).toBe('1000');
    expect((await touch('/app/x')).code).not.toBe(0);
    expect((await touch('/var/lib/idalloc/x')).code).toBe(0);
    await expect.poll(() => healthOf(worker), { timeout: READY_MS, interval: 500 }).toBe('healthy');

    expect((await fetch(`${await urlOf(worker, 9464)}/readyz`)).status).toBe(200);
    await compose('up', '-d', '--scale', 'more-workers=2');
    await readyWorkers(running, 3);
  } finally {
    await compose('down', '--volumes', '--timeout', '20');
  }
  expect(await containersOf(project)).toEqual([]);
}, 900_000);

async function healthOf(container: string): Promise<string> {
  return (await docker(['inspect', '--format', '{{.State.Health.Status}}', container])).stdout.trim();
}
