import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { endRecorded, logHolds, startChild, untilReady } from '../../ops/dev/child.ts';
import { isRunning, processStart } from '../../ops/dev/process-identity.mjs';
import { run } from '../../ops/dev/run.ts';

const CHILD = join(import.meta.dirname, '../../ops/dev/child.ts');
let dir: string;
let logFile: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-child-'));
  logFile = join(dir, 'log');
});

afterEach(() => rmSync(dir, { recursive: true }));

const shell = (script: string) => ({ name: 'it', logFile, command: '/bin/sh', args: ['-c', script] });
const identityOf = (pid: number) => ({ pid, start: processStart(pid) ?? 'gone' });

test('a child that ignores SIGTERM is killed after the grace time', async () => {
  const child = await startChild(shell('trap "" TERM; echo up; while :; do sleep 0.05; done'));
  await untilReady(child, () => logHolds(logFile, 'up'), { timeoutMs: 10_000 });
  await child.stop(100);
  expect(await child.exited).toBe('signal SIGKILL');
});

test('a child that exits on SIGTERM gets time to clean up', async () => {
  const child = await startChild(shell('trap "echo bye; exit 0" TERM; echo up; while :; do sleep 0.05; done'));
  await untilReady(child, () => logHolds(logFile, 'up'), { timeoutMs: 10_000 });
  await child.stop(10_000);
  expect(child.ended()).toBe('exit code 0');
  expect(readFileSync(logFile, 'utf8')).toContain('bye');
});

test('the error of a child that exits early has its last lines and its exit code', async () => {
  const child = await startChild(shell('echo the reason >&2; exit 3'));
  const ready = untilReady(child, () => false, { timeoutMs: 10_000 });
  await expect(ready).rejects.toThrow(/exit code 3[\s\S]*the reason/);
});

test('a child that is not ready in time is stopped', async () => {
  const child = await startChild(shell('exec sleep 100'));
  await expect(untilReady(child, () => false, { timeoutMs: 50 })).rejects.toThrow('not ready after 0.05 s');
  expect(child.ended()).toBe('signal SIGTERM');
});

test('a missing command is reported as such', async () => {
  const child = await startChild({ name: 'it', logFile, command: '/nowhere/program', args: [] });
  await expect(untilReady(child, () => false, { timeoutMs: 10_000 })).rejects.toThrow(/not found|No such file/);
});

test('a child and its own children are stopped when their parent is killed', async () => {
  const script = `
    const { startChild } = await import(${JSON.stringify(CHILD)});
    const args = ['-c', 'sleep 100 & echo $!; wait'];
    const child = await startChild({ name: 'it', logFile: ${JSON.stringify(logFile)}, command: '/bin/sh', args });
    console.log(child.pid);`;
  const starter = spawn(process.execPath, ['--input-type=module-typescript', '-e', script], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [printed] = (await once(starter.stdout, 'data')) as [Buffer];
  await vi.waitFor(() => expect(readFileSync(logFile, 'utf8')).toMatch(/^\d+\n$/), { timeout: 10_000 });
  const family = [Number(printed), Number(readFileSync(logFile, 'utf8'))].map(identityOf);
  expect(family.map(isRunning)).toEqual([true, true]);
  starter.kill('SIGKILL');
  await vi.waitFor(() => expect(family.map(isRunning)).toEqual([false, false]), { timeout: 10_000 });
});

test('a process that an earlier run left behind is stopped before it is started again', async () => {
  const leftover = spawn('sleep', ['100'], { stdio: 'ignore' });
  const identity = identityOf(leftover.pid ?? 0);
  writeFileSync(`${logFile}.process`, JSON.stringify(identity));
  const child = await startChild(shell('exit 0'));
  expect(isRunning(identity)).toBe(false);
  await child.exited;
});

test('a process that reuses the pid of a leftover is not stopped', async () => {
  const foreign = spawn('sleep', ['100'], { stdio: 'ignore' });
  const record = join(dir, 'record');
  writeFileSync(record, JSON.stringify({ pid: foreign.pid, start: 'another boot/1' }));
  await endRecorded(record);
  expect(existsSync(record)).toBe(false);
  expect(isRunning(identityOf(foreign.pid ?? 0))).toBe(true);
  foreign.kill('SIGKILL');
  await once(foreign, 'exit');
});

test('run returns the output of a command, and reports a failed command with its purpose and output', async () => {
  const command = (script: string) => run({ ...shell(script), purpose: 'the test command', timeoutMs: 10_000 });
  expect(await command('echo good')).toBe('good\n');
  await expect(command('echo bad; exit 5')).rejects.toThrow(/the test command failed \(exit code 5\)[\s\S]*bad/);
});

test('run stops a command at its time limit, and when its signal is aborted', async () => {
  const sleeper = { ...shell('sleep 100; true'), purpose: 'the test command' };
  await expect(run({ ...sleeper, timeoutMs: 50 })).rejects.toThrow('longer than 0.05 s');
  const stop = new AbortController();
  const running = run({ ...sleeper, timeoutMs: 60_000, signal: stop.signal });
  stop.abort(new Error('interrupted'));
  await expect(running).rejects.toThrow('interrupted');
});
