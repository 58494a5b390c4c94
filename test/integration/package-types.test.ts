import { copyFileSync, globSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../support/docs.ts';
import { TOOLS, tool, toolPath } from '../support/package-tools.ts';
import { addConsumer, compile, exampleOf, PackedProjects, run, TIMEOUT_MS } from '../support/packed-projects.ts';

let projects: PackedProjects;
/** A project that has the client. */
let service: string;

/** Compiles a file of the project with TypeScript 5.0 and the strictest checks, those of declarations included. */
async function compileByOldest(file: string, options: Readonly<Record<string, unknown>>): Promise<void> {
  const strict = {
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
    target: 'es2020',
  };
  const compilerOptions = { ...strict, typeRoots: [toolPath('@types')], ...options };
  writeFileSync(join(service, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: [file] }));
  const args = [toolPath('typescript-5.0/bin/tsc'), '--project', service];
  await run(process.execPath, args, { timeout: TIMEOUT_MS });
}

/** A service whose project has the types of no environment. */
const BARE = `
import { type ClientHooks, IdallocError, IdClient, type IdClientOptions, RequestRefused, type WaitForIds } from '@idalloc/client';
import { decode } from '@idalloc/client/ids';
import { MemoryWorkers } from '@idalloc/client/testing';

const hooks: ClientHooks = { onReply: ({ latencyMs }) => void latencyMs.toFixed() };
const options: IdClientOptions = { brokers: ['localhost:9092'], replyTopic: 'id.replies.orders', ssl: true, hooks };

export async function ids(wait: WaitForIds): Promise<readonly bigint[]> {
  const client: IdClient = await IdClient.connect(options);
  try {
    const { batch } = await client.request({ count: 2, correlationId: 'order-4711' });
    return [...(await client.takeAsync(2, wait)), ...batch.ranges.map(({ first }) => first)];
  } catch (error) {
    if (error instanceof RequestRefused) error.serverCode.toLowerCase();
    if (error instanceof IdallocError && error.code === 'NO_REPLY') return [];
    throw error;
  } finally {
    await client.close();
  }
}
export const timeOf = async () => decode((await new MemoryWorkers().connect()).next()).timestampMs;
// @ts-expect-error what is wrong is still wrong
export const wrong: Promise<IdClient> = IdClient.connect({ brokers: 'localhost:9092', replyTopic: 'id.replies.orders' });
`;

const RESOLUTIONS = [
  { module: 'nodenext', moduleResolution: 'nodenext' },
  { module: 'commonjs', moduleResolution: 'node' },
  { module: 'esnext', moduleResolution: 'bundler' },
];

describe.skipIf(TOOLS.why !== undefined && !process.env.CI)(`the packages${TOOLS.title}`, () => {
  beforeAll(async () => {
    if (TOOLS.why !== undefined) throw new Error(`CI is set, so the packages must be checked: ${TOOLS.why}`);
    projects = await PackedProjects.build();
    service = await projects.projectWith(['@idalloc/client']);
  });
  afterAll(() => projects?.[Symbol.dispose]());

  test.for(['@idalloc/client', '@idalloc/nestjs', '@idalloc/testcontainers'])(
    'declares types of %s that every way of resolving them finds, by attw',
    async (name) => {
      const tarball = projects.packed.find((one) => one.name === name)?.tarball ?? '';
      expect(await tool('attw', [tarball, '--no-color', '--no-emoji'], projects.place)).toContain('No problems found');
    },
  );

  test.for(['client', 'nestjs', 'testcontainers', 'idalloc'])(
    'has a manifest of %s that publint accepts',
    async (short) => {
      const contents = join(projects.place, 'tarballs/idalloc-contents', short);
      expect(await tool('publint', [contents, '--strict'], projects.place)).toContain('All good!');
    },
  );

  test.for(RESOLUTIONS)(
    'compiles a service in TypeScript 5.0 with moduleResolution $moduleResolution, declarations checked',
    async (resolution) => {
      addConsumer(service, 'consumer.ts');
      await compileByOldest('consumer.ts', { ...resolution, lib: ['es2022'], types: ['node'] });
    },
  );

  test.for(RESOLUTIONS)(
    'compiles a service in TypeScript 5.0 with moduleResolution $moduleResolution, without types of Node or DOM, declarations checked',
    async (resolution) => {
      writeFileSync(join(service, 'bare.ts'), BARE);
      await compileByOldest('bare.ts', { ...resolution, lib: ['es2022'], types: [] });
    },
  );

  test('compiles that service in the TypeScript of this repository as well', async () => {
    writeFileSync(join(service, 'bare.ts'), BARE);
    await compile(service, 'bare.ts', ['--noEmit', '--types', '', '--lib', 'es2022']);
  });

  test('declares only what services can use', () => {
    const types = join(service, 'node_modules/@idalloc/client/dist/esm/types');
    const texts = globSync(join(types, '**/*.d.ts')).map((file) => readFileSync(file, 'utf8'));
    expect(texts.length).toBeGreaterThan(20);
    expect(texts.filter((text) => /@internal|Transport|Requester|: Buffer\b/.test(text))).toEqual([]);
  });

  test('exports metrics to prom-client and to OpenTelemetry, which take its types and show its numbers', async () => {
    for (const name of ['@opentelemetry', 'prom-client']) {
      symlinkSync(toolPath(name), join(service, 'node_modules', name));
    }
    copyFileSync(join(ROOT, 'test/support/metrics-consumer.ts.txt'), join(service, 'metrics.ts'));
    await compile(service, 'metrics.ts');
    const { stdout } = await run(process.execPath, [join(service, 'metrics.js')], { timeout: TIMEOUT_MS });
    expect(JSON.parse(stdout)).toEqual({
      prometheus: 'idalloc_client_taken_total{client="orders"} 10',
      histogram: 1,
      openTelemetry: 10,
      failures: 1,
    });
  });

  test.for(RESOLUTIONS)(
    'compiles a page with @idalloc/client/ids in TypeScript 5.0 with moduleResolution $moduleResolution, without the types of Node',
    async (resolution) => {
      writeFileSync(join(service, 'page.ts'), exampleOf('docs/how-to/sql-json-browsers.md', '@idalloc/client/ids'));
      await compileByOldest('page.ts', { ...resolution, lib: ['es2020', 'dom'], types: [] });
    },
  );
});
