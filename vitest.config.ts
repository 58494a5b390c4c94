import { defineConfig } from 'vitest/config';
import { LongestFirst } from './test/integration/longest-first.ts';
import { filesOf } from './test/integration/suites.ts';
import { git, MUTANT_VARIABLE, mutantPlugin, rotation } from './test/sim/mutants.ts';
import { SEED_VARIABLE, SEEDS } from './test/support/seeded.ts';

/** Each commit draws other random values, and one commit always the same, so that what passed once passes again. */
const seed = process.env[SEED_VARIABLE] ?? String(rotation(git) % SEEDS);

/** A known bug, to see which unit tests notice it. What is compiled with it must not be kept for other runs. */
const mutant = process.env[MUTANT_VARIABLE];

const onServers = {
  // The tests' own client of Kafka, kafkajs, sets timers for times that are over; it would be a warning for each file.
  execArgv: ['--disable-warning=TimeoutNegativeWarning'],
  globalSetup: ['test/support/global-setup.ts'],
  // For a hang, which must not be mistaken for a busy machine.
  testTimeout: 600_000,
  hookTimeout: 600_000,
  expect: { poll: { timeout: 120_000 } },
  // Most of their time is waiting: for leases to run out, and for groups to notice that a member is gone.
  maxWorkers: 4,
};

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        plugins: mutant === undefined ? [] : [mutantPlugin(mutant)],
        test: {
          name: 'unit',
          fsModuleCache: mutant === undefined,
          include: ['test/**/*.test.ts'],
          exclude: ['test/integration/**'],
          env: { [SEED_VARIABLE]: seed },
          setupFiles: ['test/support/seed-setup.ts'],
          // For a hang, which must not be mistaken for a busy machine.
          testTimeout: 180_000,
          hookTimeout: 180_000,
          expect: { poll: { timeout: 60_000 } },
        },
      },
      { test: { name: 'short', include: filesOf('short'), ...onServers } },
      { test: { name: 'long', include: filesOf('long'), ...onServers } },
      { test: { name: 'few', include: filesOf('few'), ...onServers, maxWorkers: 2 } },
      { test: { name: 'alone', include: filesOf('alone'), ...onServers, fileParallelism: false } },
    ],
  },
});
