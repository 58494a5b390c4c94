import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { HELP_ONLY } from '../support/shown-commands.ts';

const execute = promisify(execFile);
const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  readonly scripts: Readonly<Record<string, string>>;
};

async function npmRun(script: string, ...args: readonly string[]): Promise<string> {
  expect(scripts).toHaveProperty([script]);
  const options = { cwd: ROOT, timeout: 300_000 };
  const { stdout } = await execute('npm', ['run', '--silent', script, '--', ...args], options);
  return stdout;
}

/** Programs that need no servers, each with as little to do as it takes; the pages show them with their usual work. */
test.for([
  ['bench:forms', ['--ms', '1', '--rounds', '1'], /^uuid7 /m],
  ['bench:index', ['--entries', '5000'], /entries/],
  ['test:seeds', ['--count', '2', 'test/codec/long'], /^[1-9]\d* tests passed with each of 2 seeds .* 0 failed$/m],
  ['sim', ['--mutant', 'a range off by one'], /^1 mutants, 0 survived$/m],
] as const)('npm run %s -- %s runs to its end', async ([script, args, printed], { annotate }) => {
  const stdout = await npmRun(script, ...args);
  await annotate(`printed:\n${stdout}`);
  expect(stdout).toMatch(printed);
});

/** The commands by their script. */
const BY_SCRIPT = Map.groupBy(HELP_ONLY, (command) => /^npm run (\S+)/.exec(command)?.[1] ?? command);

test.for([...BY_SCRIPT])(
  'npm run %s starts, and its help has the options that the pages use',
  async ([script, all]) => {
    const help = await npmRun(script, '--help');
    const used = all.flatMap((command) => command.match(/ --[a-z][a-z-]*/g) ?? []).map((option) => option.trim());
    expect(used.filter((option) => !help.includes(option))).toEqual([]);
    expect(help.length).toBeGreaterThan(50);
  },
);
