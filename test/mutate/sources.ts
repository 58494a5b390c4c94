import { globSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import type { SourceFile } from 'typescript/unstable/ast';
import { createVirtualFileSystem } from 'typescript/unstable/fs';
import { API } from 'typescript/unstable/sync';
import { ROOT } from '../../ops/dev/paths.ts';

/** Imports and exports of values, as the formatter writes them; what is imported as a type is not loaded. */
const STATEMENT = /^(?:import|export)\s(?!type\s)(?:[\w*\s{},$]*\sfrom\s)?'(?<name>\.[^']+)';/gm;
const EXPRESSION = /(?<!typeof )\bimport\('(?<name>\.[^']+)'\)/g;
const SIMULATION = 'test/sim/simulation.ts';
/** Tests of other rooms, which are farther away: so many of the nearest ones run. */
const OTHER_TESTS = 12;

/** The files of src and test by their paths from the root, and which of them loads which. */
export interface Sources {
  readonly texts: ReadonlyMap<string, string>;
  /** Which files load a file. */
  readonly loadedBy: ReadonlyMap<string, readonly string[]>;
}

export function readSources(): Sources {
  const files = globSync('{src,test}/**/*.ts', { cwd: ROOT }).map((path) => path.replaceAll('\\', '/'));
  return sourcesOf(new Map(files.toSorted().map((file) => [file, readFileSync(join(ROOT, file), 'utf8')])));
}

export function sourcesOf(texts: ReadonlyMap<string, string>): Sources {
  const edges = [...texts].flatMap(([file, text]) => {
    return loads(file, text).map((loaded) => ({ file, loaded }));
  });
  const loadedBy = Map.groupBy(edges, ({ loaded }) => loaded);
  return { texts, loadedBy: new Map([...loadedBy].map(([loaded, by]) => [loaded, by.map(({ file }) => file)])) };
}

function loads(file: string, text: string): readonly string[] {
  const found = [...text.matchAll(STATEMENT), ...text.matchAll(EXPRESSION)];
  const paths = found.map(({ groups }) => posix.join(posix.dirname(file), String(groups?.name)));
  return [...new Set(paths)];
}

/** The files that load a file, directly or through others, with the number of steps; the file itself with 0. */
export function distances(file: string, { loadedBy }: Sources): ReadonlyMap<string, number> {
  const found = new Map([[file, 0]]);
  for (const [at, steps] of found) {
    for (const next of loadedBy.get(at) ?? []) if (!found.has(next)) found.set(next, steps + 1);
  }
  return found;
}

/**
 * The files of unit tests that cover a file of src: those of its room that load it, and the nearest of other rooms,
 * each nearest first. Left out are tests of the simulator, the models and the ways: they take minutes, or start
 * processes, which load the file without the mistake.
 */
export function testsOf(file: string, sources: Sources): readonly string[] {
  const room = `test/${posix.dirname(file).slice('src/'.length)}/`;
  const near = [...distances(file, sources)]
    .filter(([path]) => path.endsWith('.test.ts') && !/^test\/(?:integration|model|sim|way)\//.test(path))
    .toSorted(([one, a], [other, b]) => a - b || (one < other ? -1 : 1))
    .map(([path]) => path);
  const own = near.filter((path) => path.startsWith(room));
  return [...own, ...near.filter((path) => !path.startsWith(room)).slice(0, OTHER_TESTS)];
}

/** Whether the simulator loads a file. */
export function isSimulated(file: string, sources: Sources): boolean {
  return distances(file, sources).has(SIMULATION);
}

/** The syntax trees of files, by TypeScript's parser, which reads nothing but these texts. */
export function parse(texts: ReadonlyMap<string, string>): ReadonlyMap<string, SourceFile> {
  const files = Object.fromEntries([...texts].map(([file, text]) => [`/${file}`, text]));
  const config = { compilerOptions: { noLib: true, noResolve: true }, files: Object.keys(files) };
  const fs = createVirtualFileSystem({ ...files, '/tsconfig.json': JSON.stringify(config) });
  const api = new API({ fs });
  try {
    const project = api.updateSnapshot({ openProjects: ['/tsconfig.json'] }).getProject('/tsconfig.json');
    const trees = [...texts.keys()].map((file) => {
      const tree = project?.program.getSourceFile(`/${file}`);
      if (tree === undefined) throw new Error(`${file} can't be parsed`);
      return [file, tree] as const;
    });
    return new Map(trees);
  } finally {
    api.close();
  }
}
