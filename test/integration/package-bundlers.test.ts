import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runtimeOf, TOOLS, tool } from '../support/package-tools.ts';
import {
  compiledConsumer,
  exampleIn,
  exampleOf,
  expectServedBy,
  PackedProjects,
  plainNode,
  run,
  TIMEOUT_MS,
} from '../support/packed-projects.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

type Format = 'module' | 'commonjs';

let projects: PackedProjects;
let realm: Realm;
/** A project of each module system, with the client and a service that is compiled for it. */
let project: Readonly<Record<Format, string>>;

/** How a service is bundled: with these arguments, without a configuration file. */
interface Bundling {
  readonly source: Format;
  readonly bundler: string;
  readonly args: readonly string[];
  /** What is written, with the program first. */
  readonly output: string;
}

const SERVICE = 'consumer.js';
const WEBPACK = [
  ...['--mode', 'production', '--target', 'node', '--output-path', 'out', '--output-filename', 'main.cjs'],
  ...['--entry', `./${SERVICE}`],
];

const BUNDLINGS: readonly Bundling[] = [
  ...(['module', 'commonjs'] as const).flatMap((source): Bundling[] => [
    {
      source,
      bundler: 'esbuild',
      args: [SERVICE, '--outfile=out/main.cjs', '--bundle', '--platform=node'],
      output: 'main.cjs',
    },
    {
      source,
      bundler: 'esbuild',
      args: [SERVICE, '--outfile=out/main.mjs', '--bundle', '--platform=node', '--format=esm'],
      output: 'main.mjs',
    },
    { source, bundler: 'webpack', args: WEBPACK, output: 'main.cjs' },
  ]),
  { source: 'module', bundler: 'rollup', args: [SERVICE, '--plugin', 'node-resolve', '--dir', 'out'], output: SERVICE },
  {
    source: 'commonjs',
    bundler: 'rollup',
    args: [SERVICE, '--plugin', 'node-resolve', '--plugin', 'commonjs', '--format', 'cjs', '--dir', 'out'],
    output: SERVICE,
  },
];

const RUNTIMES = [
  ['Node 20', 'node-20-linux-CPU/bin/node', []],
  ['Node 22', 'node-22-linux-CPU/bin/node', []],
  ['Node 24', 'node-24-linux-CPU/bin/node', []],
  ['Bun', '@oven/bun-linux-CPU/bin/bun', []],
  ['Deno', '@deno/linux-CPU-glibc/deno', ['run', '--allow-all']],
] as const;

/** Bundles a file of a project; returns the program, in a directory without node_modules. */
async function bundled(from: string, { source, bundler, args, output }: Bundling): Promise<string> {
  await tool(bundler, args, from);
  const alone = mkdtempSync(join(projects.place, 'alone-'));
  cpSync(join(from, 'out'), alone, { recursive: true });
  // webpack and esbuild write CommonJS unless they are told otherwise; rollup keeps the module system.
  if (bundler === 'rollup') writeFileSync(join(alone, 'package.json'), JSON.stringify({ type: source }));
  return join(alone, output);
}

describe.skipIf(TOOLS.why !== undefined && !process.env.CI)(`the packed client${TOOLS.title}`, () => {
  beforeAll(async () => {
    if (TOOLS.why !== undefined) throw new Error(`CI is set, so bundlers and runtimes must be tested: ${TOOLS.why}`);
    projects = await PackedProjects.build();
    project = {
      module: await projects.projectWith(['@idalloc/client']),
      commonjs: await projects.projectWith(['@idalloc/client'], 'commonjs'),
    };
    await compiledConsumer(project.module);
    await compiledConsumer(project.commonjs);
    realm = await Realm.create(suiteServers());
    await realm.worker().ready();
  });
  afterAll(async () => {
    await realm?.[Symbol.asyncDispose]();
    projects?.[Symbol.dispose]();
  });

  /** A copy of a project, so that bundlers do not find what others wrote. */
  function copyOf(format: Format): string {
    const copy = mkdtempSync(join(projects.place, 'copy-'));
    cpSync(project[format], copy, { recursive: true });
    return copy;
  }

  test.for(BUNDLINGS.map((one) => [one.bundler, one.source, one.args.slice(1).join(' '), one] as const))(
    'serves IDs bundled by %s from a service in %s (%s), without node_modules',
    async ([, , , bundling], { annotate }) => {
      const program = await bundled(copyOf(bundling.source), bundling);
      await annotate(`measured: ${readFileSync(program).length} bytes`);
      for (const [name, path, args] of RUNTIMES) {
        const { node } = await expectServedBy(realm, [runtimeOf(path), ...args, program]);
        await annotate(`${name}: it says that it is ${node}`);
      }
    },
  );

  test('serves IDs in the output of vite build --ssr, which leaves packages where they are', async () => {
    const copy = copyOf('module');
    await tool('vite', ['build', '--ssr', SERVICE, '--outDir', 'out'], copy);
    await expectServedBy(realm, [plainNode(), join(copy, 'out', SERVICE)]);
  });

  test.for([
    ['esbuild', ['example.js', '--bundle', '--platform=node', '--outfile=out/service.cjs'], 'service.cjs'],
    ['webpack', WEBPACK.with(-1, './example.js'), 'main.cjs'],
    ['rollup', ['example.js', '--plugin', 'node-resolve', '--dir', 'out'], 'example.js'],
  ] as const)('runs the example of docs/how-to/client.md bundled by %s', async ([bundler, args, output]) => {
    const copy = copyOf('module');
    writeFileSync(join(copy, 'example.js'), exampleIn(realm, exampleOf('docs/how-to/client.md', '@idalloc/client')));
    const program = await bundled(copy, { source: 'module', bundler, args, output });
    const { stdout, stderr } = await run(plainNode(), [program], { timeout: TIMEOUT_MS });
    expect(stdout).toMatch(/^\d{18,19} [0-9A-Z]{13} \{[\s\S]*\}\n500 true\n\[ \{ first: \d+n, count: 3 \} \]\n$/);
    expect(stderr).toBe('');
  });

  test('reads IDs in a page that vite built from the example of docs/how-to/sql-json-browsers.md', async () => {
    const copy = copyOf('module');
    const example = exampleOf('docs/how-to/sql-json-browsers.md', '@idalloc/client/ids');
    writeFileSync(join(copy, 'page.js'), example);
    writeFileSync(join(copy, 'index.html'), '<!doctype html><script type="module" src="./page.js"></script>');
    await tool('vite', ['build'], copy);
    const [script = ''] = readdirSync(join(copy, 'dist/assets')).filter((name) => name.endsWith('.js'));
    const body = `globalThis.document = { body: {}, createElement: () => ({}), querySelectorAll: () => [], querySelector: () => null };
      globalThis.MutationObserver = class { observe() {} };
      await import(${JSON.stringify(join(copy, 'dist/assets', script))}); console.log(document.body.textContent);`;
    const { stdout } = await run(plainNode(), ['--input-type=module', '-e', body]);
    expect(stdout).toBe('order 55325805773398016, placed at 2026-06-02T16:05:00.000Z\n');
  });

  test.for(
    RUNTIMES.flatMap(([name, path, args]) =>
      (['module', 'commonjs'] as const).map((format) => [name, format, path, args] as const),
    ),
  )('serves IDs on %s, in a project of type %s', async ([, format, path, args], { annotate }) => {
    const { node } = await expectServedBy(realm, [runtimeOf(path), ...args, join(project[format], SERVICE)]);
    await annotate(`measured: it says that it is ${node}`);
  });

  test.for([
    ['esbuild', [SERVICE, '--outfile=out/main.cjs', '--bundle', '--platform=node']],
    ['webpack', WEBPACK],
    ['rollup', [SERVICE, '--plugin', 'node-resolve', '--plugin', 'commonjs', '--dir', 'out']],
  ] as const)(
    'is bundled by %s where lz4-napi is installed, whose native code no bundle can hold',
    async ([bundler, args]) => {
      const copy = copyOf('module');
      const lz4 = join(copy, 'node_modules/lz4-napi');
      mkdirSync(lz4);
      writeFileSync(
        join(lz4, 'package.json'),
        JSON.stringify({ name: 'lz4-napi', version: '2.10.0', main: 'index.js' }),
      );
      writeFileSync(join(lz4, 'index.js'), "module.exports = require('./native.node');\n");
      writeFileSync(join(lz4, 'native.node'), 'not JavaScript');
      await tool(bundler, args, copy);
      const written = readdirSync(join(copy, 'out'), { withFileTypes: true }).filter((entry) => entry.isFile());
      expect(written.map(({ name }) => readFileSync(join(copy, 'out', name), 'utf8')).join()).toContain('lz4-napi');
    },
  );
});
