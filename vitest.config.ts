import { defineConfig } from 'vitest/config';

/** Tests that break the suite's servers, or measure a machine that has nothing else to do. */
const ALONE = 'test/integration/**/*.alone.test.ts';

const onServers = {
  // The tests' own client of Kafka, kafkajs, sets timers for times that are over; it would be a warning for each file.
  execArgv: ['--disable-warning=TimeoutNegativeWarning'],
  globalSetup: ['test/support/global-setup.ts'],
  testTimeout: 180_000,
  hookTimeout: 180_000,
  expect: { poll: { timeout: 30_000 } },
};

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/integration/**'],
          // For a hang, which must not be mistaken for a busy machine.
          testTimeout: 180_000,
          hookTimeout: 180_000,
          expect: { poll: { timeout: 60_000 } },
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          exclude: [ALONE],
          ...onServers,
          // Most of their time is waiting: for leases to run out, and for groups to notice that a member is gone.
          maxWorkers: 3,
        },
      },
      {
        test: {
          name: 'alone',
          include: [ALONE],
          ...onServers,
          fileParallelism: false,
        },
      },
    ],
  },
});
