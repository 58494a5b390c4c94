import { describe, expect, test } from 'vitest';
import { idleOf, ticksBelow, watchOthers } from './others.ts';

/** As /proc/PID/stat: user, system and the same of ended children are the fields 14 to 17. */
const stat = (pid: number, name: string, parent: number, times: readonly number[]) =>
  `${pid} (${name}) S ${parent} 1 1 0 -1 4194304 100 200 0 0 ${times.join(' ')} 20 0 11 0 123 456 789`;

describe('what others take of the machine', () => {
  test('a process has the time of all below it, and of ended children', () => {
    const stats = [
      stat(1, 'init', 0, [1_000, 1_000, 1_000, 1_000]),
      stat(10, 'bench', 1, [1, 2, 3, 4]),
      stat(11, 'java', 10, [10, 20, 0, 0]),
      stat(12, 'sh', 11, [100, 200, 0, 0]),
      stat(13, 'other', 1, [5_000, 0, 0, 0]),
    ];
    expect(ticksBelow(10, stats)).toBe(10 + 30 + 300);
  });

  test('a name with spaces and parentheses moves no field', () => {
    expect(ticksBelow(10, [stat(10, 'a) R 1 (b', 1, [1, 2, 3, 4])])).toBe(10);
  });

  test('waiting for a disk is idle, and each processor counts', () => {
    const text = 'cpu  1 2 3 400 50 6 7 8 0 0\ncpu0 0 1 1 200 25 3 3 4 0 0\ncpu1 1 1 2 200 25 3 4 4 0 0\nintr 5\n';
    expect(idleOf(text)).toEqual({ idleTicks: 450, processors: 2 });
  });

  test.skipIf(process.platform !== 'linux')('is a share in percent', () => {
    const others = watchOthers();
    for (const endMs = performance.now() + 50; performance.now() < endMs; );
    expect(others()).toBeGreaterThanOrEqual(0);
    expect(others()).toBeLessThanOrEqual(100);
  });
});
