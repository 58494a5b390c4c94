import { enableCompileCache } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';
import { COMPILE_CACHE } from '../../ops/dev/paths.ts';
import { mutantOf } from './mutants.ts';
import { loadMutant } from './mutated.ts';

/** What a thread hunts: a mutant by its name, from each of these seeds on, in so many seeds. */
export interface Hunt {
  readonly name: string;
  readonly from: readonly number[];
  readonly seeds: number;
}

/** How many seeds were played until a history failed a check, and the first check that failed. */
export interface Catch {
  readonly seeds: number;
  readonly check: string;
  readonly what: string;
}

/** The catch of each hunt, in order; undefined where its seeds revealed nothing. */
async function hunt({ name, from, seeds }: Hunt): Promise<readonly (Catch | undefined)[]> {
  const mutant = mutantOf(name);
  const simulate = await loadMutant(mutant);
  const hunted: (Catch | undefined)[] = [];
  for (const start of from) {
    let caught: Catch | undefined;
    for (let seed = start; caught === undefined && seed < start + seeds; seed += 1) {
      const [first] = (await simulate(seed, { scenario: mutant.scenario })).faults;
      if (first !== undefined) caught = { seeds: seed - start + 1, check: first.check, what: first.what };
    }
    hunted.push(caught);
  }
  return hunted;
}

enableCompileCache(COMPILE_CACHE);
// A thread is started for each mutant, and ends with it: what it has loaded is never freed.
parentPort?.postMessage(await hunt(workerData as Hunt));
