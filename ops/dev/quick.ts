/** `npm run quick`: everything that needs no servers. All checks in parallel, then the unit tests on all cores. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './paths.ts';
import { run } from './run.ts';
import { stopSignal } from './stop-signal.ts';
import { stepsOf } from './tally.ts';
import { runVitest } from './test-steps.ts';

const CHECK_TIMEOUT_MS = 5 * 60_000;

function say(what: string, sinceMs: number): void {
  process.stdout.write(`${what} (${((performance.now() - sinceMs) / 1000).toFixed(1)} s)\n`);
}

/** True if the step passes; otherwise its output is shown. */
async function check(step: string, signal: AbortSignal): Promise<boolean> {
  const beganMs = performance.now();
  const args = ['run', '--silent', step];
  try {
    await run({ command: 'npm', args, cwd: ROOT, purpose: step, timeoutMs: CHECK_TIMEOUT_MS, signal });
    say(`${step} passed`, beganMs);
    return true;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), beganMs);
    return false;
  }
}

async function quick(signal: AbortSignal): Promise<number> {
  const beganMs = performance.now();
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const checks = await Promise.all(stepsOf(scripts.check).map((step) => check(step, signal)));
  // vitest leaves a core free by default, which is half of two. The tests run after failed checks, too: both reports help.
  const { failed } = await runVitest('unit', ['--maxWorkers=100%'], {}, signal);
  const passed = failed === 0 && checks.every(Boolean);
  say(passed ? 'quick: passed' : 'quick: FAILED', beganMs);
  return passed ? 0 : 1;
}

const signal = stopSignal(() => process.stderr.write('stopping\n'));
process.exitCode = await quick(signal).catch((error: unknown) => {
  process.stderr.write(`quick: ${error instanceof Error ? error.message : error}\n`);
  return signal.aborted ? 130 : 1;
});
