import { parseArgs } from 'node:util';
import { exploreCeilings } from './ceilings/run.ts';
import * as ceilings from './ceilings/worlds.ts';
import { MUTANTS as HEADS_MUTANTS } from './heads/mutants.ts';
import { exploreExample as exploreHeads } from './heads/run.ts';
import * as heads from './heads/worlds.ts';
import * as reach from './reach.ts';
import { explore as exploreReach } from './reach-search.ts';
import { type Limits, type Result, summary } from './search.ts';
import { MUTANTS as SEQUENCE_MUTANTS } from './sequence/mutants.ts';
import { exploreExample as exploreSequence } from './sequence/run.ts';
import * as sequence from './sequence/worlds.ts';

const HELP = `Explores a model: reach (docs/internals/reach-by-time.md), sequence (docs/internals/sequences.md), heads
(docs/internals/decisions/the-swap-decides.md), or ceilings (with witness and rebuild), in the worlds of npm test. Prints how many states each world has, and how
many more the check that one owner alone answers everything.

  --deep         wider worlds as well, which take minutes and some gigabytes
  --mutants      the mistakes instead, each up to the shortest way to its harm
  --only PART    those with this part in their names
  --trace        the shortest way to each violation, and how often each case occurred
`;

/** More than any world has. */
const STATES = 60_000_000;

/** A world in which the rule holds and some cases occur; or, with `harm`, a mistake. */
interface Named {
  readonly name: string;
  readonly sees?: readonly string[];
  readonly harm?: string;
}
interface Explored {
  readonly result: Result<string>;
  readonly continued: number;
}
/** What is explored, and how. */
type Job = Named & { readonly explore: (limits: Limits) => Explored };

function jobs<T extends Named>(all: readonly T[], explore: (run: T, limits: Limits) => Explored): readonly Job[] {
  return all.map((run) => ({ ...run, explore: (limits) => explore(run, limits) }));
}

const worldsOf = (all: typeof reach.QUICK) =>
  jobs(
    all.map(([name, rule, world]) => ({ name, rule, world })),
    ({ rule, world }, limits) => ({ result: exploreReach(rule, world, limits), continued: 0 }),
  );

function exploreCeilingsOf(run: ceilings.Mutant | ceilings.Example, limits: Limits): Explored {
  return { result: exploreCeilings(run, limits), continued: 0 };
}

const MODELS: Readonly<Record<string, Readonly<Record<'quick' | 'deep' | 'mutants', readonly Job[]>>>> = {
  reach: { quick: worldsOf(reach.QUICK), deep: worldsOf(reach.DEEP), mutants: [] },
  ceilings: {
    quick: jobs(ceilings.QUICK, exploreCeilingsOf),
    deep: jobs(ceilings.DEEP, exploreCeilingsOf),
    mutants: jobs(ceilings.MUTANTS, exploreCeilingsOf),
  },
  sequence: {
    quick: jobs(sequence.QUICK, exploreSequence),
    deep: jobs(sequence.DEEP, exploreSequence),
    mutants: jobs(SEQUENCE_MUTANTS, exploreSequence),
  },
  heads: {
    quick: jobs(heads.QUICK, exploreHeads),
    deep: jobs(heads.DEEP, exploreHeads),
    mutants: jobs(HEADS_MUTANTS, exploreHeads),
  },
};

/** What is wrong with a result, or undefined. */
function faultOf({ sees = [], harm }: Named, { violation, counts }: Result<string>): string | undefined {
  const last = violation?.at(-1);
  if (harm !== undefined) return last?.includes(harm) ? undefined : `NOT CAUGHT: ${last ?? 'holds'}`;
  if (last !== undefined) return `FAILS: ${last}`;
  const unseen = sees.filter((name) => counts[name] === 0);
  return unseen.length > 0 ? `TESTS NOTHING: no ${unseen.join(', ')}` : undefined;
}

/** Prints a row; returns whether the result is the expected one. */
function run(job: Job, isTraced: boolean): boolean {
  const began = performance.now();
  const progress = (states: number, done: number) => process.stderr.write(`${job.name}: ${states}, ${done} done\n`);
  const { result, continued } = job.explore({ states: STATES, progress });
  const seconds = ((performance.now() - began) / 1_000).toFixed(1);
  const fault = faultOf(job, result);
  const verdict = fault ?? (result.violation === undefined ? 'holds' : `caught: ${result.violation.at(-1)}`);
  process.stdout.write(`| ${job.name} | ${result.states} | ${continued} | ${seconds} s | ${verdict} |\n`);
  if (isTraced) process.stdout.write(`${summary(result)}\n`);
  return fault === undefined;
}

function main(): number {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      deep: { type: 'boolean', default: false },
      mutants: { type: 'boolean', default: false },
      only: { type: 'string', default: '' },
      trace: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const model = MODELS[positionals[0] ?? ''];
  if (values.help || model === undefined) {
    process.stdout.write(HELP);
    return values.help ? 0 : 2;
  }
  const { quick, deep, mutants } = model;
  const all = values.mutants ? mutants : values.deep ? [...quick, ...deep] : quick;
  const results = all.filter(({ name }) => name.includes(values.only)).map((job) => run(job, values.trace));
  return results.includes(false) ? 1 : 0;
}

process.exitCode = main();
