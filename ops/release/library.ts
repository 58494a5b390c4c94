import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { build, type Metafile, type Plugin } from 'esbuild';
import { ROOT } from '../dev/paths.ts';
import { type Declared, writeDeclarations } from './declarations.ts';

/** What is built into a package that services import. */
export interface Library extends Declared {
  /** Packages that are installed with this one or by its user. All others are bundled. */
  readonly external: readonly string[];
  /**
   * Modules that are no entries, but files of their own, by the names of these: they run before the external packages
   * are loaded, which otherwise come first in a bundle.
   */
  readonly first?: Readonly<Record<string, string>>;
}

interface SourceMap {
  readonly sources: readonly string[];
  readonly sourcesContent: readonly (string | null)[];
}

/** The oldest Node that the libraries support: see "engines" in package.json. */
const TARGET = 'node20.19';

/** Modules of packages that are bundled instead of their main ones. */
const ALIAS = {
  // Its loader looks for its implementations with computed names, which bundlers can't follow. The one in JavaScript is
  // fast enough for a client.
  '@chainsafe/fast-crc32c': '@chainsafe/fast-crc32c/impls/js_crc32c.js',
  // Types only: without protocols and files, which nothing here uses.
  avsc: 'avsc/etc/browser/avsc-types.js',
};

/**
 * Modules of Node that a bundled CommonJS package requires become imports. In an ES module `require` does not exist,
 * and what bundlers put in its place throws.
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
 * entries share their chunks, so that a class is the same class in all of them. Source maps are beside the ES modules,
 * which Node runs for `require` as well.
 *
 * @returns the names of the packages that were bundled
 * @throws Error for an import of a package that is neither bundled nor external.
 */
export async function buildLibrary(library: Library, dir: string): Promise<readonly string[]> {
  const { metafile, outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: { ...library.entries, ...library.first },
    // As if the repository were the package, so that the paths in source maps, and the names that have their hashes,
    // are the same wherever this is written.
    outdir: join(ROOT, 'dist/esm'),
    write: false,
    bundle: true,
    splitting: true,
    chunkNames: 'shared-[hash]',
    format: 'esm',
    platform: 'node',
    target: TARGET,
    sourcemap: 'linked',
    // With it, neither Node's nor any other `require` could load the ES modules.
    supported: { 'top-level-await': false },
    external: [...library.external],
    alias: ALIAS,
    plugins: [BUILT_INS_IMPORTED, ...boundaryPlugins(library)],
    metafile: true,
    logLevel: 'warning',
  });
  requireDeclared(metafile, library);
  mkdirSync(join(dir, 'esm'), { recursive: true });
  for (const { path, text } of outputFiles) {
    writeFileSync(join(dir, 'esm', basename(path)), path.endsWith('.map') ? shortMap(text) : text);
  }
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

/**
 * A source map with all positions, but of the texts only ours: each bundled package is in its own registry, and would
 * double the size.
 */
function shortMap(text: string): string {
  const map: SourceMap = JSON.parse(text);
  const sourcesContent = map.sourcesContent.map((one, i) => (map.sources[i]?.startsWith('../../src/') ? one : null));
  return JSON.stringify({ ...map, sourcesContent });
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
