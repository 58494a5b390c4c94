/**
 * Runs before each file of unit tests. A failed test names its seed, and properties take the same one. Where tests are
 * repeated (`npm run test:seeds`), each repetition has the next seed, and a test that draws nothing is skipped.
 */
import { afterEach, beforeEach, type TestContext, vi } from 'vitest';
import { drawSeed, SEED_VARIABLE, seedInUse, useSeed } from './seeded.ts';

// Only files that have properties load fast-check. It reads the seed for each property.
vi.mock('fast-check', async (load) => {
  const loaded = await load<typeof import('fast-check')>();
  loaded.configureGlobal({
    ...loaded.readConfigureGlobal(),
    get seed() {
      return drawSeed();
    },
  });
  return loaded;
});

/** The seed of what was drawn outside of tests, such as a list of examples. */
let seedOfFile: number | undefined;
let isFirst = true;
let drewLast = false;

beforeEach(({ task, skip }: TestContext) => {
  if (isFirst) seedOfFile = seedInUse();
  isFirst = false;
  const repetition = task.result?.repeatCount ?? 0;
  const hasFailed = task.result?.errors !== undefined; // a test that is skipped counts as not failed
  if (repetition > 0 && !drewLast && !hasFailed) skip('it draws nothing');
  useSeed(repetition);
});

afterEach(({ task }) => {
  drewLast = seedInUse() !== undefined;
  const seed = seedInUse() ?? seedOfFile;
  if (seed === undefined) return;
  for (const error of task.result?.errors ?? []) {
    if (error.message.includes(SEED_VARIABLE)) continue; // an earlier repetition failed, too
    const message = `${error.message}\n\n${SEED_VARIABLE}=${seed} repeats its random values.`;
    // Reports that are files have the stack only.
    if (error.stack !== undefined) error.stack = error.stack.replace(error.message, () => message);
    error.message = message;
  }
});
