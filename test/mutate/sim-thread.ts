import { enableCompileCache } from 'node:module';
import { parentPort, workerData } from 'node:worker_threads';
import { COMPILE_CACHE } from '../../ops/dev/paths.ts';
import type { Mutant } from '../sim/mutant.ts';
import { loadMutant } from '../sim/mutated.ts';

/** A mutant, and how many seeds to simulate, from 1 on. */
export interface Play {
  readonly mutant: Mutant;
  readonly seeds: number;
}

/** A seed that was simulated, and the first check that failed, if any. */
export interface Played {
  readonly seed: number;
  readonly failed: string | undefined;
}

enableCompileCache(COMPILE_CACHE);
const { mutant, seeds } = workerData as Play;
const simulate = await loadMutant(mutant);
for (let seed = 1; seed <= seeds; seed += 1) {
  const { faults } = await simulate(seed);
  const failed = faults[0]?.check;
  parentPort?.postMessage({ seed, failed } satisfies Played);
  if (failed !== undefined) break;
}
