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

test('tests are counted as the report tells, and to do is skipped', () => {
  const files = [
    { status: 'passed', tests: ['passed', 'skipped', 'todo'] },
    { status: 'failed', tests: ['passed', 'failed'] },
  ];
  expect(tallyOfVitest(report(files), 1)).toEqual({ passed: 2, failed: 1, skipped: 2 });
});

test('a file that fails outside of its tests is one failure', () => {
  const files = [
    { status: 'failed', tests: [] },
    { status: 'failed', tests: ['failed'] },
  ];
  expect(tallyOfVitest(report(files), 1)).toEqual({ passed: 0, failed: 2, skipped: 0 });
});

test('a run that ends badly without a failed test is a failure', () => {
  expect(tallyOfVitest(report([{ status: 'passed', tests: ['passed'] }]), 1).failed).toBe(1);
  expect(tallyOfVitest(undefined, 1).failed).toBe(1);
  expect(tallyOfVitest(undefined, 0).failed).toBe(1);
});

test('a good run has no failure', () => {
  expect(tallyOfVitest(report([{ status: 'passed', tests: ['passed'] }]), 0)).toEqual({ ...NONE, passed: 1 });
});

test('the last line has the sums', () => {
  expect(tallyLine(add({ passed: 1, failed: 2, skipped: 3 }, { passed: 10, failed: 20, skipped: 30 }))).toBe(
    '11 passed, 22 failed, 33 skipped',
  );
});

test('the steps of a script keep their order, and a script without any is refused', () => {
  expect(stepsOf('npm run check:b && npm run check:a')).toEqual(['check:b', 'check:a']);
  expect(() => stepsOf('tsc')).toThrow('has no step');
  expect(() => stepsOf(undefined)).toThrow('has no step');
});
