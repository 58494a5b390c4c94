import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { signalGroup, spawnGuarded } from './child.ts';
import { ROOT } from './paths.ts';
import { run } from './run.ts';
import { type StepResult, stepsOf, type Tally, tallyOfVitest } from './tally.ts';

/** The projects of vitest.config.ts. */
export type Project = 'unit' | 'short' | 'long' | 'few' | 'alone';

const VITEST = join(ROOT, 'node_modules/.bin/vitest');
/** Tests that import it take fewer examples by default. */
const EXAMPLES = 'test/support/examples.ts';
const STEP_TIMEOUT_MS = 60 * 60_000;
const LIST_TIMEOUT_MS = 60_000;
/** After Ctrl-C vitest's tear-down stops the servers of the tests. */
const TEARDOWN_MS = 30_000;

/** How a step runs. */
export interface StepOptions {
  readonly signal: AbortSignal;
  readonly title: (text: string) => void;
  /** Beside a step that waits for servers: with a lower priority, and its output is shown when it ends. */
  readonly background?: boolean;
}

/**
 * A lower priority for what computes beside tests that have deadlines. Not the lowest: beside other load of the
 * machine, a step at 19 would get nearly nothing, and the run would not end.
 */
const BACKGROUND = ['nice', '-n', '5'];

/** Runs a step and measures it. */
export async function timed(name: string, step: () => Promise<Tally>): Promise<StepResult> {
  const beganMs = performance.now();
  const tally = await step();
  return { name, seconds: Math.round((performance.now() - beganMs) / 1_000), tally };
}

/** Runs a command with its output shown, and returns its exit code; ends it when `signal` is aborted. */
async function show(command: string, args: readonly string[], signal: AbortSignal, env = process.env): Promise<number> {
  signal.throwIfAborted();
  const child = spawnGuarded({ command, args, cwd: ROOT, env }, 1, 2);
  const ended = new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code) => resolve(code ?? 1));
  });
  const over = new AbortController();
  const end = async () => {
    signalGroup(child, 'SIGINT');
    await sleep(TEARDOWN_MS, undefined, { signal: over.signal }).then(
      () => signalGroup(child, 'SIGKILL'),
      () => undefined, // it ended in time
    );
  };
  const limit = AbortSignal.any([signal, AbortSignal.timeout(STEP_TIMEOUT_MS)]);
  limit.addEventListener('abort', end);
  const code = await ended;
  limit.removeEventListener('abort', end);
  over.abort();
  signal.throwIfAborted();
  return code;
}

/** Runs a command, shows its standard output when it ends, and returns whether it succeeded. */
async function passes(
  name: string,
  command: readonly string[],
  options: StepOptions,
  env = process.env,
): Promise<boolean> {
  const { signal, title, background = false } = options;
  const beganMs = performance.now();
  const [program = '', ...args] = background ? [...BACKGROUND, ...command] : command;
  try {
    const output = await run({
      command: program,
      args,
      cwd: ROOT,
      env,
      purpose: name,
      timeoutMs: STEP_TIMEOUT_MS,
      signal,
    });
    title(`${name} passed (${seconds(beganMs)})`);
    process.stdout.write(output);
    return true;
  } catch (error) {
    signal.throwIfAborted();
    title(`${name} failed (${seconds(beganMs)})`);
    process.stdout.write(`${error instanceof Error ? error.message : error}\n`);
    return false;
  }
}

/**
 * Runs all steps of an npm script that is a chain of others, side by side, even after a failure. Each counts as a test.
 */
export async function runChain(script: 'check' | 'simulate:short' | 'simulate', options: StepOptions): Promise<Tally> {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const steps = stepsOf(scripts[script]);
  options.title(`${steps.join(', ')}, side by side`);
  const outcomes = await Promise.all(steps.map((step) => passes(step, ['npm', 'run', '--silent', step], options)));
  const failed = outcomes.filter((passed) => !passed).length;
  return { passed: steps.length - failed, failed, skipped: 0 };
}

/** The time since `beganMs`, for people. */
export function seconds(beganMs: number): string {
  return `${((performance.now() - beganMs) / 1_000).toFixed(1)} s`;
}

/** Runs vitest on one project with its usual output, and counts from its JSON report. */
export function runVitest(
  project: Project,
  filter: readonly string[],
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<Tally> {
  // vitest leaves a core free by default, which is half of two.
  const workers = project === 'unit' ? ['--maxWorkers=100%'] : [];
  const args = ['run', '--project', project, ...workers, '--reporter=default', ...filter];
  return counted((report) => show(VITEST, [...args, ...report], signal, { ...process.env, ...env }));
}

/** Runs the unit tests that limit their examples once more, with all of them. */
export function runAllExamples(options: StepOptions): Promise<Tally> {
  const args = ['related', '--run', '--project', 'unit', '--reporter=dot', EXAMPLES];
  const env = { ...process.env, IDALLOC_EXAMPLES: 'all' };
  return counted(async (report) =>
    (await passes('all examples', [VITEST, ...args, ...report], options, env)) ? 0 : 1,
  );
}

/** The result of a vitest run, which writes its report as the arguments say and returns its exit code. */
async function counted(vitest: (report: readonly string[]) => Promise<number>): Promise<Tally> {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-test-'));
  const report = join(dir, 'report.json');
  try {
    const code = await vitest(['--reporter=json', `--outputFile.json=${report}`]);
    return tallyOfVitest(existsSync(report) ? readFileSync(report, 'utf8') : undefined, code);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** True if a filter (file names, as vitest takes them) selects any test file of a project. */
export async function selects(project: Project, filter: readonly string[], signal: AbortSignal): Promise<boolean> {
  const files = filter.filter((argument) => !argument.startsWith('-'));
  const listed = await run({
    command: VITEST,
    args: ['list', '--filesOnly', '--project', project, ...files],
    cwd: ROOT,
    purpose: 'the listing of the selected tests',
    timeoutMs: LIST_TIMEOUT_MS,
    signal,
  });
  return listed.trim() !== '';
}
