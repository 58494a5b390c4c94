import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { signalGroup, spawnGuarded } from './child.ts';
import { ROOT } from './paths.ts';
import { run } from './run.ts';
import { stepsOf, type Tally, tallyOfVitest } from './tally.ts';

export type Project = 'unit' | 'integration' | 'alone';

const VITEST = join(ROOT, 'node_modules/.bin/vitest');
const STEP_TIMEOUT_MS = 60 * 60_000;
const LIST_TIMEOUT_MS = 60_000;
/** After Ctrl-C vitest's tear-down stops the servers of the tests. */
const TEARDOWN_MS = 30_000;

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

/**
 * Runs all steps of an npm script that is a chain of others, side by side, even after a failure. Each counts as a test. The
 * standard output of a step is shown when it ends.
 */
export async function runChain(
  script: 'check' | 'simulate',
  signal: AbortSignal,
  title: (text: string) => void,
): Promise<Tally> {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const steps = stepsOf(scripts[script]);
  title(`${steps.join(', ')}, side by side`);
  const outcomes = await Promise.all(steps.map((step) => passes(step, signal, title)));
  const failed = outcomes.filter((passed) => !passed).length;
  return { passed: steps.length - failed, failed, skipped: 0 };
}

async function passes(step: string, signal: AbortSignal, title: (text: string) => void): Promise<boolean> {
  const beganMs = performance.now();
  const args = ['run', '--silent', step];
  try {
    const output = await run({ command: 'npm', args, cwd: ROOT, purpose: step, timeoutMs: STEP_TIMEOUT_MS, signal });
    title(`${step} passed (${seconds(beganMs)})`);
    process.stdout.write(output);
    return true;
  } catch (error) {
    signal.throwIfAborted();
    title(`${step} failed (${seconds(beganMs)})`);
    process.stdout.write(`${error instanceof Error ? error.message : error}\n`);
    return false;
  }
}

/** The time since `beganMs`, for people. */
export function seconds(beganMs: number): string {
  return `${((performance.now() - beganMs) / 1_000).toFixed(1)} s`;
}

/** Runs vitest on one project with its usual output, and counts from its JSON report. */
export async function runVitest(
  project: Project,
  filter: readonly string[],
  env: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<Tally> {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-test-'));
  const report = join(dir, 'report.json');
  try {
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
    // vitest leaves a core free by default, which is half of two.
    const workers = project === 'unit' ? ['--maxWorkers=100%'] : [];
    const args = ['run', '--project', project, ...workers, ...reporters, ...filter];
    const code = await show(VITEST, args, signal, { ...process.env, ...env });
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
