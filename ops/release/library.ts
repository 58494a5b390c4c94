import { globSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { build, type Metafile, type Plugin } from 'esbuild';
import { ROOT } from '../dev/paths.ts';
import { run } from '../dev/run.ts';

/** What is built into a package that services import. */
export interface Library {
  /** By the name of the output file: the entry's source, relative to the root. */
  readonly entries: Readonly<Record<string, string>>;
  /** Packages that are installed with this one or by its user. All others are bundled. */
  readonly external: readonly string[];
  /** A source file that another package exports: imports of it become imports of that package. */
  readonly boundary?: { readonly source: string; readonly package: string };
}

const TSC = join(ROOT, 'node_modules/.bin/tsc');
/** For a hang, which must not be mistaken for a busy machine. */
const TIMEOUT_MS = 600_000;
/** The oldest Node that the libraries support: see "engines" in package.json. */
const TARGET = 'node20.19';

/** Modules of packages that are bundled instead of their main ones. */
const ALIAS = {
  // Its loader looks for its implementations with computed names, which bundlers can't follow. The one in JavaScript is fast
  // enough for a client.
  '@chainsafe/fast-crc32c': '@chainsafe/fast-crc32c/impls/js_crc32c.js',
  // Types only: without protocols and files, which nothing here uses.
  avsc: 'avsc/etc/browser/avsc-types.js',
};

/**
 * Modules of Node that a bundled CommonJS package requires become imports. In an ES module `require` does not exist, and what
 * bundlers put in its place throws.
 */
const BUILT_INS_IMPORTED: Plugin = {
  name: 'built-ins-imported',
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /./ }, ({ path, kind, namespace }) => {
      if (namespace === 'required') return { path, namespace: 'imported' };
      return kind === 'require-call' && isBuiltin(path) ? { path, namespace: 'required' } : undefined;
    });
    onLoad({ filter: /./, namespace: 'required' }, ({ path }) => ({
      contents: `module.exports = require('${path}').default;`,
    }));
    onLoad({ filter: /./, namespace: 'imported' }, ({ path }) => ({
      contents: `export { default } from '${path.startsWith('node:') ? path : `node:${path}`}';`,
    }));
  },
};

/**
 * Writes the library to `dir`: ES modules to esm, CommonJS to cjs, each with its type declarations. In both formats the
 * entries share their chunks, so that a class is the same class in all of them.
 *
 * @returns the names of the packages that were bundled
 * @throws Error for an import of a package that is neither bundled nor external.
 */
export async function buildLibrary(library: Library, dir: string): Promise<readonly string[]> {
  const { metafile } = await build({
    absWorkingDir: ROOT,
    entryPoints: { ...library.entries },
    outdir: join(dir, 'esm'),
    bundle: true,
    splitting: true,
    chunkNames: 'shared-[hash]',
    format: 'esm',
    platform: 'node',
    target: TARGET,
    external: [...library.external],
    alias: ALIAS,
    plugins: [BUILT_INS_IMPORTED, ...boundaryPlugins(library)],
    metafile: true,
    logLevel: 'warning',
  });
  requireDeclared(metafile, library);
  await build({
    absWorkingDir: ROOT,
    entryPoints: globSync(join(dir, 'esm/*.js')),
    outdir: join(dir, 'cjs'),
    format: 'cjs',
    platform: 'node',
    target: TARGET,
    supported: { 'dynamic-import': false },
    logLevel: 'warning',
  });
  writeFileSync(join(dir, 'cjs/package.json'), '{ "type": "commonjs" }\n');
  await writeDeclarations(library, dir);
  return bundledPackages(metafile);
}

function boundaryPlugins({ boundary }: Library): Plugin[] {
  if (boundary === undefined) return [];
  const source = join(ROOT, boundary.source);
  const setup: Plugin['setup'] = ({ onResolve }) =>
    onResolve({ filter: /^\./ }, ({ path, resolveDir }) =>
      join(resolveDir, path) === source ? { path: boundary.package, external: true } : undefined,
    );
  return [{ name: 'boundary', setup }];
}

function requireDeclared({ outputs }: Metafile, { external, boundary }: Library): void {
  const declared = [...external, ...(boundary === undefined ? [] : [boundary.package])];
  const isKnown = (path: string) =>
    isBuiltin(path) || declared.some((name) => path === name || path.startsWith(`${name}/`));
  const found = Object.values(outputs).flatMap(({ imports }) => imports.filter((one) => one.external));
  const unknown = found.map(({ path }) => path).filter((path) => !isKnown(path));
  if (unknown.length > 0) throw new Error(`imported, but neither bundled nor declared: ${unknown.join(', ')}`);
}

/** Names of the packages with code in an output; what tree shaking removed is not among them. */
function bundledPackages({ outputs }: Metafile): readonly string[] {
  const inputs = Object.values(outputs).flatMap((output) =>
    Object.entries(output.inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? [path] : [])),
  );
  const names = inputs.flatMap((path) => /.*(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1] ?? []);
  return [...new Set(names)].sort();
}

/** Any relative import or export of a declaration file. */
const RELATIVE = /(from |import\()(['"])(\.[^'"]+)\2/g;

/** The compiler declares everything that is compiled; only the declarations that an entry refers to are copied. */
async function writeDeclarations({ entries, boundary }: Library, dir: string): Promise<void> {
  mkdirSync(join(ROOT, '.idalloc'), { recursive: true });
  const all = mkdtempSync(join(ROOT, '.idalloc/declarations-'));
  try {
    await emitDeclarations(Object.values(entries), all);
    const pending = Object.values(entries).map(declarationOf);
    for (const file of pending) {
      const path = join(all, file);
      const text = readFileSync(path, 'utf8').replaceAll(RELATIVE, (whole, keyword, quote, target) => {
        const source = join('src', dirname(file), target);
        if (source === boundary?.source) return `${keyword}${quote}${boundary.package}${quote}`;
        const next = declarationOf(source);
        if (!pending.includes(next)) pending.push(next);
        return whole.replace(/\.ts(?=['"]$)/, '.js');
      });
      for (const format of ['esm', 'cjs']) {
        const copy = join(dir, format, 'types', file);
        mkdirSync(dirname(copy), { recursive: true });
        writeFileSync(copy, text);
      }
    }
  } finally {
    rmSync(all, { recursive: true, force: true });
  }
}

/** The declaration file of a source file, relative to src. */
export function declarationOf(source: string): string {
  return relative('src', source).replace(/\.[jt]s$/, '.d.ts');
}

async function emitDeclarations(entries: readonly string[], outDir: string): Promise<void> {
  const config = join(outDir, 'tsconfig.json');
  const ambient = globSync('src/**/*.d.ts', { cwd: ROOT });
  const settings = {
    extends: join(ROOT, 'tsconfig.client.json'),
    compilerOptions: { noEmit: false, emitDeclarationOnly: true, rootDir: join(ROOT, 'src'), outDir, sourceMap: false },
    files: [...entries, ...ambient].map((file) => join(ROOT, file)),
    include: [],
  };
  writeFileSync(config, JSON.stringify(settings));
  const purpose = 'the declarations by tsc';
  await run({ command: TSC, args: ['--project', config], cwd: ROOT, purpose, timeoutMs: TIMEOUT_MS });
}

/** The licences of bundled packages, which have to travel with their code. Throws Error for a package without one. */
export function bundledLicenses(names: readonly string[]): string {
  const texts = names.map((name) => {
    const [path] = globSync(join(ROOT, 'node_modules', name, 'LICENSE*'));
    if (path === undefined) throw new Error(`${name} has no LICENSE file, so it can't be bundled`);
    const { version } = JSON.parse(readFileSync(join(dirname(path), 'package.json'), 'utf8'));
    return `${name} ${version}\n\n${readFileSync(path, 'utf8').trim()}\n`;
  });
  return texts.join(`\n${'-'.repeat(80)}\n\n`);
}
