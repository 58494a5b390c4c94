import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { LAYOUT_ENVS } from '../support/layouts.ts';
import { freshSeed } from '../support/seeded.ts';

const HELP = `Injects faults into real workers, etcd and Kafka under load, and checks the whole history.

  --minutes N   how long (10)
  --seed N      decides the order of the faults (random, and printed)
  --layout L    layout of the IDs: ${Object.keys(LAYOUT_ENVS).join(', ')}; several, separated by commas, run in turn (default)
  --help        shows this text

Exit code: 0 if every request got one batch and no ID was allocated twice, 1 if not, 2 for invalid arguments.
`;

const VITEST = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url));
const MAX_MINUTES = 24 * 60;
const SEEDS = 1_000_000;

/** The arguments as the variables that the test reads; or text to print: the help, or what is wrong. */
function readArguments(args: readonly string[]): Readonly<Record<string, string>> | string {
  const text = { type: 'string' } as const;
  try {
    const { values } = parseArgs({
      args: [...args],
      options: { minutes: text, seed: text, layout: text, help: { type: 'boolean' } },
    });
    if (values.help) return HELP;
    const minutes = Number(values.minutes ?? 10);
    if (!(minutes > 0 && minutes <= MAX_MINUTES)) throw new Error(`--minutes must be above 0, up to ${MAX_MINUTES}`);
    const seed = values.seed ?? String(freshSeed() % SEEDS);
    if (!/^\d{1,9}$/.test(seed)) throw new Error('--seed must be a whole number below 10^9');
    const layout = values.layout ?? 'default';
    const unknown = layout.split(',').find((name) => !Object.hasOwn(LAYOUT_ENVS, name));
    if (unknown !== undefined) throw new Error(`--layout: unknown layout '${unknown}'`);
    return { CHAOS_SECONDS: String(60 * minutes), CHAOS_SEED: seed, CHAOS_LAYOUT: layout };
  } catch (error) {
    return `${error instanceof Error ? error.message : error}\n\n${HELP}`;
  }
}

const args = process.argv.slice(2);
const env = readArguments(args);
if (typeof env === 'string') {
  process.stdout.write(env);
  process.exit(args.includes('--help') ? 0 : 2);
}
const run = ['run', '--project', 'alone', 'test/integration/chaos.test.ts'];
// A fault that can't be injected because a program is missing must not pass as a success: with CI set, that fails.
const all = { ...process.env, CI: process.env.CI || 'true', ...env };
const child = spawn(process.execPath, [VITEST, ...run], { stdio: 'inherit', env: all });
child.once('exit', (code) => process.exit(code ?? 1));
