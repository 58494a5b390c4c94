import { registerHooks } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../../ops/dev/paths.ts';
import type { Mutant } from './mutant.ts';
import { patchedFiles } from './mutants.ts';
import type { simulate } from './simulation.ts';

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
