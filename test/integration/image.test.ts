import { GenericContainer } from 'testcontainers';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { docker } from '../../ops/dev/docker-engine.ts';
import { buildWorkerImage, ensureImages, IMAGES } from '../../ops/dev/images.ts';
import { readManifest } from '../../ops/release/packages.ts';
import { readBom } from '../../ops/release/sbom.ts';
import { IdAllocEnvironment } from '../../src/testcontainers/index.ts';
import { ownerLabels } from '../support/container-servers.ts';
import { requireEngine } from '../support/engine.ts';
import { decodeSpans } from '../support/otlp-receiver.ts';
import { unique } from '../support/unique.ts';

const BUILD_MS = 900_000;
const STOP_MS = 120_000;
const READY_MS = 180_000;
/** What the worker adds to Node's image. */
const MOST_BYTES = 40_000_000;
const IMAGE = `idalloc-test-image:${unique()}`;
const TRACING_IMAGE = `${IMAGE}-traces`;
const MSK_IMAGE = `${IMAGE}-msk`;
const SDK = '@opentelemetry/sdk-node';
const SIGNER = 'aws-msk-iam-sasl-signer-js';
/** A collector of a few lines: it prints what it receives. */
const COLLECTOR = `require('node:http').createServer(async (request, response) => {
  console.log(Buffer.concat(await request.toArray()).toString('base64'));
  response.end();
}).listen(4318)`;
/** No server of these answers, so the worker waits for them. */
const SERVERS = ['KAFKA_BROKERS=127.0.0.1:1', 'ETCD_ENDPOINTS=http://127.0.0.1:1', 'DATACENTER_ID=0'];
const { noEngine } = inject('servers');
const log = (line: string) => process.stderr.write(`image test: ${line}\n`);

beforeAll(async () => {
  if (noEngine !== undefined) return;
  await ensureImages(['node'], log);
  log('building the image of the worker');
  await buildWorkerImage(IMAGE, { labels: { 'org.opencontainers.image.revision': 'a-commit' } });
  await buildWorkerImage(TRACING_IMAGE, { args: { TRACES: '1' } });
  await buildWorkerImage(MSK_IMAGE, { args: { MSK: '1' } });
}, BUILD_MS);
afterAll(() => docker(['image', 'rm', '--force', IMAGE, TRACING_IMAGE, MSK_IMAGE], STOP_MS));

/** Runs docker, and returns what it prints; throws with what it complains about. */
async function run(...args: readonly string[]): Promise<string> {
  const { code, stdout, stderr } = await docker(args, STOP_MS);
  if (code !== 0) throw new Error(`docker ${args.join(' ')}: ${stderr}`);
  return stdout.trim();
}

const inspected = async (format: string, image = IMAGE) =>
  JSON.parse(await run('image', 'inspect', '--format', `{{json ${format}}}`, image));

test('the image adds little to that of Node, also with traces, and says what it is', async (context) => {
  requireEngine(context);
  const sizes = await Promise.all([IMAGE, TRACING_IMAGE].map((image) => inspected('.Size', image)));
  const node = await inspected('.Size', IMAGES.node);
  const added = sizes.map((size) => Math.round((size - node) / 1e6));
  await context.annotate(`the worker adds ${added[0]} MB to Node's image, and ${added[1]} MB with traces`);
  expect(Math.max(...sizes)).toBeLessThan(node + MOST_BYTES);
  expect(await inspected('.Config.Labels')).toMatchObject({
    'org.opencontainers.image.title': 'idalloc',
    'org.opencontainers.image.description': expect.stringContaining('Kafka'),
    'org.opencontainers.image.licenses': readManifest().license,
    'org.opencontainers.image.revision': 'a-commit',
  });
});

/** The packages in the bill of materials of an image, and those that are installed. */
async function packagesOf(image: string): Promise<Record<'listed' | 'installed', Set<string>>> {
  const bom = JSON.parse(await run('run', '--rm', '--entrypoint', 'cat', image, '/app/idalloc.cdx.json'));
  const list = `require('node:fs').globSync('/app/node_modules/**/package.json').map((path) => require(path))
    .filter((one) => one.name && one.version).map((one) => one.name + '@' + one.version).join(' ')`;
  const installed = await run('run', '--rm', '--entrypoint', 'node', image, '-p', list);
  const listed = bom.components.map(({ name, version }: { name: string; version: string }) => `${name}@${version}`);
  return { listed: new Set<string>(listed), installed: new Set(installed.split(' ')) };
}

test('its bill of materials has every package that is shipped, and only what is installed', async (context) => {
  requireEngine(context);
  const { listed, installed } = await packagesOf(IMAGE);
  expect([...listed.difference(installed)]).toEqual([]);
  // npm installs of the packages for several platforms only this one's.
  const missing = (await readBom()).components
    .map(({ name, version }) => `${name}@${version}`)
    .filter((one) => installed.has(one) && !listed.has(one));
  expect(missing).toEqual([]);
  expect(listed.size).toBeGreaterThan(100);
});

test('with TRACES=1 its bill of materials has the SDK of the lock file, and a collector receives its spans', async (context) => {
  requireEngine(context);
  const { listed, installed } = await packagesOf(TRACING_IMAGE);
  expect([...listed.difference(installed)]).toEqual([]);
  expect(listed).toContain(`${SDK}@${readManifest().devDependencies[SDK]}`);

  await ensureImages(['kafka', 'etcd'], log);
  const labels = ownerLabels();
  await using env = await new IdAllocEnvironment()
    .withImages({ worker: TRACING_IMAGE })
    .withWorkerEnvironment({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318', OTEL_BSP_SCHEDULE_DELAY: '100' })
    .withClient({ prefetch: false })
    .withLabels(labels)
    .start();
  await using collector = await new GenericContainer(IMAGES.node)
    .withCommand(['node', '-e', COLLECTOR])
    .withNetwork(env.network)
    .withNetworkAliases('collector')
    .withLabels(labels)
    .start();
  const received = async () => {
    await env.client.request({ count: 1 });
    const bodies = (await docker(['logs', collector.getId()])).stdout.split('\n').filter(Boolean);
    return bodies.flatMap((body) => decodeSpans(Buffer.from(body, 'base64')));
  };
  const processed = expect.objectContaining({ service: 'idalloc', name: `process ${env.topics.requests}` });
  await expect.poll(received, { timeout: READY_MS, interval: 500 }).toContainEqual(processed);
});

test('with MSK=1 it signs logins to Amazon MSK with the credentials of its environment, and lists the signer', async (context) => {
  requireEngine(context);
  const { listed, installed } = await packagesOf(MSK_IMAGE);
  expect([...listed.difference(installed)]).toEqual([]);
  expect(listed).toContain(`${SIGNER}@${readManifest().devDependencies[SIGNER]}`);
  const size = (await inspected('.Size', MSK_IMAGE)) - (await inspected('.Size'));
  await context.annotate(`the signer adds ${Math.round(size / 1e6)} MB`);

  const sign = `import('${SIGNER}').then(async ({ generateAuthToken }) => {
    const { token } = await generateAuthToken({ region: 'eu-central-1' });
    console.log(Buffer.from(token, 'base64url').toString());
  })`;
  const login = ['--env', 'AWS_ACCESS_KEY_ID=key', '--env', 'AWS_SECRET_ACCESS_KEY=secret'];
  const signed = await run('run', '--rm', '--read-only', ...login, '--entrypoint', 'node', MSK_IMAGE, '-e', sign);
  expect(signed).toMatch(
    /^https:\/\/kafka\.eu-central-1\.amazonaws\.com\/\?Action=kafka-cluster%3AConnect&.*Credential=key/,
  );
  const without = await run(
    'run',
    '--rm',
    '--entrypoint',
    'node',
    IMAGE,
    '-e',
    `import('${SIGNER}').catch((e) => console.log(e.code))`,
  );
  expect(without).toBe('ERR_MODULE_NOT_FOUND');
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
