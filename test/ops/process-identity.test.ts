import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { expect, test, vi } from 'vitest';
import { isRunning, ownIdentity, parseProcStat, processStart } from '../../ops/dev/process-identity.mjs';

const FIELDS_FROM_STATE = 'S 41 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 2000';

test('parseProcStat reads the start time, also if the name has spaces and brackets', () => {
  for (const name of ['(node)', '(a b)', '(evil) R 1 1 (x)']) {
    const stat = `4711 ${name} ${FIELDS_FROM_STATE}`;
    expect(parseProcStat(stat)).toEqual({ state: 'S', parent: 41, startTicks: '987654' });
  }
});

test('parseProcStat rejects other text', () => {
  for (const text of ['', '1 (x)', '1 (x) S', 'S x 42']) expect(() => parseProcStat(text)).toThrow('/proc/PID/stat');
});

test('isRunning is true for this process with its own start time only', () => {
  const own = ownIdentity();
  expect(own.pid).toBe(process.pid);
  expect(isRunning(own)).toBe(true);
  expect(isRunning({ pid: own.pid, start: `${own.start}0` })).toBe(false);
});

test('two processes that start at nearly the same time have different identities', () => {
  expect(processStart(process.ppid)).toBeDefined();
  expect(processStart(process.ppid)).not.toBe(processStart(process.pid));
});

test('isRunning is false for a process that has exited', async () => {
  const child = spawn(process.execPath, ['-e', 'process.stdin.resume()'], { stdio: ['pipe', 'ignore', 'ignore'] });
  const identity = { pid: child.pid ?? 0, start: processStart(child.pid ?? 0) ?? '' };
  expect(isRunning(identity)).toBe(true);
  child.stdin.end();
  await once(child, 'exit');
  expect(isRunning(identity)).toBe(false);
});

test('processStart is undefined for a number that is not a valid pid', () => {
  for (const pid of [0, -1, 1.5, Number.NaN]) expect(processStart(pid)).toBeUndefined();
});

test.runIf(process.platform === 'linux')('isRunning is false for a zombie process', async () => {
  // exec replaces the shell by a program that does not wait for the shell's child, which becomes a zombie.
  const parent = spawn('/bin/sh', ['-c', 'sleep 0.1 & echo $!; exec sleep 100'], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [printed] = (await once(parent.stdout, 'data')) as [Buffer];
  const pid = Number(printed);
  await vi.waitFor(() => expect(readFileSync(`/proc/${pid}/stat`, 'utf8')).toContain(') Z '), { timeout: 10_000 });
  expect(processStart(pid)).toBeUndefined();
  parent.kill('SIGKILL');
});
