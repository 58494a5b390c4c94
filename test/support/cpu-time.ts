import { readFileSync } from 'node:fs';

/**
 * The least processor time of a few runs, in milliseconds: how long the work itself blocks the event loop, even on a
 * busy machine.
 */
export function leastCpuMs(work: () => void, runs = 3): number {
  const taken = Array.from({ length: runs }, () => {
    const before = process.cpuUsage();
    work();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1_000;
  });
  return Math.min(...taken);
}

/**
 * The processor time of another process's main thread so far, which no other load on the machine extends, and how long
 * it has waited for a processor.
 */
export function mainThreadTimes(pid: number): { readonly usedMs: number; readonly waitedMs: number } {
  const [used, waited] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ');
  return { usedMs: Number(used) / 1e6, waitedMs: Number(waited) / 1e6 };
}
