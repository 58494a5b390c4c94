/**
 * `npm run test:seeds`: unit tests that draw random values, once for each of many seeds. A seed that a test fails with
 * is printed with it, and `IDALLOC_SEED=SEED npm run test:unit FILE` repeats that.
 */
import { parseArgs } from 'node:util';
import { freshSeed, SEED_VARIABLE, SEEDS } from '../../test/support/seeded.ts';
import { stopSignal } from './stop-signal.ts';
import { runVitest } from './test-steps.ts';

const HELP = `npm run test:seeds -- [--count N] [--from SEED] [FILE...]

Runs the unit tests that draw random values with N seeds, 100 by default, that follow each other. Tests that draw nothing run once, and
count as skipped. Without --from it begins with a new seed. FILE: part of a path, as for npm run test:unit; all by default.
`;
const MAX_COUNT = 1_000_000;

function whole(name: string, text: string, least: number, most: number): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  throw new Error(`--${name} must be a whole number from ${least} to ${most}, not '${text}'`);
}

async function main(): Promise<number> {
  const text = { type: 'string' } as const;
  const { values, positionals } = parseArgs({
    options: { count: text, from: text, help: { type: 'boolean' } },
    allowPositionals: true,
  });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const count = whole('count', values.count ?? '100', 1, MAX_COUNT);
  const from = values.from === undefined ? freshSeed() : whole('from', values.from, 0, SEEDS - 1);
  process.stdout.write(`seeds ${from} to ${(from + count - 1) % SEEDS}\n`);
  const signal = stopSignal(() => process.stderr.write('stopping\n'));
  const env = { [SEED_VARIABLE]: String(from) };
  const tally = await runVitest('unit', [`--repeats=${count - 1}`, ...positionals], env, signal);
  process.stdout.write(
    `${tally.passed} tests passed with each of ${count} seeds from ${from}, ${tally.failed} failed\n`,
  );
  return tally.failed === 0 ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`test:seeds: ${error instanceof Error ? error.message : error}\n`);
  return 1;
});
