/**
 * Which room of src may import what. A file without a row may import nothing; that holds for a folder inside a room, too,
 * unless the room's row names it. Run as a program, it reports every import that no row allows. What a room may use
 * without importing it, such as the time, is in the overrides of biome.json.
 */
import { globSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';

export interface Room {
  /** A folder or a file of src. The row of a file replaces its folder's, and comes after it. */
  readonly room: string;
  /** Folders inside the room. Its files may import each other across them. */
  readonly folders?: readonly string[];
  /** Other rooms, and single files of them. */
  readonly imports?: readonly string[];
  /** By name; `node:*` for all modules of Node, and `name/**` for all below a name. */
  readonly packages?: readonly string[];
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

export const ROOMS: readonly Room[] = [
  { room: 'errors.ts' },
  { room: 'log.ts', imports: ['async', 'errors.ts'], packages: ['pino', 'pino-pretty', 'node:module'] },
  { room: 'metrics', imports: ['errors.ts'], packages: ['prom-client'] },
  { room: 'runtime.ts', imports: ['async'], packages: ['node:*'] },
  { room: 'bin.ts', imports: ['main.ts'] },
  {
    room: 'main.ts',
    imports: ['cli/context.ts', 'cli/program.ts', 'errors.ts', 'log.ts'],
    packages: ['node:*', 'node:module'],
  },
  { room: 'core', imports: ['errors.ts'] },
  { room: 'async' },
  { room: 'codec', imports: ['core', 'codec/form', 'errors.ts'], packages: ['avsc', 'node:crypto'] },
  {
    room: 'codec/form',
    imports: ['core', 'errors.ts'],
    packages: ['@noble/ciphers/ff1.js', ...['hkdf', 'sha2', 'utils'].map((file) => `@noble/hashes/${file}.js`)],
  },
  { room: 'identity', imports: WAITING },
  { room: 'ledger', imports: WAITING },
  { room: 'pipeline', imports: [...WAITING, 'ledger'] },
  { room: 'kafka/records', imports: ['core', 'errors.ts'], packages: ['node:*', ...CHECKSUM_AND_COMPRESSION] },
  {
    room: 'kafka/wire',
    imports: ['async', 'core', 'errors.ts', 'runtime.ts', 'kafka/records'],
    packages: ['node:*', 'kafkajs', 'kafkajs/src/**', 'oauth4webapi', 'aws-msk-iam-sasl-signer-js'],
  },
  { room: 'kafka/loops', imports: ['async', 'core', 'errors.ts', 'kafka/wire', 'kafka/records'] },
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
  { room: 'ids', imports: ['core', 'codec/form', 'errors.ts'] },
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
];

/** node:module is among them because its `require` loads any package, unseen. */
const DENIED_UNLESS_NAMED = ['node:process', 'node:module'];
const SOURCE = join(import.meta.dirname, '../../src');
/** Import and export statements, as the formatter writes them. */
const STATEMENT = /^(?:import\s|export\s.*\bfrom\s|\}\s*from\s)[^'"\n]*(['"])(?<name>[^'"\n]+)\1/gm;
/** Imports in expressions and types, of a text or of a constant of the file. */
const EXPRESSION = /\bimport\s*\(\s*(?:\/\*.*?\*\/\s*)*(?:(['"])(?<name>[^'"\n]+)\1|(?<constant>\w+))?/g;

const isFile = (name: string): boolean => name.endsWith('.ts');

/** The folders of a room, relative to src: itself, and those that its row names. */
function foldersOf({ room, folders = [] }: Room): string[] {
  return [room, ...folders.map((folder) => `${room}/${folder}`)];
}

function rowOf(file: string): Room | undefined {
  const folder = posix.dirname(file);
  return ROOMS.find(({ room }) => room === file) ?? ROOMS.find((row) => foldersOf(row).includes(folder));
}

function isAllowed({ room, imports = [], packages = [] }: Room, file: string, name: string): boolean {
  if (!name.startsWith('.')) return isPackageAllowed(packages, name);
  const target = posix.join(posix.dirname(file), name);
  if (!isFile(target)) return false;
  return [room, ...imports].some((one) => {
    if (isFile(one)) return one === target;
    const row = ROOMS.find((other) => other.room === one);
    return row !== undefined && foldersOf(row).includes(posix.dirname(target));
  });
}

function isPackageAllowed(packages: readonly string[], name: string): boolean {
  if (packages.includes(name)) return true;
  if (DENIED_UNLESS_NAMED.includes(name)) return false;
  return packages.some((one) => one.endsWith('*') && name.startsWith(one.replace(/\*+$/, '')));
}

/** The lines of a file of src, counted from 1, whose imports its row does not allow. `file` is relative to src. */
export function forbiddenLines(file: string, text: string): number[] {
  const row = rowOf(file);
  const isForbidden = ({ groups }: RegExpMatchArray): boolean => {
    const name = groups?.name ?? new RegExp(`\\bconst ${groups?.constant} = '([^']+)'`).exec(text)?.[1];
    return name === undefined || row === undefined || !isAllowed(row, file, name);
  };
  const forbidden = [...text.matchAll(STATEMENT), ...text.matchAll(EXPRESSION)].filter(isForbidden);
  return forbidden.map(({ index }) => text.slice(0, index).split('\n').length);
}

function main(): number {
  const files = globSync('**/*.ts', { cwd: SOURCE });
  const faults = files.flatMap((path) => {
    const file = path.replaceAll('\\', '/');
    const lines = forbiddenLines(file, readFileSync(join(SOURCE, path), 'utf8'));
    return lines.map((line) => `src/${file}:${line} may not import this: see its row in ops/lint/arrows.ts\n`);
  });
  for (const fault of faults) process.stderr.write(fault);
  return faults.length === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main();
