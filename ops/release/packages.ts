// Builds the npm packages. Usage: npm run packages [-- --help]
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';
import { declarationOf } from './declarations.ts';
import { buildLibrary, bundledLicenses, type Library } from './library.ts';
import { PLACES } from './places.ts';

interface RootManifest {
  readonly version: string;
  readonly license: string;
  readonly engines: { readonly node: string };
  readonly dependencies: Readonly<Record<string, string>>;
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
}

/** One npm package. */
interface Definition {
  readonly name: string;
  readonly description: string;
  readonly keywords: readonly string[];
  /** The fields of package.json besides those that all have. */
  manifest(root: RootManifest): { readonly dependencies: Readonly<Record<string, string>> };
  /** Writes what it contains to `dir`; returns the packages whose code it bundles. */
  build(dir: string): Promise<readonly string[]>;
}

/** A package in a tarball. */
export interface Packed {
  readonly name: string;
  /** The absolute path of the tarball. */
  readonly tarball: string;
  readonly bytes: number;
  /** The packages whose code it contains. */
  readonly bundled: readonly string[];
  /** The packages that are installed with it. */
  readonly dependencies: readonly string[];
}

const USAGE = `Builds the npm packages @idalloc/client, @idalloc/nestjs, @idalloc/testcontainers and idalloc as tarballs.

  npm run --silent packages [-- options]

  --out DIR   where to write them (default: dist/packages)
  --json      print what was written as JSON
  --help

Example: npm run packages, then in your service: npm install ../idalloc/dist/packages/idalloc-client-*.tgz
`;
/** For a hang, which must not be mistaken for a busy machine. */
const TIMEOUT_MS = 600_000;
const PACKAGES_DIR = join(ROOT, 'dist/packages');
/** The folder of what is packed; it marks a directory that was written here. */
export const CONTENTS = 'idalloc-contents';
/** The worker uses language and library features of this version. */
const WORKER_NODE = '>=24';

/** That of testcontainers 12. npm only warns of an older one; see src/testcontainers/node-version.ts. */
const TESTCONTAINERS_NODE = '>=22.22';

/** What services with traces have; it works with every version since that. */
const TRACES_API = { '@opentelemetry/api': '^1.9.0' };

const CLIENT: Library = {
  entries: { index: 'src/client/index.ts', ids: 'src/ids/index.ts', testing: 'src/client/testing.ts' },
  external: [],
};
/** Imports of the client become imports of its package. */
const CLIENT_PACKAGE: Library['boundary'] = { source: 'src/client/index.ts', package: '@idalloc/client' };
const NESTJS: Library = {
  entries: { index: 'src/nestjs/index.ts' },
  external: ['@nestjs/common'],
  boundary: CLIENT_PACKAGE,
};
const TESTCONTAINERS: Library = {
  entries: { index: 'src/testcontainers/index.ts' },
  first: { 'node-version': 'src/testcontainers/node-version.ts' },
  external: ['testcontainers'],
  boundary: CLIENT_PACKAGE,
};

const DEFINITIONS: readonly Definition[] = [
  {
    name: '@idalloc/client',
    description: 'Client of idalloc: 64-bit, time-ordered IDs from a buffer, ID formats for Node and browsers',
    keywords: ['id', 'kafka', 'snowflake', 'uuidv7', 'unique'],
    manifest: ({ engines, dependencies, peerDependencies }) => ({
      engines,
      sideEffects: false,
      ...entriesOf(CLIENT),
      dependencies: {},
      ...optionalPeers({ ...dependencies, ...peerDependencies, ...TRACES_API }, [
        '@opentelemetry/api',
        'aws-msk-iam-sasl-signer-js',
        'lz4-napi',
      ]),
    }),
    build: (dir) => buildLibrary(CLIENT, join(dir, 'dist')),
  },
  {
    name: '@idalloc/nestjs',
    description: 'NestJS module with an injectable client of idalloc, and its health',
    keywords: ['idalloc', 'nestjs', 'id', 'kafka'],
    // The client is a peer, so that the class that services inject is the one that the module provides.
    manifest: ({ version, engines, peerDependencies }) => ({
      engines,
      sideEffects: false, // the calls that stand for decorators change only what its own module exports
      ...entriesOf(NESTJS),
      dependencies: {},
      peerDependencies: { '@idalloc/client': version, ...picked(peerDependencies, ['@nestjs/common']) },
    }),
    build: (dir) => buildLibrary(NESTJS, join(dir, 'dist')),
  },
  {
    name: '@idalloc/testcontainers',
    description: 'Kafka, etcd and idalloc workers in containers for tests, with faults to inject',
    keywords: ['idalloc', 'kafka', 'testcontainers', 'testing'],
    manifest: ({ version, peerDependencies }) => ({
      engines: { node: TESTCONTAINERS_NODE },
      sideEffects: false,
      ...entriesOf(TESTCONTAINERS),
      dependencies: { '@idalloc/client': version },
      peerDependencies: picked(peerDependencies, ['testcontainers']),
    }),
    build: (dir) => buildLibrary(TESTCONTAINERS, join(dir, 'dist')),
  },
  {
    name: 'idalloc',
    description: 'Worker and command line of idalloc, a Kafka-driven allocator of 64-bit, time-ordered IDs',
    keywords: ['id', 'kafka', 'etcd', 'snowflake', 'allocator'],
    manifest: ({ dependencies, peerDependencies }) => ({
      engines: { node: WORKER_NODE },
      bin: { idalloc: 'dist/bin.js' },
      exports: { './package.json': './package.json' },
      dependencies,
      ...optionalPeers(peerDependencies, ['@opentelemetry/sdk-node', 'aws-msk-iam-sasl-signer-js']),
    }),
    build: buildWorker,
  },
];

async function buildWorker(dir: string): Promise<readonly string[]> {
  const args = ['--project', join(ROOT, 'tsconfig.build.json'), '--outDir', join(dir, 'dist')];
  const command = join(ROOT, 'node_modules/.bin/tsc');
  await run({ command, args, cwd: ROOT, purpose: 'the build by tsc', timeoutMs: TIMEOUT_MS });
  cpSync(join(ROOT, 'NOTICE'), join(dir, 'NOTICE'));
  return [];
}

/**
 * The fields that say where a library's entries are, for both module systems. Node takes `module-sync` and bundlers
 * take `module` for `require` as well: one copy of each class in a process, whoever loads it how, and in a bundle no
 * `require` of Node's modules, which esbuild's ES modules can't do. `require` is for what can't load ES modules so,
 * such as Jest. `main`, `types` and `typesVersions` are for what does not read `exports`, such as TypeScript's
 * `moduleResolution: node`.
 */
function entriesOf({ entries }: Library): object {
  const typesOf = (source: string, format: 'esm' | 'cjs') => `./dist/${format}/types/${declarationOf(source)}`;
  const filesOf = (name: string, source: string, format: 'esm' | 'cjs') => ({
    types: typesOf(source, format),
    default: `./dist/${format}/${name}.js`,
  });
  const all = Object.entries(entries);
  const exports = all.map(([name, source]) => [
    name === 'index' ? '.' : `./${name}`,
    {
      'module-sync': filesOf(name, source, 'esm'),
      module: filesOf(name, source, 'esm'),
      import: filesOf(name, source, 'esm'),
      require: filesOf(name, source, 'cjs'),
    },
  ]);
  const others = all.filter(([name]) => name !== 'index').map(([name, source]) => [name, [typesOf(source, 'cjs')]]);
  return {
    main: './dist/cjs/index.js',
    types: typesOf(entries.index ?? '', 'cjs'),
    ...(others.length === 0 ? {} : { typesVersions: { '*': Object.fromEntries(others) } }),
    exports: { ...Object.fromEntries(exports), './package.json': './package.json' },
  };
}

function picked(versions: Readonly<Record<string, string>>, names: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    names.map((name) => {
      const version = versions[name];
      if (version === undefined) throw new Error(`package.json has no version of ${name}`);
      return [name, version];
    }),
  );
}

function optionalPeers(versions: Readonly<Record<string, string>>, names: readonly string[]): object {
  const peerDependenciesMeta = Object.fromEntries(names.map((name) => [name, { optional: true }]));
  return { peerDependencies: picked(versions, names), peerDependenciesMeta };
}

/** The root's package.json, from which the packages have their version and those of their dependencies. */
export function readManifest(): RootManifest {
  return JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
}

/**
 * Builds all packages and packs them into tarballs in `outDir`. What an earlier call wrote there is removed first.
 *
 * @param show reports progress
 * @throws Error if `outDir` has other files, or a build fails.
 */
export async function buildPackages(outDir: string, show: (line: string) => void): Promise<readonly Packed[]> {
  const present = existsSync(outDir) ? readdirSync(outDir) : [];
  if (present.length > 0 && !present.includes(CONTENTS)) {
    throw new Error(
      `${outDir} has files that are not from here: name an empty directory, or one that does not exist yet`,
    );
  }
  rmSync(outDir, { recursive: true, force: true });
  const root = readManifest();
  const packed: Packed[] = [];
  for (const definition of DEFINITIONS) {
    show(`building ${definition.name} ${root.version}`);
    packed.push(await pack(definition, root, outDir));
  }
  return packed;
}

async function pack(definition: Definition, root: RootManifest, outDir: string): Promise<Packed> {
  const { name, description, keywords } = definition;
  const short = name.replace(/^@[^/]+\//, '');
  const dir = join(outDir, CONTENTS, short);
  mkdirSync(dir, { recursive: true });
  const bundled = await definition.build(dir);
  const { version, license } = root;
  const own = definition.manifest(root);
  const publishConfig = { access: 'public' };
  const gitHead = existsSync(join(ROOT, '.git'))
    ? await run({
        command: 'git',
        args: ['rev-parse', 'HEAD'],
        cwd: ROOT,
        purpose: 'the commit',
        timeoutMs: TIMEOUT_MS,
      })
    : undefined;
  const head = { name, version, gitHead: gitHead?.trim(), description, keywords, license, ...PLACES };
  const manifest = { ...head, type: 'module', ...own, publishConfig };
  writeFileSync(join(dir, 'package.json'), `${JSON.stringify(manifest, undefined, 2)}\n`);
  cpSync(join(ROOT, 'LICENSE'), join(dir, 'LICENSE'));
  cpSync(join(import.meta.dirname, 'readme', `${short}.md`), join(dir, 'README.md'));
  if (bundled.length > 0) writeFileSync(join(dir, 'THIRD-PARTY-LICENSES'), bundledLicenses(bundled));
  const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', outDir];
  const output = await run({ command: 'npm', args, cwd: dir, purpose: `npm pack of ${name}`, timeoutMs: TIMEOUT_MS });
  const [{ filename }] = JSON.parse(output) as [{ filename: string }];
  const tarball = join(outDir, filename);
  return { name, tarball, bytes: statSync(tarball).size, bundled, dependencies: Object.keys(own.dependencies) };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      out: { type: 'string', default: PACKAGES_DIR },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    process.stdout.write(USAGE);
    return;
  }
  const packed = await buildPackages(resolve(values.out), (line) => process.stderr.write(`${line}\n`));
  if (values.json) process.stdout.write(`${JSON.stringify(packed, undefined, 2)}\n`);
  else for (const { tarball, bytes } of packed) process.stdout.write(`${relative(ROOT, tarball)} (${kib(bytes)})\n`);
}

function kib(bytes: number): string {
  return `${Math.ceil(bytes / 1024)} KiB`;
}

if (import.meta.main) await main();
