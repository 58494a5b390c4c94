import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRunning, type ProcessIdentity, processStart } from './process-identity.mjs';

const GUARD = join(import.meta.dirname, 'guard.sh');
const READY_POLL_MS = 25;
const NOT_READY_GRACE_MS = 5_000;
const live = new Set<ChildProcess>();

export interface Command {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd?: string | undefined;
  readonly env?: NodeJS.ProcessEnv | undefined;
}

/** A long-running process. It is stopped when this process exits, even if this one is killed. */
export interface Child {
  readonly name: string;
  readonly pid: number;
  /** Standard output and error of this run; the log of the previous run is beside it, with `.1`. */
  readonly logFile: string;
  readonly exited: Promise<string>;
  /** How it exited ("exit code 1", "signal SIGKILL"); undefined while it runs. */
  ended(): string | undefined;
  /** Sends SIGTERM, then SIGKILL if it has not exited after `graceMs`. */
  stop(graceMs?: number): Promise<void>;
  /** Sends SIGKILL to the whole process group. */
  kill(): Promise<void>;
}

/**
 * Starts a command in its own process group, so that Ctrl-C in a terminal reaches only this process, which then decides
 * the order of the shutdown. The guard stops the group when this process is killed.
 */
export function spawnGuarded(what: Command, output: 'pipe' | number, errors: 'inherit' | number): ChildProcess {
  const child = spawn('/bin/sh', [GUARD, what.command, ...what.args], {
    cwd: what.cwd,
    env: what.env ?? process.env,
    detached: true,
    stdio: ['pipe', output, errors],
  });
  child.stdin?.on('error', () => undefined); // the watcher may have exited before this is written
  live.add(child);
  child.once('exit', () => {
    live.delete(child);
    child.stdin?.end('done\n');
  });
  child.once('error', () => live.delete(child));
  return child;
}

/** Sends a signal to the process group of a child, unless it has exited. */
export function signalGroup(child: ChildProcess, signal: NodeJS.Signals): void {
  if (child.pid === undefined || !live.has(child)) return;
  try {
    process.kill(-child.pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Sends SIGKILL to all running children, on the second Ctrl-C. */
export function killAll(): void {
  for (const child of live) signalGroup(child, 'SIGKILL');
}

/**
 * Starts a server or worker whose output goes to a file, so that it never blocks on a pipe that is not read. A process
 * of an earlier run with the same log file may still run, if both its parent and its guard were killed. It is stopped
 * first, since it uses the same data.
 */
export async function startChild(what: Command & { name: string; logFile: string }): Promise<Child> {
  mkdirSync(dirname(what.logFile), { recursive: true });
  const record = `${what.logFile}.process`;
  await endRecorded(record);
  if (existsSync(what.logFile)) renameSync(what.logFile, `${what.logFile}.1`);
  const log = openSync(what.logFile, 'w');
  const child = spawnGuarded(what, log, log);
  closeSync(log);
  let ended: string | undefined;
  const exited = new Promise<string>((resolve) => {
    const end = (how: string) => {
      ended = how;
      resolve(how);
    };
    child.once('exit', (code, signal) => end(signal ? `signal ${signal}` : `exit code ${code}`));
    child.once('error', (error) => end(error.message));
  });
  if (child.pid === undefined) throw new Error(`${what.name} did not start: ${await exited}`);
  recordProcess(record, child.pid);
  void exited.then(() => rmSync(record, { force: true }));
  const kill = async () => {
    signalGroup(child, 'SIGKILL');
    await exited;
  };
  const stop = async (graceMs = 15_000) => {
    signalGroup(child, 'SIGTERM');
    const giveUp = new AbortController();
    const late = sleep(graceMs, 'late', { signal: giveUp.signal }).catch(() => 'ended');
    if ((await Promise.race([exited, late])) === 'late') await kill();
    giveUp.abort();
  };
  return { name: what.name, pid: child.pid, logFile: what.logFile, exited, ended: () => ended, stop, kill };
}

/**
 * Waits until `ready` returns true. Throws, with the last lines of the log, if the child exits first; or, after
 * stopping the child, if `timeoutMs` have passed.
 */
export async function untilReady(
  child: Child,
  ready: () => boolean | Promise<boolean>,
  options: { timeoutMs: number; signal?: AbortSignal | undefined },
): Promise<void> {
  const deadline = performance.now() + options.timeoutMs;
  try {
    for (;;) {
      const ended = child.ended();
      if (ended) throw new Error(`${child.name} exited before it was ready (${ended})${lastLines(child.logFile)}`);
      if (await ready()) return;
      if (performance.now() > deadline) {
        throw new Error(`${child.name} was not ready after ${options.timeoutMs / 1000} s${lastLines(child.logFile)}`);
      }
      await sleep(READY_POLL_MS, undefined, options.signal ? { signal: options.signal } : {});
    }
  } catch (error) {
    await child.stop(NOT_READY_GRACE_MS);
    throw error;
  }
}

/** The last lines of a log, for an error message, with the name of the file. */
export function lastLines(logFile: string, count = 20): string {
  const lines = readFileSync(logFile, 'utf8').trimEnd().split('\n').slice(-count);
  return `; last lines of ${logFile}:\n  ${lines.join('\n  ')}`;
}

/** True once the log contains the text. Reads all of it, so use it for the first seconds of a log. */
export function logHolds(logFile: string, text: string): boolean {
  return existsSync(logFile) && readFileSync(logFile, 'utf8').includes(text);
}

const GRACE_MS = 10_000;
const KILL_WAIT_MS = 5_000;

/** Records a process that was just started, so that a later run can tell it from one with a reused pid. */
export function recordProcess(file: string, pid: number): void {
  const start = processStart(pid);
  if (start !== undefined) writeFileSync(file, JSON.stringify({ pid, start }));
}

/** The identity in a record; undefined if the text is not a record. */
export function parseRecord(text: string): ProcessIdentity | undefined {
  try {
    const { pid, start } = JSON.parse(text) as Partial<ProcessIdentity>;
    return typeof pid === 'number' && typeof start === 'string' ? { pid, start } : undefined;
  } catch {
    return undefined; // cut short when its writer was killed; its guard ends the process
  }
}

/** Stops the recorded process if it still runs: SIGTERM, then SIGKILL. A process that reuses its pid is not touched. */
export async function endRecorded(file: string): Promise<void> {
  if (!existsSync(file)) return;
  const identity = parseRecord(readFileSync(file, 'utf8'));
  if (identity && isRunning(identity)) {
    signal(identity, 'SIGTERM');
    if (!(await endsWithin(identity, GRACE_MS))) {
      signal(identity, 'SIGKILL');
      if (!(await endsWithin(identity, KILL_WAIT_MS))) {
        throw new Error(`process ${identity.pid}, left over from an earlier run, can't be ended; end it by hand`);
      }
    }
  }
  rmSync(file, { force: true });
}

function signal(identity: ProcessIdentity, name: NodeJS.Signals): void {
  try {
    process.kill(identity.pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

async function endsWithin(identity: ProcessIdentity, ms: number): Promise<boolean> {
  const deadline = performance.now() + ms;
  while (isRunning(identity)) {
    if (performance.now() > deadline) return false;
    await sleep(50);
  }
  return true;
}
