import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { LAYOUT_ENVS } from '../support/layouts.ts';

const HELP = `Puts real workers, etcd and Kafka under faults for a time, under load, and checks the whole history.

  --minutes N   for so long (10)
  --seed N      the order of the faults (a random one, which is printed)
  --layout L    of the IDs: ${Object.keys(LAYOUT_ENVS).join(', ')} (default); several, separated by commas, come in turn
  --help        this text

Exit code: 0 when every request was answered, once, with IDs of its own; else 1; 2 for arguments that make no sense.
`;

const VITEST = fileURLToPath(new URL('../../node_modules/vitest/vitest.mjs', import.meta.url));
const MAX_MINUTES = 24 * 60;
const SEEDS = 1_000_000;

/** The variables by which the test learns of it, or what is wrong with the arguments. */
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
    const seed = values.seed ?? String(Math.floor(Math.random() * SEEDS));
    if (!/^\d{1,9}$/.test(seed)) throw new Error('--seed must be a whole number below 10^9');
    const layout = values.layout ?? 'default';
    const unknown = layout.split(',').find((name) => !Object.hasOwn(LAYOUT_ENVS, name));
    if (unknown !== undefined) throw new Error(`--layout has no '${unknown}'`);
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
const run = ['run', '--project', 'alone', 'test/integration/chaos.alone.test.ts'];
// What can't be played, for want of a program, must not look like success: with CI set it is an error, not a skip.
const all = { ...process.env, CI: process.env.CI || 'true', ...env };
const child = spawn(process.execPath, [VITEST, ...run], { stdio: 'inherit', env: all });
child.once('exit', (code) => process.exit(code ?? 1));
