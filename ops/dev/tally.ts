/** The numbers of tests that passed, failed and were skipped. */
export interface Tally {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export const NONE: Tally = { passed: 0, failed: 0, skipped: 0 };

export function add(a: Tally, b: Tally): Tally {
  return { passed: a.passed + b.passed, failed: a.failed + b.failed, skipped: a.skipped + b.skipped };
}

/** The last line of `npm test`, which scripts parse. */
export function tallyLine({ passed, failed, skipped }: Tally): string {
  return `${passed} passed, ${failed} failed, ${skipped} skipped`;
}

/** One step of a run. */
export interface StepResult {
  readonly name: string;
  readonly seconds: number;
  readonly tally: Tally;
}

/** A line for each step with its time and counts; steps that ran side by side overlap. */
export function summaryOf(steps: readonly StepResult[]): string {
  const width = Math.max(...steps.map(({ name }) => name.length));
  return steps
    .map(({ name, seconds, tally }) => `${name.padEnd(width)}  ${String(seconds).padStart(5)} s  ${tallyLine(tally)}`)
    .join('\n');
}

interface VitestReport {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numPendingTests: number;
  readonly numTodoTests: number;
  readonly testResults: readonly {
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string }[];
  }[];
}

/**
 * The result of a vitest run, from its JSON report (undefined if it wrote none) and its exit code. A file that failed
 * outside its tests counts as one failure, and so does a run that failed without a failed test: an error in the set-up,
 * or an uncaught one.
 */
export function tallyOfVitest(report: string | undefined, exitCode: number): Tally {
  if (report === undefined) return { ...NONE, failed: 1 };
  const found = JSON.parse(report) as VitestReport;
  const brokenFiles = found.testResults.filter(
    (file) => file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed'),
  ).length;
  const failed = found.numFailedTests + brokenFiles;
  return {
    passed: found.numPassedTests,
    failed: failed === 0 && exitCode !== 0 ? 1 : failed,
    skipped: found.numPendingTests + found.numTodoTests,
  };
}

/** The steps of a package script such as `npm run check:a && npm run check:b`, in order. Throws when it has none. */
export function stepsOf(script: string | undefined): string[] {
  const steps = [...(script ?? '').matchAll(/npm run (\S+)/g)].map((match) => match[1] ?? '');
  if (steps.length === 0) throw new Error('a package script has no step of the form `npm run STEP`');
  return steps;
}
