import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Mutant } from './mutant.ts';
import { COPY_MUTANTS } from './mutants-copies.ts';
import { GROWTH_MUTANTS } from './mutants-growth.ts';
import { IDENTITY_MUTANTS } from './mutants-identity.ts';
import { KAFKA_MUTANTS } from './mutants-kafka.ts';
import { LEDGER_MUTANTS } from './mutants-ledger.ts';
import { MEMORY_MUTANTS } from './mutants-memory.ts';
import { RECORD_MUTANTS } from './mutants-records.ts';
import { REPLAY_MUTANTS } from './mutants-replays.ts';
import { SEQUENCE_MUTANTS } from './mutants-sequences.ts';
import { TAIL_MUTANTS } from './mutants-tails.ts';
import type { simulate } from './simulation.ts';

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
export interface SourceCopy extends Disposable {
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

/**
 * Loads the simulator with one bug in its sources: the loader of modules of this thread gets the patched text for their
 * files. So the bug is in the real code, and what it does not touch is compiled once for all threads. Works once in a
 * thread, since modules are loaded once. Throws when a patch no longer fits, or is in a file that is not loaded.
 */
export async function loadMutant(mutant: Mutant): Promise<typeof simulate> {
  const texts = new Map([...patchedFiles(mutant)].map(([file, text]) => [pathToFileURL(join(ROOT, file)).href, text]));
  registerHooks({
    load(url, context, nextLoad) {
      const source = texts.get(url);
      if (source === undefined) return nextLoad(url, context);
      texts.delete(url);
      return { format: 'module-typescript', source, shortCircuit: true };
    },
  });
  const { simulate } = await import('./simulation.ts');
  if (texts.size > 0)
    throw new Error(`mutant '${mutant.name}' has patches of what was not loaded: ${[...texts.keys()]}`);
  return simulate;
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
