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

/** Compose with a project of its own, on free ports of this machine. */
async function composeProject(): Promise<{
  compose: (...args: string[]) => Promise<string>;
  project: string;
  kafkaPort: number;
  opsPort: number;
  apiPort: number;
}> {
  const words = await ensureCompose(log);
  if ('unavailable' in words) throw new Error(words.unavailable);
  const [program = '', ...prefix] = words;
  const [kafkaPort = 0, opsPort = 0, apiPort = 0] = await freePorts(3);
  const project = `idalloc-test-${randomUUID()}`;
  const buildKit = (await docker(['buildx', 'version'])).code === 0;
  const env = {
    ...process.env,
    DOCKER_BUILDKIT: buildKit ? '1' : '0',
    COMPOSE_PROJECT_NAME: project,
    IDALLOC_KAFKA_PORT: `${kafkaPort}`,
    IDALLOC_OPS_PORT: `${opsPort}`,
    IDALLOC_API_PORT: `${apiPort}`,
  };
  const compose = async (...args: string[]): Promise<string> => {
    const options = { cwd: ROOT, env, timeout: BUILD_MS, maxBuffer: 1 << 26 };
    const { stdout } = await execute(program, [...prefix, ...args], options);
    return stdout;
  };
  return { compose, project, kafkaPort, opsPort, apiPort };
}

async function readiness(port: number): Promise<number | undefined> {
  try {
    return (await fetch(`http://127.0.0.1:${port}/readyz`, { signal: AbortSignal.timeout(2_000) })).status;
  } catch {
    return undefined;
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

test('docker-compose.yml serves a request from the host, by a worker that may write to nothing but its index', async (context) => {
  if (noEngine !== undefined && !process.env.CI) context.skip(`needs a container engine: ${noEngine}`);
  if (noEngine !== undefined) throw new Error(`CI is set, so the images must be tested: ${noEngine}`);
  await ensureImages(['kafka', 'etcd', 'node'], log);
  const { compose, project, kafkaPort, opsPort, apiPort } = await composeProject();
  try {
    log('building the image of the worker');
    await compose('build');
    await compose('up', '-d');
    try {
      await expect.poll(() => readiness(opsPort), { timeout: READY_MS, interval: 250 }).toBe(200);
    } catch (error) {
      log(await compose('logs', '--tail=40'));
      throw error;
    }
    const { stdout } = await execute(process.execPath, ['src/main.ts', 'request', '--count', '3', '--json'], {
      cwd: ROOT,
      env: { ...process.env, KAFKA_BROKERS: `127.0.0.1:${kafkaPort}` },
      timeout: READY_MS,
    });
    const reply = JSON.parse(stdout);
    expect(reply).toMatchObject({ count: 3, datacenter_id: 0, replayed: false });
    expect(new Set(reply.ids.map((id: { value_string: string }) => id.value_string)).size).toBe(3);

    const overHttp = await fetch(`http://127.0.0.1:${apiPort}/api/v1/ids?count=3`);
    expect(await overHttp.json()).toMatchObject({ ids: { length: 3 } });

    const worker = (await compose('ps', '-q', 'worker')).trim();
    const touch = (path: string) => docker(['exec', worker, 'node', '-e', `fs.writeFileSync('${path}', '')`]);
    expect((await docker(['exec', worker, 'node', '-p', 'process.getuid()'])).stdout.trim()).toBe('1000');
    expect((await touch('/app/x')).code).not.toBe(0);
    expect((await touch('/var/lib/idalloc/x')).code).toBe(0);
    await expect.poll(() => healthOf(worker), { timeout: READY_MS, interval: 500 }).toBe('healthy');
  } finally {
    await compose('down', '--volumes', '--timeout', '20');
  }
  expect(await containersOf(project)).toEqual([]);
}, 900_000);

async function healthOf(container: string): Promise<string> {
  return (await docker(['inspect', '--format', '{{.State.Health.Status}}', container])).stdout.trim();
}
