/**
 * Which room of src may import what. The linter enforces it with overrides in biome.json that are generated from the tables
 * here: `npm run arrows` writes them; with --check nothing is written, and stale overrides are an error. A file without a
 * row may import nothing. That holds for a folder inside a room, too, unless the room's row names it.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';

export interface Room {
  /** A folder or a file of src. The row of a file replaces its folder's, and comes after it. */
  readonly room: string;
  /** Folders inside the room. Its files may import each other across them. */
  readonly folders?: readonly string[];
  /** Other rooms, and single files of them. */
  readonly imports?: readonly string[];
  readonly packages?: readonly string[];
  /** True if the room may read the state of the process. */
  readonly process?: true;
  /** Denied globals, each with the reason. Such a room must not read the time from Date, or use Math.random, either. */
  readonly pure?: Readonly<Record<string, string>>;
}

const BASE = ['core', 'codec', 'errors.ts'];
/** For rooms in which something waits or repeats. */
const WAITING = [...BASE, 'async'];
const PORTS = ['identity/ports.ts', 'ledger/ports.ts', 'pipeline/ports.ts'];
const FOR_ADAPTERS = [...WAITING, 'log.ts', 'runtime.ts', ...PORTS];
/** The adapters of outside systems, without the files directly in adapters. */
const SYSTEMS = ['adapters/etcd', 'adapters/index', 'adapters/kafka', 'adapters/registry'];
const KAFKA = ['kafka/wire', 'kafka/records', 'kafka/loops'];
/** The parts of identity that the commands use: keys, reading, and rebuilding a namespace. */
const IDENTITY_AT_REST = ['bindings', 'keys', 'namespace', 'ports', 'rebuild', 'snapshot', 'witness'].map(
  (file) => `identity/${file}.ts`,
);
/** The parts of the client that send a request and wait for its reply: a worker asks the others so for its HTTP callers. */
const CLIENT_REQUESTS = ['kafka-link', 'requester', 'transport'].map((file) => `client/${file}.ts`);
const CHECKSUM_AND_COMPRESSION = ['@chainsafe/fast-crc32c', 'hysnappy', 'lz4-napi', 'zstddec'];

const TIME_COMES_IN = 'Time comes in as an argument here.';
const NO_TIME = {
  performance: TIME_COMES_IN,
  setTimeout: TIME_COMES_IN,
  setInterval: TIME_COMES_IN,
  setImmediate: TIME_COMES_IN,
};
const OTHERS_WAIT = 'The core only decides; waiting and IO belong in other rooms.';
const NO_TIME_NO_WAITING = { ...NO_TIME, Promise: OTHERS_WAIT, queueMicrotask: OTHERS_WAIT, fetch: OTHERS_WAIT };

export const ROOMS: readonly Room[] = merged([
  { room: 'errors.ts' },
  { room: 'log.ts', imports: ['async', 'errors.ts'], packages: ['pino', 'pino-pretty', 'node:module'] },
  { room: 'metrics', imports: ['errors.ts'], packages: ['prom-client'] },
  { room: 'runtime.ts', imports: ['async'], packages: ['node:*'] },
  { room: 'bin.ts', process: true, imports: ['main.ts'] },
  {
    room: 'main.ts',
    process: true,
    imports: ['cli/context.ts', 'cli/program.ts', 'errors.ts', 'log.ts'],
    packages: ['node:*', 'node:module'],
  },
  { room: 'core', imports: ['errors.ts'], pure: NO_TIME_NO_WAITING },
  { room: 'async', pure: NO_TIME },
  { room: 'codec', imports: ['core', 'codec/form', 'errors.ts'], packages: ['avsc', 'node:crypto'], pure: NO_TIME },
  {
    room: 'codec/form',
    imports: ['core', 'errors.ts'],
    packages: ['@noble/ciphers/ff1.js', ...['hkdf', 'sha2', 'utils'].map((file) => `@noble/hashes/${file}.js`)],
    pure: NO_TIME,
  },
  { room: 'identity', imports: WAITING, pure: NO_TIME },
  { room: 'ledger', imports: WAITING, pure: NO_TIME },
  { room: 'pipeline', imports: [...WAITING, 'ledger'], pure: NO_TIME },
  { room: 'kafka/records', imports: ['core', 'errors.ts'], packages: ['node:*', ...CHECKSUM_AND_COMPRESSION] },
  {
    room: 'kafka/wire',
    imports: ['async', 'core', 'errors.ts', 'runtime.ts', 'kafka/records'],
    packages: ['node:*', 'kafkajs', 'kafkajs/src/**', 'oauth4webapi', 'aws-msk-iam-sasl-signer-js'],
  },
  { room: 'kafka/loops', imports: ['async', 'core', 'errors.ts', 'kafka/wire', 'kafka/records'], pure: NO_TIME },
  { room: 'adapters', imports: FOR_ADAPTERS, packages: ['node:*'] },
  { room: 'adapters/etcd', imports: FOR_ADAPTERS, packages: ['node:*', 'etcd3', 'cockatiel'] },
  { room: 'adapters/index', imports: FOR_ADAPTERS, packages: ['node:*'] },
  {
    room: 'adapters/kafka',
    folders: ['topics'],
    imports: [...FOR_ADAPTERS, 'ledger/partition.ts', ...KAFKA],
    packages: ['node:*'],
  },
  { room: 'adapters/registry', imports: FOR_ADAPTERS, packages: ['node:*'] },
  { room: 'http', imports: [...WAITING, 'codec/form'], packages: ['node:*', 'fastify', '@fastify/compress'] },
  { room: 'config', imports: [...BASE, 'codec/form', ...SYSTEMS, 'kafka/wire'], packages: ['node:*', 'zod'] },
  // For browsers: no package of Node.
  { room: 'ids', imports: ['core', 'codec/form', 'errors.ts'], pure: NO_TIME },
  { room: 'client', imports: [...WAITING, 'ids/index.ts', 'runtime.ts', ...KAFKA], packages: ['node:*'] },
  // The client is another package, so only what it exports.
  {
    room: 'testcontainers',
    imports: ['client/index.ts', 'codec/reply-policy.ts'],
    packages: ['node:*', 'testcontainers'],
  },
  { room: 'nestjs', imports: ['client/index.ts'], packages: ['@nestjs/common'] },
  {
    room: 'worker',
    imports: [
      ...[...WAITING, 'codec/form', 'log.ts', 'metrics', 'runtime.ts', 'pipeline', 'identity', 'http', 'config'],
      ...['ledger', 'adapters', ...SYSTEMS, ...KAFKA],
      ...CLIENT_REQUESTS,
    ],
    packages: ['node:*'],
  },
  {
    room: 'cli',
    folders: ['audit', 'completion', 'dead-letters', 'doctor', 'namespace', 'replay', 'sequence', 'topics', 'trace'],
    imports: [
      ...[...WAITING, 'codec/form', 'log.ts', 'metrics', 'runtime.ts', 'client', 'http', 'config', ...IDENTITY_AT_REST],
      ...['worker/worker.ts', 'worker/ledger-tail.ts', 'worker/witness-service.ts', ...SYSTEMS, ...KAFKA],
    ],
    packages: ['node:*', 'commander'],
  },
]);

/** node:module is among them because its `require` loads any package, which the linter does not see. */
const DENIED_UNLESS_NAMED = ['node:process', 'node:module'];
const PROCESS_IS_FOR_MAIN = { process: 'Only main.ts reads the state of the process.' };
const ROOT = join(import.meta.dirname, '../..');
const BIOME = join(ROOT, 'node_modules/.bin/biome');
const CONFIGURATION = join(ROOT, 'biome.json');
/** Formatting takes a tenth of a second; a formatter that hangs must not block the check. */
const TIMEOUT_MS = 60_000;

/** One row for each room; the permissions of several rows add up. */
function merged(rows: readonly Room[]): Room[] {
  return [...new Set(rows.map(({ room }) => room))].map((room) => {
    const same = rows.filter((row) => row.room === room);
    const imports = same.flatMap((row) => row.imports ?? []);
    const packages = same.flatMap((row) => row.packages ?? []);
    return Object.assign({}, ...same, { imports, packages }) as Room;
  });
}

const isFile = (name: string): boolean => name.endsWith('.ts');

/** The folders of a room, relative to src: itself, and those that its row names. */
function foldersOf({ room, folders = [] }: Room): string[] {
  return [room, ...folders.map((folder) => `${room}/${folder}`)];
}

/** The files that a name in the tables means, as patterns relative to src. */
function filesOf(name: string): string[] {
  if (isFile(name)) return [name];
  const row = ROOMS.find(({ room }) => room === name);
  if (row === undefined) throw new Error(`ops/lint/arrows.ts has no row for the room ${name}`);
  return foldersOf(row).map((folder) => `${folder}/*.ts`);
}

/** How a file in `folder` writes the import of another, both relative to src. */
function specifier(folder: string, file: string): string {
  const path = posix.relative(folder, file);
  return path.startsWith('.') ? path : `./${path}`;
}

/** The denied imports of all files of `folders`, which have the same depth. As in .gitignore, the last match decides. */
function deniedImports({ room, imports = [], packages = [] }: Room, folders: readonly string[]): string[] {
  const files = (isFile(room) ? imports : [room, ...imports]).flatMap(filesOf);
  const specifiers = folders.flatMap((folder) => files.map((file) => specifier(folder, file)));
  const inside = packages.includes('node:*') ? ['node:*/**'] : [];
  const allowed = [...new Set([...specifiers, ...packages, ...inside])].map((pattern) => `!${pattern}`);
  return ['**', ...allowed, ...DENIED_UNLESS_NAMED.filter((name) => !packages.includes(name))];
}

function override(includes: readonly string[], group: readonly string[], why: string, globals?: Room['pure']) {
  const style = {
    noRestrictedImports: { level: 'error', options: { patterns: [{ group, message: why }] } },
    ...(globals && { noRestrictedGlobals: { level: 'error', options: { deniedGlobals: globals } } }),
  };
  return { includes, linter: { rules: { style } } };
}

/** The override for files without a row. The rooms' overrides replace its imports, and keep its globals. */
function overrideOfAll() {
  const readers = ROOMS.filter((row) => row.process).map(({ room }) => `!src/${room}`);
  const why = 'Only files with a row in ops/lint/arrows.ts may import.';
  return override(['src/**', ...readers], ['**', ...DENIED_UNLESS_NAMED], why, PROCESS_IS_FOR_MAIN);
}

/** One override for the files directly in the room and one for those in its folders: their relative paths differ. */
function overridesOf(row: Room) {
  if (isFile(row.room)) return [overrideOf(row, [`src/${row.room}`], [posix.dirname(row.room)])];
  const [top = row.room, ...below] = foldersOf(row);
  const depths = below.length === 0 ? [[top]] : [[top], below];
  return depths.map((folders) => {
    const includes = folders.map((folder) => `src/${folder}/*.ts`);
    return overrideOf(row, includes, folders);
  });
}

function overrideOf(row: Room, includes: readonly string[], folders: readonly string[]) {
  const globals = row.pure && { ...PROCESS_IS_FOR_MAIN, ...row.pure };
  const made = override(
    includes,
    deniedImports(row, folders),
    `${row.room} may not import this: see its row in ops/lint/arrows.ts.`,
    globals,
  );
  return row.pure ? { ...made, plugins: ['./ops/lint/pure.grit'] } : made;
}

interface Override {
  readonly linter?: { readonly rules?: { readonly style?: { readonly noRestrictedImports?: unknown } } };
}

interface Configuration {
  readonly overrides: readonly Override[];
}

/** The configuration with the overrides of the tables. Overrides that deny no imports are written by hand. */
function withArrows(configuration: Configuration): Configuration {
  const byHand = configuration.overrides.filter((it) => it.linter?.rules?.style?.noRestrictedImports === undefined);
  return { ...configuration, overrides: [overrideOfAll(), ...ROOMS.flatMap(overridesOf), ...byHand] };
}

function formatted(json: string): string {
  const { stdout, stderr, status, error } = spawnSync(BIOME, ['format', '--stdin-file-path=biome.json'], {
    cwd: ROOT,
    input: json,
    encoding: 'utf8',
    timeout: TIMEOUT_MS,
  });
  if (error !== undefined || status !== 0) throw new Error(`biome can't format biome.json: ${error ?? stderr}`);
  return stdout;
}

function main(args: readonly string[]): number {
  const present = JSON.parse(readFileSync(CONFIGURATION, 'utf8')) as Configuration;
  const wanted = JSON.stringify(withArrows(present));
  if (wanted === JSON.stringify(present)) return 0;
  if (args.includes('--check')) {
    process.stderr.write('biome.json does not match ops/lint/arrows.ts: run `npm run arrows`\n');
    return 1;
  }
  writeFileSync(CONFIGURATION, formatted(wanted));
  return 0;
}

if (import.meta.main) process.exitCode = main(process.argv.slice(2));
