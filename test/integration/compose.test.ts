import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, inject, test } from 'vitest';
import { docker, ensureCompose } from '../../ops/dev/docker-engine.ts';
import { ensureImages } from '../../ops/dev/images.ts';
import { freePorts } from '../../ops/dev/ports.ts';

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
  readonly kafkaPort: number;
}

/** A new Compose project, on free ports of this machine. */
async function composeProject(): Promise<ComposeProject> {
  const words = await ensureCompose(log);
  if ('unavailable' in words) throw new Error(words.unavailable);
  const [program = '', ...prefix] = words;
  const [kafkaPort = 0] = await freePorts(1);
  const project = `idalloc-test-${randomUUID()}`;
  const buildKit = (await docker(['buildx', 'version'])).code === 0;
  const env = {
    ...process.env,
    DOCKER_BUILDKIT: buildKit ? '1' : '0',
    COMPOSE_PROJECT_NAME: project,
    IDALLOC_KAFKA_PORT: `${kafkaPort}`,
    IDALLOC_OPS_PORT: '0',
    IDALLOC_API_PORT: '0',
  };
  const compose = async (...args: string[]): Promise<string> => {
    const options = { cwd: ROOT, env, timeout: BUILD_MS, maxBuffer: 1 << 26 };
    const { stdout } = await execute(program, [...prefix, ...args], options);
    return stdout;
  };
  return { compose, project, kafkaPort };
}

/** The URL at which the host reaches a port of a container. */
async function urlOf(container: string, port: number): Promise<string> {
  const { stdout } = await docker(['port', container, String(port)]);
  return `http://${stdout.split('\n')[0]?.trim()}`;
}

async function readiness(container: string): Promise<number | undefined> {
  try {
    const url = `${await urlOf(container, 9464)}/readyz`;
    return (await fetch(url, { signal: AbortSignal.timeout(2_000) })).status;
  } catch {
    return undefined;
  }
}

async function workersOf({ compose }: ComposeProject): Promise<string[]> {
  return (await compose('ps', '-q', 'worker')).split('\n').filter(Boolean);
}

/** Resolves with the containers of the workers, when all `count` of them are ready. */
async function readyWorkers(project: ComposeProject, count: number): Promise<string[]> {
  const workers = await workersOf(project);
  try {
    expect(workers).toHaveLength(count);
    for (const worker of workers) {
      await expect.poll(() => readiness(worker), { timeout: READY_MS, interval: 250 }).toBe(200);
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

test('docker-compose.yml serves a request from the host, with workers that can write only to their index', async (context) => {
  if (noEngine !== undefined && !process.env.CI) context.skip(`needs a container engine: ${noEngine}`);
  if (noEngine !== undefined) throw new Error(`CI is set, so the images must be tested: ${noEngine}`);
  await ensureImages(['kafka', 'etcd', 'node'], log);
  const running = await composeProject();
  const { compose, project, kafkaPort } = running;
  try {
    log('building the image of the worker');
    await compose('build');
    await compose('up', '-d');
    const [worker = ''] = await readyWorkers(running, 1);
    const { stdout } = await execute(process.execPath, ['src/main.ts', 'request', '--count', '3', '--json'], {
      cwd: ROOT,
      env: { ...process.env, KAFKA_BROKERS: `127.0.0.1:${kafkaPort}` },
      timeout: READY_MS,
    });
    const reply = JSON.parse(stdout);
    expect(reply).toMatchObject({ count: 3, datacenter_id: 0, replayed: false });
    expect(new Set(reply.ids.map((id: { value_string: string }) => id.value_string)).size).toBe(3);

    const overHttp = await fetch(`${await urlOf(worker, 8080)}/api/v1/ids?count=3`);
    expect(await overHttp.json()).toMatchObject({ ids: { length: 3 } });

    const touch = (path: string) => docker(['exec', worker, 'node', '-e', `fs.writeFileSync('${path}', '')`]);
    expect((await docker(['exec', worker, 'node', '-p', 'process.getuid()'])).stdout.trim()).toBe('1000');
    expect((await touch('/app/x')).code).not.toBe(0);
    expect((await touch('/var/lib/idalloc/x')).code).toBe(0);
    await expect.poll(() => healthOf(worker), { timeout: READY_MS, interval: 500 }).toBe('healthy');

    await compose('up', '-d', '--scale', 'worker=3');
    await readyWorkers(running, 3);
  } finally {
    await compose('down', '--volumes', '--timeout', '20');
  }
  expect(await containersOf(project)).toEqual([]);
}, 900_000);

async function healthOf(container: string): Promise<string> {
  return (await docker(['inspect', '--format', '{{.State.Health.Status}}', container])).stdout.trim();
}
