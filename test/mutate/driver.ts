/**
 * A process of the mutator that runs one file of unit tests after the other, with one file of src replaced as it is
 * loaded. One runner for all of them saves most of the time that a new one takes to begin.
 */
import { createVitest } from 'vitest/node';
import { ROOT } from '../../ops/dev/paths.ts';

/** What to run: a file of tests, with another text for one file. Paths are absolute. */
export interface Order {
  readonly test: string;
  /** Undefined: the sources as they are. */
  readonly replaced: { readonly file: string; readonly text: string } | undefined;
}

/** The first failure of a file of tests; undefined if all of it passed. */
export interface Outcome {
  readonly failure: string | undefined;
}

/** Far above what a test takes on a busy machine. */
const TEST_TIMEOUT_MS = 60_000;
const POLL_TIMEOUT_MS = 30_000;
const CLOSE_MS = 5_000;

let replaced: Order['replaced'];

const vitest = await createVitest(
  {
    config: false,
    root: ROOT,
    watch: false,
    // It would keep what a mutation made of a file, under the digest of the file.
    fsModuleCache: false,
    include: ['test/**/*.test.ts'],
    setupFiles: ['test/support/seed-setup.ts'],
    reporters: [{}],
    maxWorkers: 1,
    bail: 1,
    testTimeout: TEST_TIMEOUT_MS,
    hookTimeout: TEST_TIMEOUT_MS,
    expect: { poll: { timeout: POLL_TIMEOUT_MS } },
  },
  {
    plugins: [
      {
        name: 'mutation',
        enforce: 'pre',
        load: (id: string) => (id === replaced?.file ? replaced.text : undefined),
      },
    ],
  },
);
await vitest.standalone();

async function run(order: Order): Promise<Outcome> {
  if (replaced?.file !== order.replaced?.file || replaced?.text !== order.replaced?.text) {
    for (const changed of [replaced, order.replaced]) if (changed !== undefined) vitest.invalidateFile(changed.file);
    replaced = order.replaced;
  }
  const { testModules, unhandledErrors } = await vitest.runTestSpecifications([
    vitest.getRootProject().createSpecification(order.test),
  ]);
  const module = testModules.find(({ moduleId }) => moduleId === order.test);
  if (module === undefined) return { failure: 'it was not run' };
  for (const test of module.children.allTests('failed')) return { failure: `"${test.fullName}"` };
  const [error = unhandledErrors[0]] = [
    ...module.errors(),
    ...[...module.children.allSuites()].flatMap((one) => one.errors()),
  ];
  if (error !== undefined) return { failure: String((error as { readonly message?: unknown }).message ?? error) };
  return { failure: module.ok() ? undefined : 'it failed' };
}

/**
 * Ends when the parent lets go of it, or is gone. A worker of the runner may hang; it is in the group of this process.
 */
process.on('disconnect', () => {
  setTimeout(() => process.kill(-process.pid, 'SIGKILL'), CLOSE_MS).unref();
  void vitest.close().finally(() => process.exit());
});
process.on('message', (order: Order) => {
  run(order).then(
    (outcome) => process.send?.(outcome),
    (error: unknown) => process.send?.({ failure: `the runner failed: ${error}` } satisfies Outcome),
  );
});
process.send?.('ready');
