import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { isRunning, type ProcessIdentity, processStart } from './process-identity.mjs';

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
