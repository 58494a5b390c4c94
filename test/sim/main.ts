import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { Worker } from 'node:worker_threads';
import type { Fault } from './checker.ts';
import type { Catch, Hunt } from './hunter.ts';
import type { Mutant, UnitTest } from './mutant.ts';
import { changedMutants, firstSeed, git, MUTANTS, otherMutants } from './mutants.ts';
import { isScenario, SCENARIOS, type Scenario } from './scenario.ts';
import { simulate } from './simulation.ts';
import { NOTHING, seldomIn, sum, type Tally, tallyOf } from './tally.ts';
import { failsWith } from './unit-hunt.ts';

/** So many random seeds must meet every hard case: else the scenarios no longer reach it. */
const COVERING_SEEDS = 300;
/**
 * They may miss a rare case by chance, since it comes in one of twenty seeds: then more are played, up to this many.
 */
const MOST_COVERING_SEEDS = 1_000;

const HELP = `Simulates workers under faults, each run from a seed, and checks the whole history of each run.

  --seeds N     simulate N seeds (100)
  --from K      begin with seed K (1)
  --rotate      begin with a seed that depends on the commit
  --seed K      simulate one seed and print its trace
  --scenario S  simulate one scenario only:
${described(SCENARIOS)}
  --mutants     apply known bugs to the sources as they are loaded, and simulate seeds until each is caught, or run the unit test
                that catches it; one on each processor
  --changed     with --mutants: only 30 of files that differ from the last release, and 15 others, by commit
  --others      with --mutants: those that --changed leaves out at this commit
  --mutant TEXT the same for the bugs whose names contain the text
  --hunts N     with --mutants: hunt each bug N times, from seeds 1,000 apart, and show the median of the seeds that took
  --json        print one JSON object on standard output
  --help        show this text

Exit code: 0 if every history passed all checks, and ${COVERING_SEEDS} seeds or more met every hard case (with --mutants: if every
bug was caught), 1 if not, 2 for invalid arguments.
`;

function described(names: Readonly<Record<string, string>>): string {
  return Object.entries(names)
    .map(([name, what]) => `                ${name.padEnd(13)} ${what}`)
    .join('\n');
}

/** A mutant that this many seeds don't catch has survived. */
const MUTANT_SEEDS = 1_000;
/** The simulation stops after this many failures. */
const ENOUGH_FAILURES = 5;
/** Real milliseconds between two lines of progress. */
const PROGRESS_MS = 2_000;

/** Where the text goes: results to `out`, progress to `note`. */
export interface Output {
  readonly out: (text: string) => void;
  readonly note: (text: string) => void;
}

/** Runs the command line; resolves with the exit code. */
export async function run(args: readonly string[], output: Output): Promise<number> {
  const options = readArguments(args);
  if (typeof options === 'string') {
    output.note(`${options}\n\n${HELP}`);
    return 2;
  }
  if (options.help) output.out(HELP);
  else if (options.mutant !== undefined) return await hunt(options.mutant, options, output);
  else if (options.seed !== undefined) return await repeat(options.seed, options, output);
  else return await play(options, output);
  return 0;
}

interface Options {
  readonly seeds: number;
  readonly from: number;
  readonly seed: number | undefined;
  readonly scenario: Scenario | undefined;
  /** A part of the names of the mutants to simulate; undefined if none. */
  readonly mutant: string | undefined;
  /** Only mutants of changed files, and some others. */
  readonly changed: boolean;
  /** Only those that `changed` leaves out. */
  readonly others: boolean;
  /** How often each mutant is hunted by seeds. */
  readonly hunts: number;
  readonly json: boolean;
  readonly help: boolean;
}

/** The options, or what is wrong with the arguments. */
function readArguments(args: readonly string[]): Options | string {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean', default: false } as const;
  const options = {
    seeds: text,
    from: text,
    seed: text,
    hunts: text,
    scenario: text,
    mutant: text,
    mutants: flag,
    changed: flag,
    others: flag,
    rotate: flag,
    json: flag,
    help: flag,
  };
  try {
    const { values } = parseArgs({ args: [...args], options });
    const whole = (name: 'seeds' | 'from' | 'seed' | 'hunts'): number | undefined => {
      const given = values[name];
      if (given === undefined) return undefined;
      if (/^\d{1,9}$/.test(given)) return Number(given);
      throw new Error(`--${name} is ${given}, must be a whole number below 10^9`);
    };
    const { scenario } = values;
    if (scenario !== undefined && !isScenario(scenario)) {
      throw new Error(`--scenario is ${scenario}, must be one of ${Object.keys(SCENARIOS).join(', ')}`);
    }
    const { json, help, changed, others, rotate, mutant = values.mutants ? '' : undefined } = values;
    if ((changed || others || values.hunts !== undefined) && mutant === undefined)
      throw new Error('--changed, --others and --hunts need --mutants');
    if (changed && others) throw new Error('--changed and --others exclude each other');
    const seeds = whole('seeds') ?? 100;
    return {
      json,
      help,
      mutant,
      changed,
      others,
      scenario,
      seeds,
      from: whole('from') ?? (rotate ? firstSeed(seeds, git) : 1),
      seed: whole('seed'),
      hunts: Math.max(1, whole('hunts') ?? 1),
    };
  } catch (error) {
    return String(error);
  }
}

interface Failure {
  readonly seed: number;
  readonly faults: readonly Fault[];
}

async function play({ seeds, from, scenario, json }: Options, { out, note }: Output): Promise<number> {
  const failures: Failure[] = [];
  const startedMs = performance.now();
  let [tally, events, reportedMs]: [Tally, number, number] = [NOTHING, 0, startedMs];
  const perSecond = (played: number): number => Math.round((1_000 * played) / (performance.now() - startedMs));
  let played = 0;
  const seldom = () => (scenario === undefined && played >= COVERING_SEEDS ? seldomIn(tally) : []);
  const isDue = () => played < seeds || (played < MOST_COVERING_SEEDS && seldom().length > 0);
  while (isDue() && failures.length < ENOUGH_FAILURES) {
    const outcome = await simulate(from + played, { scenario });
    tally = sum(tally, tallyOf(outcome.history));
    events += outcome.events;
    played += 1;
    if (outcome.faults.length > 0) {
      failures.push({ seed: outcome.seed, faults: outcome.faults });
      note(describe(outcome, scenario));
    }
    if (performance.now() - reportedMs < PROGRESS_MS) continue;
    reportedMs = performance.now();
    note(`${played} of ${Math.max(seeds, played)} seeds, ${perSecond(played)} seeds/s`);
  }
  const result = { seeds: played, from, failed: failures, seedsPerSecond: perSecond(played), events, met: tally };
  const met = Object.entries(tally).map(([name, count]) => `${name} ${count}`);
  const text = `${played} seeds from ${from}, ${failures.length} failed, ${result.seedsPerSecond} seeds/s; occurred: ${met.join(', ')}`;
  out(json ? JSON.stringify(result) : text);
  const missed = seldom();
  if (missed.length > 0) note(`these cases hardly occurred, so the seeds show little about them: ${missed.join(', ')}`);
  return failures.length + missed.length === 0 ? 0 : 1;
}

async function repeat(seed: number, { json, scenario }: Options, { out, note }: Output): Promise<number> {
  const { faults, trace, events, history } = await simulate(seed, { traced: true, scenario });
  out(json ? JSON.stringify({ seed, faults, events, met: tallyOf(history), trace }) : trace.join('\n'));
  note(faults.length > 0 ? describe({ seed, faults }, scenario) : `seed ${seed}: every check passed`);
  return faults.length === 0 ? 0 : 1;
}

function describe({ seed, faults }: Failure, scenario?: Scenario): string {
  const listed = faults.map(({ check, what }) => `  check "${check}" failed: ${what}`).join('\n');
  const kind = scenario === undefined ? '' : ` --scenario ${scenario}`;
  return `seed ${seed} failed; repeat it with: npm run sim -- --seed ${seed}${kind}\n${listed}`;
}

/** How a mutant was caught. */
interface Hunted {
  readonly mutant: string;
  /** A check, or a unit test; null if it survived. */
  readonly caughtBy: string | null;
  /** How many seeds that took: of several hunts the median. Null for a unit test. */
  readonly seeds: number | null;
  readonly seconds: number;
}

/** Hunts mutants, one on each processor at a time. */
async function hunt(named: string, options: Options, { out, note }: Output): Promise<number> {
  const { changed, others, json } = options;
  const choose = changed ? changedMutants : others ? otherMutants : (all: typeof MUTANTS) => all;
  const wanted = choose(MUTANTS, git).filter(({ name }) => name.includes(named));
  const hunted: Hunted[] = [];
  const waiting = wanted.values();
  const huntOn = async () => {
    for (const mutant of waiting) {
      const startedMs = performance.now();
      const { what, ...found } = await (mutant.unit === undefined
        ? huntBySeeds(mutant, options)
        : huntByTest(mutant.name, mutant.unit));
      const seconds = Math.round((performance.now() - startedMs) / 100) / 10;
      hunted.push({ mutant: mutant.name, ...found, seconds });
      const outcome = found.caughtBy === null ? 'SURVIVED' : `caught by "${found.caughtBy}"`;
      const after = found.seeds === null ? '' : ` after ${found.seeds} seeds`;
      note(`${mutant.name}: ${outcome}${after}, ${seconds} s${what === undefined ? '' : `\n  ${what}`}`);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, huntOn));
  const survivors = hunted.filter(({ caughtBy }) => caughtBy === null);
  const seeds = hunted.flatMap((one) => one.seeds ?? []);
  const text = `${hunted.length} mutants, ${survivors.length} survived`;
  const rarity =
    seeds.length === 0 ? '' : `\nseeds until a mutant is caught: median ${median(seeds)}, most ${Math.max(...seeds)}`;
  out(json ? JSON.stringify({ mutants: hunted }) : `${text}${rarity}`);
  return survivors.length === 0 ? 0 : 1;
}

interface Found extends Pick<Hunted, 'caughtBy' | 'seeds'> {
  /** What the check found wrong. */
  readonly what?: string | undefined;
}

/** Several hunts begin at seeds of their own, the same for all mutants, so their median says how rare a catch is. */
async function huntBySeeds({ name, firstSeed: start }: Mutant, { from, hunts }: Options): Promise<Found> {
  const starts = Array.from({ length: hunts }, (_, i) => from + i * MUTANT_SEEDS);
  const begun = hunts === 1 && start !== undefined ? [start] : starts;
  const caught = await inThread({ name, from: begun, seeds: MUTANT_SEEDS });
  const seeds = median(caught.map((found) => found?.seeds ?? MUTANT_SEEDS));
  if (caught.includes(undefined)) return { caughtBy: null, seeds };
  return { caughtBy: caught[0]?.check ?? null, seeds, what: caught[0]?.what };
}

async function huntByTest(name: string, unit: UnitTest): Promise<Found> {
  return { caughtBy: (await failsWith(name, unit)) ? `${unit.file}: ${unit.title}` : null, seeds: null };
}

/** The middle one; of an even number the lower one. Throws RangeError for none. */
function median(values: readonly number[]): number {
  const middle = values.toSorted((one, other) => one - other)[Math.floor((values.length - 1) / 2)];
  if (middle === undefined) throw new RangeError('nothing has no median');
  return middle;
}

async function inThread(hunted: Hunt): Promise<readonly (Catch | undefined)[]> {
  const thread = new Worker(new URL('./hunter.ts', import.meta.url), { workerData: hunted });
  const { promise, resolve, reject } = Promise.withResolvers<readonly (Catch | undefined)[]>();
  thread.once('message', resolve);
  thread.once('error', reject);
  thread.once('exit', (code) => reject(new Error(`the thread of '${hunted.name}' ended with code ${code}`)));
  return await promise.finally(() => thread.terminate());
}

if (import.meta.main) {
  const output = {
    out: (text: string) => void process.stdout.write(`${text}\n`),
    note: (text: string) => void process.stderr.write(`${text}\n`),
  };
  process.exitCode = await run(process.argv.slice(2), output);
}
