import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../../ops/dev/paths.ts';
import { shareDependencies } from '../support/released.ts';

/** A checkout whose worker and benchmarks can be run. */
export interface Tree {
  /** For people. */
  readonly name: string;
  readonly root: string;
  /** The main.ts of its worker. */
  readonly main: string;
}

const git = (...args: readonly string[]) =>
  execFileSync('git', args, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();

const treeAt = (name: string, root: string): Tree => ({ name, root, main: join(root, 'src/main.ts') });

/** This tree, as it is on the disk. */
export function thisTree(): Tree {
  const changed = git('status', '--porcelain', '--untracked-files=no') !== '';
  return treeAt(`this tree (${git('rev-parse', '--short', 'HEAD')}${changed ? ', changed' : ''})`, ROOT);
}

/**
 * A commit, checked out to a temporary directory with its own dependencies, until it is disposed of.
 *
 * @throws Error if this clone does not have the commit.
 */
export async function treeOf(commit: string): Promise<Tree & Disposable> {
  const hash = hashOf(commit);
  const place = mkdtempSync(join(tmpdir(), 'idalloc-tree-'));
  const root = join(place, 'checkout');
  const remove = () => {
    rmSync(place, { recursive: true, force: true });
    git('worktree', 'prune');
  };
  process.once('exit', remove); // when the comparison is interrupted
  try {
    git('worktree', 'add', '--quiet', '--detach', root, hash);
    await shareDependencies(root, commit);
    return { ...treeAt(commit, root), [Symbol.dispose]: remove };
  } catch (error) {
    remove();
    throw error;
  }
}

function hashOf(commit: string): string {
  try {
    return git('rev-parse', '--verify', '--quiet', `${commit}^{commit}`);
  } catch {
    throw new Error(`this clone has no commit '${commit}': give a commit, tag or branch, and fetch it before`);
  }
}
