/** `npm run quick`: everything that needs no servers. All checks side by side, then the unit tests on all cores. */
import { stopSignal } from './stop-signal.ts';
import { runChain, runVitest, seconds } from './test-steps.ts';

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function quick(signal: AbortSignal): Promise<number> {
  const beganMs = performance.now();
  // The tests run after failed checks, too: both reports help.
  const checks = await runChain('check', { signal, title: say });
  const unit = await runVitest('unit', [], {}, signal);
  const passed = checks.failed + unit.failed === 0;
  say(`quick: ${passed ? 'passed' : 'FAILED'} (${seconds(beganMs)})`);
  return passed ? 0 : 1;
}

const signal = stopSignal(() => process.stderr.write('stopping\n'));
process.exitCode = await quick(signal).catch((error: unknown) => {
  process.stderr.write(`quick: ${error instanceof Error ? error.message : error}\n`);
  return signal.aborted ? 130 : 1;
});
