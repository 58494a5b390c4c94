import { parseArgs } from 'node:util';
import type { Mutant, Run } from '../run.ts';
import { summary } from '../search.ts';
import { MUTANTS } from './mutants.ts';
import type { Rule, World } from './rule.ts';
import { exploreExample } from './run.ts';
import { DEEP, type Example, QUICK } from './worlds.ts';

const HELP = `Explores the model of sequence heads (docs/internals/decisions/the-swap-decides.md): all worlds, then all mistakes.
A table shows how many states each has, and how many more the check that one owner alone answers everything. Some minutes.

  --quick        what npm test explores
  --worlds       the worlds alone
  --mutants      the mistakes alone
  --only PART    those with this part in their names
  --trace        the shortest way to each violation, and how often each case occurred
`;

/** More than any world has. */
const STATES = 20_000_000;

function main(): void {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean' },
      worlds: { type: 'boolean' },
      mutants: { type: 'boolean' },
      only: { type: 'string' },
      trace: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) return void process.stdout.write(HELP);
  const isQuick = values.quick === true;
  const worlds = isQuick ? QUICK : [...QUICK, ...DEEP];
  const mutants = MUTANTS.filter(({ isDeep }) => !(isQuick && isDeep));
  const isChosen = ({ name }: { readonly name: string }) => values.only === undefined || name.includes(values.only);
  const isTraced = values.trace === true;
  if (!values.mutants) for (const world of worlds.filter(isChosen)) requireRight(world, faultOf, isTraced);
  if (!values.worlds) for (const mutant of mutants.filter(isChosen)) requireRight(mutant, escapeOf, isTraced);
}

type Result = ReturnType<typeof exploreExample>['result'];

/** Prints a row, and fails the command when the result is not the expected one. */
function requireRight<T extends Run<Rule, World> & { readonly name: string }>(
  run: T,
  wrongWith: (run: T, result: Result) => string | undefined,
  isTraced: boolean,
): void {
  const began = performance.now();
  const progress = (states: number, done: number) => process.stderr.write(`${run.name}: ${states}, ${done} done\n`);
  const { result, continued } = exploreExample(run, { states: STATES, progress });
  const seconds = ((performance.now() - began) / 1_000).toFixed(1);
  const wrong = wrongWith(run, result);
  const verdict = wrong ?? (result.violation === undefined ? 'holds' : `caught: ${result.violation.at(-1)}`);
  process.stdout.write(`| ${run.name} | ${result.states} | ${continued} | ${seconds} s | ${verdict} |\n`);
  if (isTraced) process.stdout.write(`${summary(result)}\n`);
  if (wrong !== undefined) process.exitCode = 1;
}

function faultOf({ sees }: Example, { violation, counts }: Result): string | undefined {
  if (violation !== undefined) return `FAILS: ${violation.at(-1)}`;
  const unseen = sees.filter((name) => counts[name] === 0);
  return unseen.length > 0 ? `TESTS NOTHING: no ${unseen.join(', ')}` : undefined;
}

function escapeOf({ harm }: Mutant<Rule, World>, { violation }: Result): string | undefined {
  return violation?.at(-1)?.includes(harm) === true ? undefined : `NOT CAUGHT: ${violation?.at(-1) ?? 'holds'}`;
}

main();
