import { readFileSync } from 'node:fs';

/**
 * The least processor time of a few runs, in milliseconds: how long the work itself blocks the event loop, even on a busy
 * machine.
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

/** The processor time of another process's main thread so far, in milliseconds, which no other load on the machine extends. */
export function mainThreadCpuMs(pid: number): number {
  const [nanoseconds] = readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ');
  return Number(nanoseconds) / 1e6;
}
