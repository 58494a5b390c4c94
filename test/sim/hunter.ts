import { enableCompileCache } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';
import { COMPILE_CACHE } from '../../ops/dev/paths.ts';
import { loadMutant, MUTANTS } from './mutants.ts';

/** What a thread hunts: a mutant by its name, from a seed on, in so many seeds. */
export interface Hunt {
  readonly name: string;
  readonly from: number;
  readonly seeds: number;
}

/** The seed whose history failed a check, and the first check that failed. */
export interface Catch {
  readonly seed: number;
  readonly check: string;
  readonly what: string;
}

async function hunt({ name, from, seeds }: Hunt): Promise<Catch | undefined> {
  const mutant = MUTANTS.find((one) => one.name === name);
  if (mutant === undefined) throw new Error(`there is no mutant '${name}'`);
  const simulate = await loadMutant(mutant);
  for (let seed = from; seed < from + seeds; seed += 1) {
    const { faults } = await simulate(seed, { scenario: mutant.scenario });
    const [first] = faults;
    if (first !== undefined) return { seed, check: first.check, what: first.what };
  }
  return undefined;
}

enableCompileCache(COMPILE_CACHE);
// A thread is started for each mutant, and ends with it: what it has loaded is never freed.
parentPort?.postMessage(await hunt(workerData as Hunt));
