import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Mutant } from './mutant.ts';
import { IDENTITY_MUTANTS } from './mutants-identity.ts';
import { KAFKA_MUTANTS, RECORD_MUTANTS, TAIL_MUTANTS } from './mutants-kafka.ts';
import { COPY_MUTANTS, LEDGER_MUTANTS, REPLAY_MUTANTS } from './mutants-ledger.ts';
import { GROWTH_MUTANTS, MEMORY_MUTANTS, SEQUENCE_MUTANTS } from './mutants-sequences.ts';

export const MUTANTS: readonly Mutant[] = [
  ...IDENTITY_MUTANTS,
  ...LEDGER_MUTANTS,
  ...COPY_MUTANTS,
  ...KAFKA_MUTANTS,
  ...GROWTH_MUTANTS,
  ...TAIL_MUTANTS,
  ...SEQUENCE_MUTANTS,
  ...MEMORY_MUTANTS,
  ...RECORD_MUTANTS,
  ...REPLAY_MUTANTS,
];

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const COPIED = ['package.json', 'src', 'test/sim', 'test/support', 'test/identity'];

/** A copy of the sources, the simulator and all that it imports, in a temporary directory. */
interface SourceCopy extends Disposable {
  readonly root: string;
}

/** Copies the sources; they are removed when the copy is disposed of. */
export function copySources(): SourceCopy {
  const root = mkdtempSync(join(tmpdir(), 'idalloc-mutant-'));
  const copy = { root, [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }) };
  try {
    for (const path of COPIED) cpSync(join(ROOT, path), join(root, path), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'), 'dir');
    return copy;
  } catch (error) {
    copy[Symbol.dispose]();
    throw error;
  }
}

/** Names the mutant with which the unit tests run, to see which of them notice it. */
export const MUTANT_VARIABLE = 'IDALLOC_MUTANT';

/** What Vite asks of its plugins for each module. */
interface LoaderPlugin {
  readonly name: string;
  readonly enforce: 'pre';
  /** The text of a module; undefined for what is on the disk. */
  load(id: string): string | undefined;
}

/** Gives the unit tests the sources with one bug. Throws for a name of no mutant, and when a patch no longer fits. */
export function mutantPlugin(wanted: string): LoaderPlugin {
  const texts = new Map([...patchedFiles(mutantOf(wanted))].map(([file, text]) => [join(ROOT, file), text]));
  return { name: MUTANT_VARIABLE, enforce: 'pre', load: (id) => texts.get(id.replace(/\?.*/, '')) };
}

/** The mutant with this name. Throws if there is none. */
export function mutantOf(wanted: string): Mutant {
  const mutant = MUTANTS.find(({ name }) => name === wanted);
  if (mutant === undefined) throw new Error(`there is no mutant '${wanted}'`);
  return mutant;
}

/** The patched files of a mutant. Throws when a patch no longer fits. */
export function patchedFiles({ name, patches }: Mutant): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const { file, from, to } of patches) {
    const text = texts.get(file) ?? readFileSync(join(ROOT, file), 'utf8');
    texts.set(file, patched(text, from, to, `${name}: ${file}`));
  }
  return texts;
}

/** The text with one replacement. Throws unless `from` occurs in it exactly once. */
export function patched(text: string, from: string, to: string, where: string): string {
  const parts = text.split(from);
  if (parts.length !== 2) throw new Error(`stale mutant: ${where} has the text ${parts.length - 1} times: ${from}`);
  return parts.join(to);
}

/** The commit decides among this many ranges of seeds. */
const RANGES = 100_000;
/** How many mutants of changed files are simulated, so that `npm test` ends in time; the long suite has the others. */
const CHANGED = 30;
/** How many are although their files are as released. */
const UNCHANGED = 15;
const RELEASE_TAGS = 'v*';

/** Runs git in this checkout; undefined where git fails, as outside a checkout. */
export type Git = (...args: readonly string[]) => string | undefined;

export const git: Git = (...args) => {
  try {
    return execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return undefined;
  }
};

/** A number that changes with each commit; 0 where there is none. */
export function rotation(ask: Git): number {
  return Number.parseInt((ask('rev-parse', 'HEAD') ?? '0').slice(0, 12), 16);
}

/** The first of `seeds` seeds for this commit: so each commit plays others, and the same commit the same ones. */
export function firstSeed(seeds: number, ask: Git): number {
  return 1 + (rotation(ask) % RANGES) * seeds;
}

/**
 * Up to CHANGED mutants whose files differ from the last release, and UNCHANGED others; which ones rotates by commit.
 * All of them where the last release is unknown, as in a shallow clone: what may have changed is not left out.
 */
export function changedMutants(mutants: readonly Mutant[], ask: Git): readonly Mutant[] {
  const changed = changedFiles(ask);
  if (changed === undefined) return mutants;
  const isChanged = ({ patches }: Mutant) => patches.some(({ file }) => changed.has(file));
  const released = mutants.filter((mutant) => !isChanged(mutant));
  return [...rotated(mutants.filter(isChanged), CHANGED, ask), ...rotated(released, UNCHANGED, ask)];
}

/** The mutants that `changedMutants` leaves out at this commit. */
export function otherMutants(mutants: readonly Mutant[], ask: Git): readonly Mutant[] {
  const chosen = new Set(changedMutants(mutants, ask));
  return mutants.filter((mutant) => !chosen.has(mutant));
}

/** So many of them, from a place that changes with each commit. */
function rotated(mutants: readonly Mutant[], count: number, ask: Git): readonly Mutant[] {
  if (mutants.length <= count) return mutants;
  const start = rotation(ask) % mutants.length;
  return [...mutants.slice(start), ...mutants.slice(0, start)].slice(0, count);
}

/** The files that differ from the last release, committed or not; undefined where that is unknown. */
function changedFiles(ask: Git): ReadonlySet<string> | undefined {
  if (ask('rev-parse', '--is-shallow-repository') !== 'false') return undefined;
  // Without a tag, the commit that wrote the version.
  const release =
    ask('describe', '--tags', '--abbrev=0', '--match', RELEASE_TAGS) ??
    (ask('log', '-1', '--format=%H', '-G"version": "', '--', 'package.json') || undefined);
  const files = release === undefined ? undefined : ask('diff', '--name-only', release);
  return files === undefined ? undefined : new Set(files.split('\n'));
}
