import { execFile } from 'node:child_process';
import { accessSync, constants, copyFileSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, type TestContext } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { buildPackages, type Packed } from '../../ops/release/packages.ts';
import { blocksOf, readPage } from './docs.ts';
import { Realm } from './realm.ts';
import { suiteServers } from './servers.ts';

export const run = promisify(execFile);
export const BIN = join(ROOT, 'node_modules/.bin');
export const TIMEOUT_MS = 300_000;
const MIB = 1024 * 1024;
const CONSUMER = 'test/support/package-consumer.ts.txt';

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
};

/** The machine's own node, which is older than the one that this repository brings with it. */
export function plainNode(): string {
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

export function mib(bytes: number): string {
  return `${(bytes / MIB).toFixed(1)} MiB`;
}

/**
 * The packages of this checkout as tarballs, and empty projects that install them; removed when this is disposed of.
 */
export class PackedProjects implements Disposable {
  /** An otherwise empty directory; each project and each tarball has its place in it. */
  readonly place = mkdtempSync(join(tmpdir(), 'idalloc-packages-'));
  packed: readonly Packed[] = [];

  static async build(): Promise<PackedProjects> {
    const projects = new PackedProjects();
    projects.packed = await buildPackages(join(projects.place, 'tarballs'), () => {});
    return projects;
  }

  /** A new project with the packages installed from their tarballs; those of `names` may need each other. */
  async projectWith(names: readonly string[], type: 'module' | 'commonjs' = 'module'): Promise<string> {
    const dir = mkdtempSync(join(this.place, 'project-'));
    writeFileSync(join(dir, 'package.json'), JSON.stringify({ private: true, type }));
    const options = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--omit=peer'];
    const tarballs = names.map(
      (name) => this.packed.find((one) => one.name === name)?.tarball ?? `no tarball of ${name}`,
    );
    await run('npm', ['install', ...options, ...tarballs], { cwd: dir, timeout: TIMEOUT_MS });
    return dir;
  }

  [Symbol.dispose](): void {
    rmSync(this.place, { recursive: true, force: true });
  }
}

/** Compiles a file of a project in strict TypeScript. */
export async function compile(project: string, file: string, options: readonly string[] = []): Promise<void> {
  writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ ...TSCONFIG, files: [file] }));
  await run(join(BIN, 'tsc'), ['--project', project, ...options], { timeout: TIMEOUT_MS });
}

/** Copies a service that uses the client into a project, under this name. */
export function addConsumer(project: string, file: string): void {
  copyFileSync(join(ROOT, CONSUMER), join(project, file));
}

/** Compiles a service that uses the client in a project; returns the program. */
export async function compiledConsumer(project: string): Promise<string> {
  addConsumer(project, 'consumer.ts');
  await compile(project, 'consumer.ts');
  return join(project, 'consumer.js');
}

/** Expects that a service gets its IDs from a worker, on the node of the machine. */
export async function expectServed(program: string, annotate: TestContext['annotate']): Promise<void> {
  await using realm = await Realm.create(suiteServers());
  await realm.worker().ready();
  const { node } = await expectServedBy(realm, [plainNode(), program]);
  await annotate(`measured: node ${node}, ${mib(statSync(program).size)} of program`);
}

/** Expects that a service, run with this command in an empty directory, gets its IDs from the realm's worker. */
export async function expectServedBy(realm: Realm, [command, ...args]: readonly [string, ...string[]]) {
  const topics = [suiteServers().brokers.join(), realm.requestTopic, realm.replyTopic];
  const cwd = mkdtempSync(join(tmpdir(), 'idalloc-served-'));
  const { stdout, stderr } = await run(command, [...args, ...topics], { timeout: TIMEOUT_MS, cwd }).finally(() =>
    rmSync(cwd, { recursive: true, force: true }),
  );
  const printed = JSON.parse(stdout);
  expect(printed).toMatchObject({
    distinct: 1_007,
    decoded: { datacenterId: realm.datacenterId },
    text: true,
    recent: true,
    replayed: true,
    sameBatch: true,
    refusal: 'CONFLICT',
    closed: 'CLIENT_CLOSED',
  });
  expect(stderr).toBe('');
  return printed as { readonly node: string };
}

/** The program that a page shows which imports `module`. */
export function exampleOf(page: string, module: string): string {
  const found = blocksOf(readPage(page)).filter(({ body }) => body.some((line) => line.endsWith(`from '${module}';`)));
  expect(found).toHaveLength(1);
  return `${found[0]?.body.join('\n')}\n`;
}

/** An example with the brokers and topics of a realm. */
export function exampleIn(realm: Realm, example: string): string {
  const [broker] = suiteServers().brokers;
  const here = example
    .replace("'localhost:9092'", `'${broker}'`)
    .replace("'id.replies.orders'", `'${realm.replyTopic}', requestTopic: '${realm.requestTopic}'`);
  expect(here).toContain(realm.replyTopic);
  return here;
}
