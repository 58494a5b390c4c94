import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Mutant } from './mutant.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
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
