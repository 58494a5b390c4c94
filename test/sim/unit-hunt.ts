import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from '../../ops/dev/paths.ts';
import type { UnitTest } from './mutant.ts';
import { MUTANT_VARIABLE } from './mutants.ts';

const VITEST = join(ROOT, 'node_modules/.bin/vitest');

/** Whether a unit test fails with this mutant. Rejects if it did not run, as one whose title has changed. */
export async function failsWith(mutant: string, { file, title }: UnitTest): Promise<boolean> {
  const directory = mkdtempSync(join(tmpdir(), 'idalloc-mutant-'));
  const report = join(directory, 'report.json');
  const args = ['run', '--project', 'unit', '--reporter=json', `--outputFile.json=${report}`];
  // What a vitest says to its own children means nothing to another one.
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('VITEST'));
  const env = { ...Object.fromEntries(inherited), [MUTANT_VARIABLE]: mutant };
  try {
    const output = await outputOf([VITEST, ...args, '-t', patternOf(title), file], env);
    const { numFailedTests: failed, numPassedTests: passed } = readReport(report);
    if (failed + passed > 0) return failed > 0;
    throw new Error(`mutant '${mutant}': ${file} ran no test '${title}':\n${output}`);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** A failed test is a failed command, so its exit code says nothing. */
function outputOf(args: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  return new Promise((resolve) => {
    execFile(process.execPath, args, { cwd: ROOT, env }, (error, out, note) => {
      resolve(`${out}${note}${error?.message ?? ''}`);
    });
  });
}

/** Full names of tests begin with those of their groups, so the pattern has no begin. */
function patternOf(title: string): string {
  return `${title.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&').replaceAll('%s', '.*')}$`;
}

function readReport(report: string): { readonly numFailedTests: number; readonly numPassedTests: number } {
  if (!existsSync(report)) return { numFailedTests: 0, numPassedTests: 0 };
  return JSON.parse(readFileSync(report, 'utf8'));
}
