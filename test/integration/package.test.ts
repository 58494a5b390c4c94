import { execFile } from 'node:child_process';
import {
  accessSync,
  constants,
  copyFileSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { buildWorkerImages } from '../../ops/dev/images.ts';
import { blockCommands, blocksOf, readPage } from '../support/docs.ts';
import { DATACENTER_ID, Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const TIMEOUT_MS = 120_000;
const { noEngine } = inject('servers');

/** What a service's tsconfig.json is likely to have, at its strictest. */
const TSCONFIG = {
  compilerOptions: {
    module: 'nodenext',
    target: 'es2023',
    lib: ['es2023', 'esnext.disposable'],
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    skipLibCheck: false,
    types: ['node'],
    typeRoots: [join(ROOT, 'node_modules/@types')],
  },
  include: ['consumer.ts'],
};

let project: string;

/** The program that a page shows which imports `module`. */
function exampleOf(page: string, module: string): string {
  const found = blocksOf(readPage(page)).filter(({ body }) => body.some((line) => line.endsWith(`from ${module};`)));
  expect(found).toHaveLength(1);
  return `${found[0]?.body.join('\n')}\n`;
}

/** The machine's own node, which is older than the one that this repository brings with it. */
function plainNode(): string {
  const found = (process.env.PATH ?? '')
    .split(delimiter)
    .filter((dir) => dir !== '' && !dir.includes('node_modules'))
    .map((dir) => join(dir, 'node'))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
  return found ?? process.execPath;
}

beforeAll(async () => {
  project = mkdtempSync(join(tmpdir(), 'idalloc-consumer-'));
  await run('npm', ['pack', '--pack-destination', project], { cwd: ROOT, timeout: TIMEOUT_MS });
  const [tarball] = readdirSync(project).filter((name) => name.endsWith('.tgz'));
  writeFileSync(join(project, 'package.json'), JSON.stringify({ private: true, type: 'module' }));
  const install = ['install', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', `./${tarball}`];
  await run('npm', install, { cwd: project, timeout: TIMEOUT_MS });
});

afterAll(() => rmSync(project, { recursive: true, force: true }));

test('the package, installed from its tarball in an empty project, type-checks and works on the node of the machine', async ({
  annotate,
}) => {
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify(TSCONFIG));
  copyFileSync(join(ROOT, 'test/support/package-consumer.ts.txt'), join(project, 'consumer.ts'));
  await run(join(ROOT, 'node_modules/.bin/tsc'), ['--project', project], { timeout: TIMEOUT_MS });

  await using realm = await Realm.create(suiteServers());
  const worker = realm.worker();
  await worker.ready();
  const args = [join(project, 'consumer.js'), suiteServers().brokers.join(), realm.requestTopic, realm.replyTopic];
  const { stdout, stderr } = await run(plainNode(), args, { cwd: project, timeout: TIMEOUT_MS });
  const said = JSON.parse(stdout);
  await annotate(`measured: the client ran on node ${said.node}`);
  expect(said).toMatchObject({
    distinct: 1_007,
    decoded: { datacenterId: DATACENTER_ID },
    text: true,
    recent: true,
    replayed: true,
    sameBatch: true,
    refusal: 'CONFLICT',
    closed: 'CLIENT_CLOSED',
  });
  expect(stderr).toBe('');
});

test.for([
  ['README.md', /^\d{18,19}\n$/],
  [
    'docs/how-to/client.md',
    /^\d{18,19} [0-9A-Z]{13} \{[\s\S]*workerId: \d+[\s\S]*\}\n500 true\n\[ \{ first: \d+n, count: 3 \} \]\n$/,
  ],
  [
    'docs/how-to/sql-json-browsers.md',
    /^\{\n {2}timestampMs: \d{13},\n {2}datacenterId: \d+,\n {2}workerId: \d+,\n {2}sequence: \d+\n\}\n$/,
  ],
] as const)(
  'the example of %s runs as it stands, but for the names of topics',
  async ([page, printed], { annotate }) => {
    await using realm = await Realm.create(suiteServers());
    await realm.worker().ready();
    const example = exampleOf(page, "'idalloc/client'");
    const [broker] = suiteServers().brokers;
    const here = example
      .replace("'localhost:9092'", `'${broker}'`)
      .replace("'id.replies.orders'", `'${realm.replyTopic}', requestTopic: '${realm.requestTopic}'`);
    expect(here).toContain(realm.replyTopic);
    writeFileSync(join(project, 'example.js'), here);
    const { stdout, stderr } = await run(plainNode(), [join(project, 'example.js')], { timeout: TIMEOUT_MS });
    await annotate(`printed:\n${stdout}`);
    expect(stdout).toMatch(printed);
    expect(stderr).toBe('');
  },
);

test('the example of docs/reference/forms.md runs as it stands, after the command that makes its key', async () => {
  const page = 'docs/reference/forms.md';
  const makeKey = blockCommands(readPage(page)).find(({ command }) => command.endsWith('> form.key'))?.command ?? '';
  await run('sh', ['-c', makeKey], { cwd: project });
  writeFileSync(join(project, 'forms.js'), exampleOf(page, "'idalloc/client'"));
  const { stdout } = await run(plainNode(), ['forms.js'], { cwd: project, timeout: TIMEOUT_MS });
  expect(stdout).toBe('01M7ZCQJ2T0E0016N4EXDYM0A6\nord_038FW90B81R00M\n117652451833733120n\n');
});

test("the testcontainers example of docs/how-to/tests.md type-checks and runs as it stands, beside the user's own testcontainers", async (context) => {
  if (noEngine !== undefined && !process.env.CI) context.skip(`needs a container engine: ${noEngine}`);
  if (noEngine !== undefined) throw new Error(`CI is set, so the containers must be tested: ${noEngine}`);
  await buildWorkerImages((line) => process.stderr.write(`package test: ${line}\n`));
  const example = exampleOf('docs/how-to/tests.md', "'idalloc/testcontainers'");
  writeFileSync(join(project, 'example.ts'), example);
  symlinkSync(join(ROOT, 'node_modules/testcontainers'), join(project, 'node_modules/testcontainers'));
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ ...TSCONFIG, include: ['example.ts'] }));
  await run(join(ROOT, 'node_modules/.bin/tsc'), ['--noEmit', '--project', project], { timeout: TIMEOUT_MS });
  const { stdout } = await run(process.execPath, [join(project, 'example.ts')], { timeout: TIMEOUT_MS });
  await context.annotate(`printed:\n${stdout}`);
  expect(stdout).toMatch(/requests: 'id\.requests'[\s\S]*\n100 \[ \{ first: \d+n, count: 3 \} \]\n$/);
}, 900_000);

test('the command of the package runs on the node that it needs, and names it on an older one', async () => {
  const command = join(project, 'node_modules/idalloc/dist/bin.js');
  const { stdout } = await run(process.execPath, [command, 'decode', '55325805773398016']);
  expect(stdout).toContain('2026-06-02T16:05:00.000Z');
  const asOlder = ['--import', "data:text/javascript,Object.defineProperty(process.versions,'node',{value:'20.20.2'})"];
  await expect(run(process.execPath, [...asOlder, command, 'decode', '1'])).rejects.toMatchObject({
    code: 78,
    stdout: '',
    stderr: expect.stringMatching(/^idalloc: .*Node 24 or later, and this is 20\.20\.2.*\n$/),
  });
});

test('only what is meant for others can be imported', async () => {
  const importing = (name: string) =>
    run(plainNode(), ['--input-type=module', '-e', `import '${name}'`], { cwd: project });
  await importing('idalloc/client');
  await expect(importing('idalloc/dist/worker.js')).rejects.toThrow('ERR_PACKAGE_PATH_NOT_EXPORTED');
});
