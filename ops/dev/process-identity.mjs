// Plain JavaScript, because bootstrap.mjs needs it before the pinned Node, which runs TypeScript, is installed.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/**
 * Field 22 (start time in clock ticks since boot) and field 3 (state) of the text of /proc/PID/stat. The command's
 * name, field 2, may contain spaces and brackets, so the fields are counted from the last bracket.
 * @param {string} stat
 */
export function parseProcStat(stat) {
  const fields = stat
    .slice(stat.lastIndexOf(')') + 1)
    .trim()
    .split(/\s+/);
  const [state, parent, startTicks] = [fields[0], Number(fields[1]), fields[19]];
  if (!state || !startTicks || !Number.isInteger(parent)) throw new Error(`not the text of /proc/PID/stat: ${stat}`);
  return { state, parent, startTicks };
}

/**
 * Tells a process from a later one with the same pid: its start time, with the boot that it counts from.
 * Undefined when no such process runs; a zombie does not run.
 * @param {number} pid
 */
export function processStart(pid) {
  if (!Number.isInteger(pid) || pid <= 0) return undefined;
  return process.platform === 'linux' ? startFromProc(pid) : startFromPs(pid);
}

/**
 * True while that process runs; false for another process with its pid.
 * @param {{ pid: number, start: string }} identity
 */
export function isRunning(identity) {
  return processStart(identity.pid) === identity.start;
}

/** The identity of this process. */
export function ownIdentity() {
  const start = processStart(process.pid);
  if (!start) throw new Error("cannot read this process's own start time: /proc is not mounted, or there is no `ps`");
  return { pid: process.pid, start };
}

/** @param {number} pid */
function startFromProc(pid) {
  let stat;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT' || error.code === 'ESRCH') return undefined;
    throw error;
  }
  const { state, startTicks } = parseProcStat(stat);
  if (state === 'Z' || state === 'X') return undefined;
  return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()}/${startTicks}`;
}

/** @param {number} pid */
function startFromPs(pid) {
  try {
    const out = execFileSync('ps', ['-o', 'state=,lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    return out === '' || out.startsWith('Z') ? undefined : out.replace(/^\S+\s+/, '');
  } catch (error) {
    if (typeof error.status === 'number') return undefined; // ps ran and found no such process
    throw error;
  }
}
