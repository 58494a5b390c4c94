import { inject, type TestContext } from 'vitest';

/** Skips the test where no container engine can be had; in CI it fails instead. */
export function requireEngine(context: TestContext): void {
  const { noEngine } = inject('servers');
  if (noEngine === undefined) return;
  if (process.env.CI) throw new Error(`CI is set, so the images must be tested: ${noEngine}`);
  context.skip(`needs a container engine: ${noEngine}`);
}
