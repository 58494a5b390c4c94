import { readdirSync } from 'node:fs';
import { CPU_TICK_MS, procText } from './running.ts';

/**
 * Begins to watch how much of the machine others take: programs that this process did not start, and a host that gives
 * its processors to other machines. The result returns their share since then, in percent of all processors; NaN if the
 * system does not report it.
 */
export function watchOthers(): () => number {
  const before = look();
  return () => {
    const now = look();
    if (before === undefined || now === undefined) return Number.NaN;
    const allMs = (now.atMs - before.atMs) * now.processors;
    const busyMs = allMs - (now.idleMs - before.idleMs);
    // The system's counters are coarse, and may go back a little.
    return Math.min(100, Math.max(0, (100 * (busyMs - (now.ownMs - before.ownMs))) / allMs));
  };
}

interface Look {
  readonly atMs: number;
  readonly processors: number;
  /** Of all processors since the system's start. */
  readonly idleMs: number;
  /** Of this process, of all below it, and of those that have ended. */
  readonly ownMs: number;
}

function look(): Look | undefined {
  const machine = procText('/proc/stat');
  if (machine === undefined) return undefined;
  const { idleTicks, processors } = idleOf(machine);
  const stats = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => procText(`/proc/${pid}/stat`) ?? []);
  return {
    atMs: performance.now(),
    processors,
    idleMs: idleTicks * CPU_TICK_MS,
    ownMs: ticksBelow(process.pid, stats) * CPU_TICK_MS,
  };
}

/** The ticks in which processors had nothing to do, or waited for a disk, and how many there are, from /proc/stat. */
export function idleOf(stat: string): { readonly idleTicks: number; readonly processors: number } {
  const [, idle = '', waiting = ''] = /^cpu +(?:\d+ ){3}(\d+) (\d+)/m.exec(stat) ?? [];
  return { idleTicks: Number(idle) + Number(waiting), processors: stat.match(/^cpu\d+ /gm)?.length ?? 0 };
}

/** The ticks of a process and of all that it started, ended ones too, from the texts of /proc/PID/stat. */
export function ticksBelow(root: number, stats: readonly string[]): number {
  const all = stats.map((stat) => {
    const [, parent, ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // User and system time, and the same of ended children that were waited for.
    const ticks = rest.slice(9, 13).reduce((sum, text) => sum + Number(text), 0);
    return { pid: Number.parseInt(stat, 10), parent: Number(parent), ticks };
  });
  const below = Map.groupBy(all, ({ parent }) => parent);
  let sum = all.find(({ pid }) => pid === root)?.ticks ?? 0;
  for (const next = [root]; next.length > 0; ) {
    for (const { pid, ticks } of below.get(next.pop() ?? 0) ?? []) {
      sum += ticks;
      next.push(pid);
    }
  }
  return sum;
}
