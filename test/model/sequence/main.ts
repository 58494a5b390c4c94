import { parseArgs } from 'node:util';
import { summary } from '../search.ts';
import { MUTANTS } from './mutants.ts';
import { exploreExample } from './run.ts';
import { DEEP, QUICK } from './worlds.ts';

const HELP = `Explores the model of named sequences (docs/internals/sequences.md): the worlds of npm test.

  --deep         wider worlds, which take minutes and some gigabytes
  --mutants      the mistakes, each up to the shortest way to its harm
  --world PART   only those with this part in their names
`;

function main(): void {
  const { values } = parseArgs({
    options: {
      deep: { type: 'boolean' },
      mutants: { type: 'boolean' },
      world: { type: 'string' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) return void process.stdout.write(HELP);
  const runs = values.mutants ? MUTANTS : values.deep ? DEEP : QUICK;
  for (const run of runs.filter(({ name }) => values.world === undefined || name.includes(values.world))) {
    const began = performance.now();
    const progress = (states: number, done: number) =>
      process.stderr.write(`${run.name}: ${states} states, ${done} done\n`);
    const { result, continued } = exploreExample(run, { states: 60_000_000, progress });
    const seconds = ((performance.now() - began) / 1_000).toFixed(1);
    const checked = continued === 0 ? '' : `, ${continued} states of continuations`;
    process.stdout.write(`${run.name}: ${summary(result)}${checked}, ${seconds} s\n`);
    if ((result.violation !== undefined) !== (values.mutants === true)) process.exitCode = 1;
  }
}

main();
