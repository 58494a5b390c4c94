import { execFileSync } from 'node:child_process';
import { readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { cached } from '../../ops/bare/cache.ts';
import { cacheDir, ROOT } from '../../ops/dev/paths.ts';
import { run } from '../../ops/dev/run.ts';

const INSTALL_MS = 300_000;
/** What a worker of a release runs on. */
const FILES = ['src', 'package.json', 'package-lock.json', 'ops/node'];

/** A commit of this repository's history that was released. */
export interface Release {
  readonly version: string;
  readonly commit: string;
}

const git = (...args: readonly string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' });

/** The last release before the checked-out commit, or why it can't be had from here. */
export function lastRelease(): Release | { readonly missing: string } {
  const remedy = "get the whole history ('git fetch --unshallow'), or test in a clone that has it";
  try {
    const found = git('log', '-1', '--format=%H %s', '--extended-regexp', '--grep=^release: [0-9]', 'HEAD~');
    const [, commit, version] = /^(\w+) release: ([0-9.]+)/.exec(found) ?? [];
    if (commit === undefined || version === undefined)
      return { missing: `this clone has no earlier release: ${remedy}` };
    return { commit, version };
  } catch (error) {
    const { stderr } = error as { readonly stderr?: string };
    return { missing: `git shows no commit before this one (${stderr?.split('\n')[0] ?? error}): ${remedy}` };
  }
}

/**
 * Gives a temporary tree what its worker needs. Most trees differ from this one in their sources only, and share its
 * packages. A cached one must not: it outlives this checkout.
 */
export async function shareDependencies(dir: string, name: string): Promise<void> {
  const isSame = readFileSync(join(dir, 'package-lock.json')).equals(readFileSync(join(ROOT, 'package-lock.json')));
  if (isSame) symlinkSync(join(ROOT, 'node_modules'), join(dir, 'node_modules'));
  else await installDependencies(dir, name);
}

/** The command that starts a worker of a release, whose sources are taken from git once and kept in the cache. */
export async function workerOf({ version, commit }: Release): Promise<readonly string[]> {
  const log = (line: string) => process.stderr.write(`release: ${line}\n`);
  const options = { cache: cacheDir(process.env), what: `the sources of ${version}`, log };
  const dir = await cached(`released-${version}-${commit.slice(0, 12)}`, options, async (into) => {
    const archive = join(into, 'sources.tar');
    git('archive', `--output=${archive}`, commit, ...FILES);
    const unpack = { purpose: `unpacking ${version}`, timeoutMs: INSTALL_MS, cwd: into };
    await run({ ...unpack, command: 'tar', args: ['-xf', archive] });
    await installDependencies(into, version);
  });
  return [process.execPath, join(dir, 'src/main.ts'), 'worker'];
}

/** Installs what the worker of a tree needs. */
async function installDependencies(dir: string, name: string): Promise<void> {
  const args = ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'];
  await run({ command: 'npm', args, cwd: dir, purpose: `npm ci of ${name}`, timeoutMs: INSTALL_MS });
}
