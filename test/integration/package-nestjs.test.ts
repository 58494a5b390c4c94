import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePorts } from '../../ops/dev/ports.ts';
import { nestVersion, skipping } from '../support/example-tools.ts';
import { compile, exampleIn, exampleOf, PackedProjects, plainNode, run } from '../support/packed-projects.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const PAGE = 'docs/how-to/client.md';
const VERSIONS = [
  { version: 11, type: 'commonjs', tool: skipping(await nestVersion(11)) },
  { version: 12, type: 'module', tool: skipping(await nestVersion(12)) },
] as const;

let projects: PackedProjects;

beforeAll(async () => {
  for (const { tool } of VERSIONS) {
    if (tool.why !== undefined && process.env.CI) throw new Error(`CI is set, so NestJS must be tested: ${tool.why}`);
  }
  projects = await PackedProjects.build();
});
afterAll(() => projects?.[Symbol.dispose]());

describe.for(VERSIONS.filter(({ tool }) => tool.why === undefined))('NestJS $version, $type', ({ type, tool }) => {
  let project: string;
  let realm: Realm;
  let app: ChildProcess | undefined;

  beforeAll(async () => {
    project = await projects.projectWith(['@idalloc/client', '@idalloc/nestjs'], type);
    for (const name of ['@nestjs', 'reflect-metadata', 'rxjs']) {
      symlinkSync(join(tool.path, 'node_modules', name), join(project, 'node_modules', name));
    }
    realm = await Realm.create(suiteServers());
  });
  afterAll(async () => {
    app?.kill('SIGKILL');
    await realm?.[Symbol.asyncDispose]();
  });

  test('the application of the page serves IDs, tells its health, and stops on SIGTERM', async () => {
    const [port = 0] = await freePorts(1);
    const example = exampleIn(realm, exampleOf(PAGE, '@idalloc/nestjs'));
    writeFileSync(join(project, 'app.ts'), example.replace('listen(3000)', `listen(${port})`));
    await compile(project, 'app.ts', ['--experimentalDecorators', '--emitDecoratorMetadata', '--skipLibCheck']);
    app = spawn(plainNode(), ['app.js'], { cwd: project, stdio: ['ignore', 'ignore', 'inherit'] });
    const ended = once(app, 'exit');
    const asked = async (path: string, method = 'GET') => {
      const response = await fetch(`http://127.0.0.1:${port}/${path}`, { method });
      const body = (await response.json()) as { readonly id: string };
      return { code: response.status, body };
    };

    const down = { code: 503, body: { status: 'error', error: { idalloc: { status: 'down', buffered: 0 } } } };
    await expect.poll(() => asked('readyz').catch(String)).toMatchObject(down);
    await realm.worker().ready();
    const up = { code: 200, body: { status: 'ok', info: { idalloc: { status: 'up' } } } };
    await expect.poll(() => asked('readyz')).toMatchObject(up);
    const ids = await Promise.all(Array.from({ length: 20 }, () => asked('orders', 'POST')));
    expect(new Set(ids.map(({ body }) => body.id)).size).toBe(20);
    expect(ids[0]?.body.id).toMatch(/^\d{18,19}$/);

    app.kill('SIGTERM');
    expect(await ended).toEqual([null, 'SIGTERM']); // which NestJS raises again after its hooks
  });

  test.for(['module', 'commonjs'])(
    'the class that services inject is the one of the client, loaded as %s',
    async (how) => {
      const load = how === 'module' ? 'await import' : 'require';
      const check = `const [{ IdClient }, { IdallocModule }] = [${load}('@idalloc/client'), ${load}('@idalloc/nestjs')];
      console.log(IdallocModule.forRoot({}).exports[0] === IdClient)`;
      const { stdout } = await run(plainNode(), [`--input-type=${how}`, '-e', check], { cwd: project });
      expect(stdout).toBe('true\n');
    },
  );
});
