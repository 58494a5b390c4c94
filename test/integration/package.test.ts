import { globSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest';
import { buildWorkerImages } from '../../ops/dev/images.ts';
import { ROOT } from '../../ops/dev/paths.ts';
import { buildPackages, type Packed, readManifest } from '../../ops/release/packages.ts';
import { blockCommands, blocksOf, readPage } from '../support/docs.ts';
import { chromium } from '../support/example-tools.ts';
import {
  BIN,
  compile,
  compiledConsumer,
  exampleIn,
  exampleOf,
  expectServed,
  mib,
  PackedProjects,
  plainNode,
  run,
  TIMEOUT_MS,
} from '../support/packed-projects.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const MIB = 1024 * 1024;
/** Options of a Node that calls itself this older one. */
const AS_OLDER = ['--import', "data:text/javascript,Object.defineProperty(process.versions,'node',{value:'20.20.2'})"];
const { noEngine } = inject('servers');

let projects: PackedProjects;
/** A project of ES modules that has the client. */
let service: string;

/** The installed packages by name, and the bytes of their files. */
function installedIn(project: string): { readonly names: readonly string[]; readonly bytes: number } {
  const { packages } = JSON.parse(readFileSync(join(project, 'node_modules/.package-lock.json'), 'utf8'));
  const names = Object.keys(packages).map((path) => path.replace(/^.*node_modules\//, ''));
  const files = globSync(join(project, 'node_modules/**'), { withFileTypes: true }).filter((entry) => entry.isFile());
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  return { names: names.sort(), bytes };
}

beforeAll(async () => {
  projects = await PackedProjects.build();
  service = await projects.projectWith(['@idalloc/client']);
});

afterAll(() => projects?.[Symbol.dispose]());

test.for([
  ['client', 'docs/quickstart.md', '@idalloc/client'],
  ['testcontainers', 'docs/how-to/tests.md', '@idalloc/testcontainers'],
  ['nestjs', 'docs/how-to/client.md', '@idalloc/nestjs'],
] as const)('the page of %s in the registry shows the example that %s shows', ([name, page, module]) => {
  expect(exampleOf(`ops/release/readme/${name}.md`, module)).toBe(exampleOf(page, module));
});

describe('@idalloc/client', () => {
  const PROGRAMS: readonly [how: string, make: () => Promise<string>][] = [
    [
      'as CommonJS, in strict TypeScript',
      async () => {
        const program = await compiledConsumer(await projects.projectWith(['@idalloc/client'], 'commonjs'));
        expect(readFileSync(program, 'utf8')).toContain('require("@idalloc/client")');
        return program;
      },
    ],
  ];

  test.for(PROGRAMS)('serves IDs %s, on the node of the machine', async ([, make], { annotate }) => {
    await expectServed(await make(), annotate);
  });

  test.for([
    [
      'docs/how-to/client.md',
      /^\d{18,19} [0-9A-Z]{13} \{[\s\S]*workerId: \d+[\s\S]*\}\n500 true\n\[ \{ first: \d+n, count: 3 \} \]\n$/,
    ],
    [
      'docs/how-to/sql-json-browsers.md',
      /^\{\n {2}timestampMs: \d{13},\n {2}datacenterId: \d+,\n {2}workerId: \d+,\n {2}sequence: \d+\n\}\n$/,
    ],
  ] as const)(
    'runs the example of %s as it stands, but for the names of topics',
    async ([page, printed], { annotate }) => {
      await using realm = await Realm.create(suiteServers());
      await realm.worker().ready();
      const example = exampleOf(page, '@idalloc/client');
      writeFileSync(join(service, 'example.mjs'), exampleIn(realm, example));
      const { stdout, stderr } = await run(plainNode(), [join(service, 'example.mjs')], { timeout: TIMEOUT_MS });
      await annotate(`printed:\n${stdout}`);
      expect(stdout).toMatch(printed);
      expect(stderr).toBe('');
    },
  );

  test('runs the example of docs/how-to/tests.md for unit tests as it stands, with the output that it shows', async () => {
    const page = 'docs/how-to/tests.md';
    writeFileSync(join(service, 'unit.mjs'), exampleOf(page, '@idalloc/client/testing'));
    const shown = blocksOf(readPage(page))
      .find(({ language }) => language === 'console')
      ?.body.join('\n');
    const { stdout, stderr } = await run(plainNode(), ['unit.mjs'], { cwd: service, timeout: TIMEOUT_MS });
    expect(stdout).toBe(`${shown}\n`);
    expect(stderr).toBe('');
  });

  test('runs the example of docs/reference/forms.md as it stands, after the command that makes its key', async () => {
    const page = 'docs/reference/forms.md';
    const makeKey = blockCommands(readPage(page)).find(({ command }) => command.endsWith('> form.key'))?.command ?? '';
    await run('sh', ['-c', makeKey], { cwd: service });
    writeFileSync(join(service, 'forms.js'), exampleOf(page, '@idalloc/client'));
    const { stdout } = await run(plainNode(), ['forms.js'], { cwd: service, timeout: TIMEOUT_MS });
    expect(stdout).toBe('01M7ZCQJ2T0E0016N4EXDYM0A6\nord_038FW90B81R00M\n117652451833733120n\n');
  });

  test('brings no other package, and is less than 4 MiB, source maps included', async ({ annotate }) => {
    const { names, bytes } = installedIn(service);
    await annotate(`measured: ${names.length} packages, ${mib(bytes)}`);
    expect(names).toEqual(['@idalloc/client']);
    expect(bytes).toBeLessThan(4 * MIB);
  });

  test('has the licence of each package that is bundled into it', () => {
    const bundled = projects.packed.find(({ name }) => name === '@idalloc/client')?.bundled ?? [];
    expect(bundled).toEqual(expect.arrayContaining(['@noble/ciphers', 'avsc', 'kafkajs']));
    const licenses = readFileSync(join(service, 'node_modules/@idalloc/client/THIRD-PARTY-LICENSES'), 'utf8');
    for (const name of bundled) expect(licenses).toMatch(new RegExp(`^${name} \\d`, 'm'));
    expect(licenses.match(/Permission is hereby granted/g)?.length).toBeGreaterThanOrEqual(bundled.length);
  });

  test('shares the classes of errors between its entries, in both module systems', async () => {
    const check = `try { ids.parse('?', 'hex') } catch (error) { console.log(error instanceof client.IdallocError, error.code) }
      new testing.MemoryWorkers().connect().then((made) => { console.log(made instanceof client.IdClient); return made.close() })`;
    const load = (how: string) =>
      `const [client, ids, testing] = [${['', '/ids', '/testing'].map((entry) => `${how}('@idalloc/client${entry}')`)}]; ${check}`;
    const esm = await run(plainNode(), ['--input-type=module', '-e', load('await import')], { cwd: service });
    const cjs = await run(plainNode(), ['--input-type=commonjs', '-e', load('require')], { cwd: service });
    expect([esm.stdout, cjs.stdout]).toEqual(['true INVALID_ID\ntrue\n', 'true INVALID_ID\ntrue\n']);
  });

  test.for([
    ['the node of the machine', plainNode()],
    ['the pinned node', process.execPath],
  ] as const)('has one copy of its classes for a process that imports and requires it, on %s', async ([, node]) => {
    const check = `import * as esm from '@idalloc/client';
      const { createRequire } = await import('node:module');
      const cjs = createRequire(import.meta.url)('@idalloc/client');
      try { cjs.parse('?', 'hex') } catch (error) { console.log(error instanceof esm.IdallocError, error.code) }`;
    writeFileSync(join(service, 'both.mjs'), check);
    const { stdout, stderr } = await run(node, [join(service, 'both.mjs')]);
    expect([stdout, stderr]).toEqual(['true INVALID_ID\n', '']);
  });

  test('shows the lines of its sources in stack traces, whichever way it is loaded', async () => {
    const trace = (how: string) =>
      `const { parse } = ${how}('@idalloc/client'); try { parse('?', 'hex') } catch (error) { console.log(error.stack) }`;
    for (const [type, how] of [
      ['module', 'await import'],
      ['commonjs', 'require'],
    ] as const) {
      const args = ['--enable-source-maps', `--input-type=${type}`, '-e', trace(how)];
      const { stdout } = await run(plainNode(), args, { cwd: service });
      expect(stdout).toMatch(/\/@idalloc\/client\/src\/codec\/form\/form\.ts:\d+/);
    }
  });

  test('exports nothing but its entries', async () => {
    const importing = (name: string) =>
      run(plainNode(), ['--input-type=module', '-e', `import '${name}'`], { cwd: service });
    await importing('@idalloc/client');
    await importing('@idalloc/client/ids');
    await expect(importing('@idalloc/client/dist/esm/index.js')).rejects.toThrow('ERR_PACKAGE_PATH_NOT_EXPORTED');
  });
});

describe('@idalloc/client/ids', () => {
  test('type-checks for a browser, without the types of Node', async () => {
    writeFileSync(join(service, 'page.ts'), exampleOf('docs/how-to/sql-json-browsers.md', '@idalloc/client/ids'));
    const browser = ['--module', 'esnext', '--moduleResolution', 'bundler', '--lib', 'es2023,dom', '--types', ''];
    await compile(service, 'page.ts', ['--noEmit', ...browser]);
  });

  test('reads IDs in Chromium as docs/how-to/sql-json-browsers.md shows, from the files of the package', async (context) => {
    const tool = await chromium();
    if ('unavailable' in tool && !process.env.CI) context.skip(tool.unavailable);
    if ('unavailable' in tool) throw new Error(`CI is set, so the browser must be tested: ${tool.unavailable}`);
    const files = join(service, 'node_modules/@idalloc/client/dist/esm');
    const program = exampleOf('docs/how-to/sql-json-browsers.md', '@idalloc/client/ids');
    const imports = JSON.stringify({ imports: { '@idalloc/client/ids': '/ids.js' } });
    const page = `<!doctype html><script type="importmap">${imports}</script><body><script type="module">${program}</script>`;
    const server = createServer(({ url = '/' }, response) => {
      response.setHeader('content-type', url === '/' ? 'text/html' : 'text/javascript');
      if (url === '/') response.end(page);
      else if (/^\/[\w-]+\.js$/.test(url)) response.end(readFileSync(join(files, url)));
      else response.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const { port } = server.address() as AddressInfo;
      const { stdout } = await run(
        tool.path,
        [
          ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync'],
          ...['--disable-background-networking', '--disable-component-update'],
          ...[`--user-data-dir=${join(projects.place, 'chromium')}`, '--dump-dom', `http://127.0.0.1:${port}/`],
        ],
        { timeout: TIMEOUT_MS },
      );
      expect(stdout).toContain('order 55325805773398016, placed at 2026-06-02T16:05:00.000Z');
    } finally {
      server.close();
      server.closeAllConnections();
    }
  });

  test('is less than 20 KiB when a bundler has minified it and a server compressed it', async ({ annotate }) => {
    writeFileSync(join(service, 'all-of-ids.js'), "export * from '@idalloc/client/ids';\n");
    const options = ['--bundle', '--minify', '--format=esm', '--platform=browser'];
    const { stdout } = await run(join(BIN, 'esbuild'), ['all-of-ids.js', ...options], { cwd: service });
    const bytes = gzipSync(stdout).length;
    await annotate(`measured: ${stdout.length} bytes, ${bytes} compressed`);
    expect(bytes).toBeLessThan(20 * 1024);
  });
});

describe('@idalloc/testcontainers', () => {
  test("runs the example of docs/how-to/tests.md as it stands, in strict TypeScript beside the user's own testcontainers", async (context) => {
    if (noEngine !== undefined && !process.env.CI) context.skip(`needs a container engine: ${noEngine}`);
    if (noEngine !== undefined) throw new Error(`CI is set, so the containers must be tested: ${noEngine}`);
    await buildWorkerImages((line) => process.stderr.write(`package test: ${line}\n`));
    const project = await projects.projectWith(['@idalloc/client', '@idalloc/testcontainers']);
    symlinkSync(join(ROOT, 'node_modules/testcontainers'), join(project, 'node_modules/testcontainers'));
    writeFileSync(join(project, 'example.ts'), exampleOf('docs/how-to/tests.md', '@idalloc/testcontainers'));
    await compile(project, 'example.ts', ['--noEmit']);
    const { stdout } = await run(process.execPath, [join(project, 'example.ts')], { timeout: TIMEOUT_MS });
    await context.annotate(`printed:\n${stdout}`);
    expect(stdout).toMatch(/requests: 'id\.requests'[\s\S]*\n100 \[ \{ first: \d+n, count: 3 \} \]\n$/);
  }, 900_000);

  test('throws the errors of the client, in both module systems, and brings only the client', async () => {
    const project = await projects.projectWith(['@idalloc/client', '@idalloc/testcontainers']);
    expect(installedIn(project).names).toEqual(['@idalloc/client', '@idalloc/testcontainers']);
    symlinkSync(join(ROOT, 'node_modules/testcontainers'), join(project, 'node_modules/testcontainers'));
    const check = `try { new own.IdAllocEnvironment().withWorkers(-1) } catch (error) { console.log(error instanceof client.IdallocError, error.code) }`;
    const load = (how: string) =>
      `const client = ${how}('@idalloc/client'), own = ${how}('@idalloc/testcontainers'); ${check}`;
    const esm = await run(process.execPath, ['--input-type=module', '-e', load('await import')], { cwd: project });
    const cjs = await run(process.execPath, ['--input-type=commonjs', '-e', load('require')], { cwd: project });
    expect([esm.stdout, cjs.stdout]).toEqual(['true CONFIG_INVALID\n', 'true CONFIG_INVALID\n']);
  });

  test('names the Node that it needs on an older one, in both module systems, before it loads testcontainers', async () => {
    const project = await projects.projectWith(['@idalloc/client', '@idalloc/testcontainers']);
    const theirs = join(project, 'node_modules/testcontainers');
    mkdirSync(theirs);
    writeFileSync(join(theirs, 'package.json'), JSON.stringify({ name: 'testcontainers', main: 'index.js' }));
    const names = ['AbstractStartedContainer', 'GenericContainer', 'Network', 'RandomPortGenerator', 'Wait'];
    const exported = [...names, 'getContainerRuntimeClient'].map((name) => `exports.${name} = undefined;`);
    writeFileSync(join(theirs, 'index.js'), `${exported.join('\n')}\nthrow new SyntaxError('of testcontainers');\n`);
    const load = (how: string) =>
      `(async () => ${how}('@idalloc/testcontainers'))().catch(({ code, message }) => console.log(code, message))`;
    const loaded = (how: string, type: string, options: readonly string[] = []) =>
      run(process.execPath, [...options, `--input-type=${type}`, '-e', load(how)], { cwd: project });
    for (const [how, type] of [
      ['import', 'module'],
      ['require', 'commonjs'],
    ] as const) {
      const { stdout } = await loaded(how, type, AS_OLDER);
      expect(stdout).toMatch(
        /^CONFIG_INVALID .* needs Node 22\.22 or later, .* this is 20\.20\.2: .*MemoryWorkers.*\n$/,
      );
      expect((await loaded(how, type)).stdout).toBe('undefined of testcontainers\n');
    }
    const inCommonJs = join(project, 'node_modules/@idalloc/testcontainers/dist/cjs/index.js');
    const { stdout } = await loaded(`require.bind(null, ${JSON.stringify(inCommonJs)})`, 'commonjs', AS_OLDER);
    expect(stdout).toContain('CONFIG_INVALID');
  });
});

describe('idalloc', () => {
  test('has a command that runs on the node that it needs, and names that version on an older one', async ({
    annotate,
  }) => {
    const project = await projects.projectWith(['idalloc']);
    const { names, bytes } = installedIn(project);
    await annotate(`measured: ${names.length} packages, ${mib(bytes)}`);
    const command = join(project, 'node_modules/.bin/idalloc');
    const { stdout } = await run(process.execPath, [command, 'decode', '55325805773398016']);
    expect(stdout).toContain('2026-06-02T16:05:00.000Z');
    const version = await run(process.execPath, [command, '--version']);
    expect(version.stdout.trim()).toBe(readManifest().version);
    await expect(run(process.execPath, [...AS_OLDER, command, 'decode', '1'])).rejects.toMatchObject({
      code: 78,
      stdout: '',
      stderr: expect.stringMatching(/^idalloc: .*Node 24 or later, and this is 20\.20\.2.*\n$/),
    });
  });
});

test('a package that is built again from the same sources has the same bytes', async () => {
  mkdirSync(join(projects.place, 'again'));
  const again = await buildPackages(join(projects.place, 'again/tarballs'), () => {});
  const bytesOf = ({ tarball }: Packed) => readFileSync(tarball).toString('base64');
  expect(again.map(bytesOf)).toEqual(projects.packed.map(bytesOf));
});
