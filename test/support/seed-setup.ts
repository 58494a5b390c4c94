/** Runs before each file of unit tests: properties take the seed of the run as well, and a failed test names it. */
import { afterEach, vi } from 'vitest';
import { dependsOnSeed, drawSeed, SEED_VARIABLE } from './seeded.ts';

// Only files that have properties load fast-check.
vi.mock('fast-check', async (load) => {
  const loaded = await load<typeof import('fast-check')>();
  loaded.configureGlobal({ ...loaded.readConfigureGlobal(), seed: drawSeed() });
  return loaded;
});

afterEach(({ task }) => {
  if (!dependsOnSeed()) return;
  for (const error of task.result?.errors ?? [])
    error.message += `\n\n${SEED_VARIABLE}=${drawSeed()} repeats the random values of this run.`;
});
