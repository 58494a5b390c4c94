/**
 * Which room of src may import what, and how large it may be. A file without a row may import nothing; that holds for a
 * folder inside a room, too, unless the room's row names it. Run as a program, it reports every import that no row
 * allows, every room above its budget and every file that is too long; and every comment of src, test and ops that is
 * too wide. What a room may use without importing it, such as the time, is in the overrides of biome.json.
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
  /**
   * The budget of a folder, comments and blank lines included. A change that exceeds it deletes what is dead, or says
   * why it raises it.
   */
  readonly lines?: number;
  /** By name; `node:*` for all modules of Node, and `name/**` for all below a name. */
  readonly packages?: readonly string[];
}

const BASE = ['core', 'codec', 'errors.ts'];
/** For rooms in which something waits or repeats. */
const WAITING = [...BASE, 'async'];
const PORTS = ['identity/identity-ports.ts', 'ledger/ledger-ports.ts', 'pipeline/ports.ts'];
const FOR_ADAPTERS = [...WAITING, 'log.ts', 'runtime.ts', ...PORTS];
/** The adapters of outside systems. */
const SYSTEMS = ['adapters/etcd', 'adapters/index', 'adapters/kafka', 'adapters/registry'];
const KAFKA = ['kafka/wire', 'kafka/records', 'kafka/loops'];
/** The parts of identity that the commands use: keys, reading, and rebuilding a namespace. */
const IDENTITY_AT_REST = ['bindings', 'identity-ports', 'keys', 'namespace', 'rebuild', 'witness'].map(
  (file) => `identity/${file}.ts`,
);
/**
 * The parts of the client that send a request and wait for its reply: a worker asks the others so for its HTTP callers.
 */
const CLIENT_REQUESTS = ['kafka-link', 'requester'].map((file) => `client/${file}.ts`);
/** What spans of the client and of a worker have in common. */
const SPANS = ['tracing/spans.ts'];
const CHECKSUM_AND_COMPRESSION = ['@chainsafe/fast-crc32c', 'hysnappy', 'lz4-napi', 'zstddec'];

export const ROOMS: readonly Room[] = [
  { room: 'errors.ts' },
  {
    room: 'log.ts',
    imports: ['async', 'core/visible.ts', 'errors.ts'],
    packages: ['pino', 'pino-pretty', 'node:module'],
  },
  { room: 'metrics', lines: 620, imports: ['errors.ts'], packages: ['prom-client'] },
  { room: 'runtime.ts', imports: ['async'], packages: ['node:*'] },
  { room: 'bin.ts', imports: ['main.ts'] },
  {
    room: 'main.ts',
    imports: ['cli/context.ts', 'cli/program.ts', 'core/visible.ts', 'errors.ts', 'log.ts'],
    packages: ['node:*', 'node:module'],
  },
  { room: 'core', lines: 1765, imports: ['errors.ts'] },
  { room: 'async', lines: 470 },
  { room: 'codec', lines: 4550, imports: ['core', 'codec/form', 'errors.ts'], packages: ['avsc', 'node:crypto'] },
  {
    room: 'codec/form',
    lines: 910,
    imports: ['core', 'errors.ts'],
    packages: ['@noble/ciphers/ff1.js', ...['hkdf', 'sha2', 'utils'].map((file) => `@noble/hashes/${file}.js`)],
  },
  { room: 'identity', lines: 2200, imports: WAITING },
  { room: 'ledger', lines: 2915, imports: [...WAITING, 'identity/identity-ports.ts'] },
  { room: 'pipeline', lines: 4260, imports: [...WAITING, 'ledger'] },
  {
    room: 'tracing',
    lines: 530,
    imports: [...WAITING, 'log.ts', 'pipeline'],
    packages: ['node:buffer', '@opentelemetry/api', '@opentelemetry/sdk-node'],
  },
  {
    room: 'kafka/records',
    lines: 1500,
    imports: ['core', 'errors.ts'],
    packages: ['node:*', ...CHECKSUM_AND_COMPRESSION],
  },
  {
    room: 'kafka/wire',
    lines: 3810,
    imports: ['async', 'core', 'errors.ts', 'runtime.ts', 'kafka/records'],
    packages: ['node:*', 'kafkajs', 'kafkajs/src/**', 'oauth4webapi', 'aws-msk-iam-sasl-signer-js'],
  },
  { room: 'kafka/loops', lines: 3200, imports: ['async', 'core', 'errors.ts', 'kafka/wire', 'kafka/records'] },
  { room: 'adapters/etcd', lines: 730, imports: FOR_ADAPTERS, packages: ['node:*', 'etcd3'] },
  { room: 'adapters/index', lines: 2905, imports: FOR_ADAPTERS, packages: ['node:*'] },
  {
    room: 'adapters/kafka',
    lines: 3200,
    folders: ['topics'],
    imports: [...FOR_ADAPTERS, 'ledger/partition.ts', ...KAFKA],
    packages: ['node:*'],
  },
  { room: 'adapters/registry', lines: 380, imports: FOR_ADAPTERS, packages: ['node:*'] },
  {
    room: 'http',
    lines: 3660,
    imports: [...WAITING, 'codec/form'],
    packages: ['node:*', 'fastify', '@fastify/compress'],
  },
  {
    room: 'config',
    lines: 1510,
    imports: [...BASE, 'codec/form', ...SYSTEMS, 'kafka/wire'],
    packages: ['node:*', 'zod'],
  },
  // For browsers: no package of Node.
  { room: 'ids', lines: 120, imports: ['core', 'codec/form', 'errors.ts'] },
  {
    room: 'client',
    lines: 4210,
    imports: [...WAITING, 'ids/index.ts', 'runtime.ts', ...KAFKA, ...SPANS],
    // Of the process: the warning about a hook that fails, where nobody hears errors.
    packages: ['node:*', 'node:process', '@opentelemetry/api'],
  },
  // The client is another package, so only what it exports.
  {
    room: 'testcontainers',
    lines: 730,
    imports: ['client/index.ts', 'codec/reply-policy.ts', 'core/host-port.ts'],
    packages: ['node:*', 'node:process', 'testcontainers'], // of the process: the version of Node
  },
  { room: 'nestjs', lines: 170, imports: ['client/index.ts'], packages: ['@nestjs/common'] },
  {
    room: 'worker',
    lines: 4710,
    imports: [
      ...[...WAITING, 'codec/form', 'log.ts', 'metrics', 'runtime.ts', 'pipeline', 'identity', 'http', 'config'],
      ...['ledger', ...SYSTEMS, ...KAFKA],
      ...CLIENT_REQUESTS,
    ],
    packages: ['node:*'],
  },
  {
    room: 'cli',
    lines: 11480,
    folders: [
      ...['audit', 'bundle', 'dead-letters', 'doctor', 'journal', 'namespace', 'replay', 'sequence', 'status'],
      ...['topics', 'trace'],
    ],
    imports: [
      ...[...WAITING, 'codec/form', 'log.ts', 'metrics', 'runtime.ts', 'client', 'http', 'config', ...IDENTITY_AT_REST],
      ...['worker/worker.ts', 'worker/ledger-tail.ts', 'tracing/traces.ts'],
      ...['decided', 'end-heads', 'heads', 'ledger-ports', 'sequence-order', 'sequence-rule'].map(
        (file) => `ledger/${file}.ts`,
      ),
      ...[...SYSTEMS, ...KAFKA],
    ],
    packages: ['node:*', 'commander'],
  },
];

/** node:module is among them because its `require` loads any package, unseen. */
const DENIED_UNLESS_NAMED = ['node:process', 'node:module'];
const ROOT = join(import.meta.dirname, '../..');
const SOURCE = join(ROOT, 'src');
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

/** One story, told from its question to its code; more is two. Most files are far shorter. */
const FILE_LINES = 500;
/** A table, and what is generated. */
const LONG_FILES = ['config/variables.ts', 'codec/schemas.ts'];

/**
 * The rooms above their budgets, and the files that are too long, each as a sentence. `lines`: of each file, relative
 * to src.
 */
export function oversized(lines: ReadonlyMap<string, number>): string[] {
  const files = [...lines].flatMap(([file, count]) =>
    count > FILE_LINES && !LONG_FILES.includes(file)
      ? `src/${file} has ${count} lines, more than ${FILE_LINES}: divide it by subject`
      : [],
  );
  const rooms = ROOMS.flatMap((row) => {
    const own = [...lines].filter(([file]) => rowOf(file) === row).reduce((sum, [, count]) => sum + count, 0);
    return row.lines !== undefined && own > row.lines
      ? `src/${row.room} has ${own} lines, above its budget of ${row.lines}: delete what is dead, or raise the budget in ops/lint/arrows.ts and say why`
      : [];
  });
  return [...files, ...rooms];
}

/** The formatter breaks code at this width and leaves comments as they are. */
const COLUMNS = 120;
/** A line that is a comment, or ends with one. */
const COMMENT = /^\s*(?:\/\*|\*(?:\s|$))|(?:^|\s)\/\/\s/;

/** The lines of a file, counted from 1, that have a comment and more columns than there may be. */
export function wideComments(text: string): number[] {
  return text.split('\n').flatMap((line, i) => (line.length > COLUMNS && COMMENT.test(line) ? [i + 1] : []));
}

/** Exported declarations, as the formatter writes them. */
const EXPORTED = /^export (?:abstract |async )?(?:class|const|enum|function\*?|interface|type) (?<name>\w+)/gm;

/** The types that a file keeps to itself. */
const OWN_TYPE = /^(?:abstract )?(?:class|interface|type) (?<name>\w+)/gm;

/**
 * The names that two files have for two things, each as a sentence: both export it, or one has a type of its own by the
 * name of one that the other exports. `texts`: of each file, relative to src.
 */
export function doubled(texts: ReadonlyMap<string, string>): string[] {
  const own = filesByName(texts, OWN_TYPE);
  return [...filesByName(texts, EXPORTED)].flatMap(([name, files]) => {
    const [file = '', ...others] = files;
    const what = `${name} is exported by ${[file, ...others].join(' and ')}`;
    if (others.length > 0) return `${what}: rename one by what it is`;
    const hidden = (own.get(name) ?? []).filter((one) => one !== file);
    return hidden.length > 0 ? `${what}, and another type of ${hidden.join(' and ')}: rename one by what it is` : [];
  });
}

function filesByName(texts: ReadonlyMap<string, string>, declared: RegExp): ReadonlyMap<string, readonly string[]> {
  const found = [...texts].flatMap(([file, text]) =>
    [...text.matchAll(declared)].map(({ groups }) => ({ name: String(groups?.name), file: `src/${file}` })),
  );
  const byName = Map.groupBy(found, ({ name }) => name);
  return new Map([...byName].map(([name, all]) => [name, [...new Set(all.map(({ file }) => file))]]));
}

function main(): number {
  const files = globSync('**/*.ts', { cwd: SOURCE }).map((path) => path.replaceAll('\\', '/'));
  const texts = new Map(files.map((file) => [file, readFileSync(join(SOURCE, file), 'utf8')]));
  const imports = [...texts].flatMap(([file, text]) => {
    const lines = forbiddenLines(file, text);
    return lines.map((line) => `src/${file}:${line} may not import this: see its row in ops/lint/arrows.ts`);
  });
  const lines = new Map([...texts].map(([file, text]) => [file, text.split('\n').length - 1]));
  const written = globSync('{src,test,ops}/**/*.{ts,mjs}', { cwd: ROOT, exclude: ['**/node_modules/**'] });
  const wide = written.flatMap((file) =>
    wideComments(readFileSync(join(ROOT, file), 'utf8')).map(
      (line) => `${file}:${line} has a comment wider than ${COLUMNS} columns: break the line`,
    ),
  );
  const faults = [...imports, ...oversized(lines), ...doubled(texts), ...wide];
  for (const fault of faults) process.stderr.write(`${fault}\n`);
  return faults.length === 0 ? 0 : 1;
}

if (import.meta.main) process.exitCode = main();
