import { expect, test } from 'vitest';
import { add, NONE, stepsOf, tallyLine, tallyOfVitest } from '../../ops/dev/tally.ts';

interface File {
  status: string;
  tests: string[];
}

function report(files: readonly File[]): string {
  const tests = files.flatMap((file) => file.tests);
  const count = (status: string) => tests.filter((test) => test === status).length;
  return JSON.stringify({
    numPassedTests: count('passed'),
    numFailedTests: count('failed'),
    numPendingTests: count('skipped'),
    numTodoTests: count('todo'),
    testResults: files.map(({ status, tests: results }) => ({
      status,
      assertionResults: results.map((result) => ({ status: result })),
    })),
  });
}

test('tests are counted by the report, and todo counts as skipped', () => {
  const files = [
    { status: 'passed', tests: ['passed', 'skipped', 'todo'] },
    { status: 'failed', tests: ['passed', 'failed'] },
  ];
  expect(tallyOfVitest(report(files), 1)).toEqual({ passed: 2, failed: 1, skipped: 2 });
});

test('a file that fails outside its tests counts as one failure', () => {
  const files = [
    { status: 'failed', tests: [] },
    { status: 'failed', tests: ['failed'] },
  ];
  expect(tallyOfVitest(report(files), 1)).toEqual({ passed: 0, failed: 2, skipped: 0 });
});

test('a run that fails without a failed test counts as one failure', () => {
  expect(tallyOfVitest(report([{ status: 'passed', tests: ['passed'] }]), 1).failed).toBe(1);
  expect(tallyOfVitest(undefined, 1).failed).toBe(1);
  expect(tallyOfVitest(undefined, 0).failed).toBe(1);
});

test('a successful run has no failure', () => {
  expect(tallyOfVitest(report([{ status: 'passed', tests: ['passed'] }]), 0)).toEqual({ ...NONE, passed: 1 });
});

test('tallyLine prints the sums', () => {
  expect(tallyLine(add({ passed: 1, failed: 2, skipped: 3 }, { passed: 10, failed: 20, skipped: 30 }))).toBe(
    '11 passed, 22 failed, 33 skipped',
  );
});

test('stepsOf returns the steps of a script in order, and rejects a script without steps', () => {
  expect(stepsOf('npm run check:b && npm run check:a')).toEqual(['check:b', 'check:a']);
  expect(() => stepsOf('tsc')).toThrow('has no step');
  expect(() => stepsOf(undefined)).toThrow('has no step');
});
