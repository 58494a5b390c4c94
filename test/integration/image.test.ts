import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { docker } from '../../ops/dev/docker-engine.ts';
import { buildWorkerImage, ensureImages, IMAGES } from '../../ops/dev/images.ts';
import { readManifest } from '../../ops/release/packages.ts';
import { readBom } from '../../ops/release/sbom.ts';
import { requireEngine } from '../support/engine.ts';

const BUILD_MS = 900_000;
const STOP_MS = 60_000;
const READY_MS = 60_000;
/** What the worker adds to Node's image. */
const MOST_BYTES = 40_000_000;
const IMAGE = `idalloc-test-image:${randomUUID()}`;
/** No server of these answers, so the worker waits for them. */
const SERVERS = ['KAFKA_BROKERS=127.0.0.1:1', 'ETCD_ENDPOINTS=http://127.0.0.1:1', 'DATACENTER_ID=0'];
const { noEngine } = inject('servers');

beforeAll(async () => {
  if (noEngine !== undefined) return;
  const log = (line: string) => process.stderr.write(`image test: ${line}\n`);
  await ensureImages(['node'], log);
  log('building the image of the worker');
  await buildWorkerImage(IMAGE, { 'org.opencontainers.image.revision': 'a-commit' });
}, BUILD_MS);
afterAll(() => docker(['image', 'rm', '--force', IMAGE], STOP_MS));

/** Runs docker, and returns what it prints; throws with what it complains about. */
async function run(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await docker(args, STOP_MS);
  if (code !== 0) throw new Error(`docker ${args.join(' ')}: ${stderr}`);
  return stdout.trim();
}

const inspected = async (format: string, image = IMAGE) =>
  JSON.parse(await run('image', 'inspect', '--format', `{{json ${format}}}`, image));

test('the image adds little to that of Node, and says what it is', async (context) => {
  requireEngine(context);
  const added = (await inspected('.Size')) - (await inspected('.Size', IMAGES.node));
  await context.annotate(`the worker adds ${Math.round(added / 1e6)} MB to Node's image`);
  expect(added).toBeLessThan(MOST_BYTES);
  expect(await inspected('.Config.Labels')).toMatchObject({
    'org.opencontainers.image.title': 'idalloc',
    'org.opencontainers.image.description': expect.stringContaining('Kafka'),
    'org.opencontainers.image.licenses': readManifest().license,
    'org.opencontainers.image.revision': 'a-commit',
  });
});

test('its bill of materials has every package that is shipped, and only what is installed', async (context) => {
  requireEngine(context);
  const bom = JSON.parse(await run('run', '--rm', '--entrypoint', 'cat', IMAGE, '/app/idalloc.cdx.json'));
  const list = `require('node:fs').globSync('/app/node_modules/**/package.json').map((path) => require(path))
    .filter((one) => one.name && one.version).map((one) => one.name + '@' + one.version).join(' ')`;
  const installed = new Set((await run('run', '--rm', '--entrypoint', 'node', IMAGE, '-p', list)).split(' '));
  const components = new Set<string>(
    bom.components.map(({ name, version }: { name: string; version: string }) => `${name}@${version}`),
  );
  expect([...components].filter((one) => !installed.has(one))).toEqual([]);
  // npm installs of the packages for several platforms only this one's.
  const missing = (await readBom()).components
    .map(({ name, version }) => `${name}@${version}`)
    .filter((one) => installed.has(one) && !components.has(one));
  expect(missing).toEqual([]);
  expect(components.size).toBeGreaterThan(100);
});

test.for([
  ['its own user', []],
  ['any other user', ['--user', '54321']],
])(
  'as %s and without an init, it starts on a read-only root, is healthy, and stops on SIGTERM at once',
  async ([, user], context) => {
    requireEngine(context);
    const env = SERVERS.flatMap((one) => ['--env', one]);
    const options = ['--read-only', '--tmpfs', '/tmp', '--volume', '/var/lib/idalloc', '--health-interval=1s'];
    const id = await run('run', '--detach', ...options, ...(user ?? []), ...env, IMAGE);
    try {
      const health = () => run('inspect', '--format', '{{.State.Health.Status}}', id);
      await expect.poll(health, { timeout: READY_MS }).toBe('healthy');
      expect(await run('exec', id, 'cat', '/proc/1/comm')).toMatch(/node|MainThread/);
      expect((await docker(['exec', id, 'touch', '/app/x'])).code).not.toBe(0);
      expect((await docker(['exec', id, 'touch', '/var/lib/idalloc/x'])).code).toBe(0);
      await run('stop', '--time', '30', id);
      // 137 would be SIGKILL after the time is over.
      expect(await run('inspect', '--format', '{{.State.ExitCode}}', id)).toBe('0');
    } finally {
      await docker(['rm', '--force', '--volumes', id], STOP_MS);
    }
  },
);
