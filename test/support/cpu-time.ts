/**
 * The least processor time of a few runs, in milliseconds: what the work itself holds the event loop up for, on a
 * machine that has other things to do as well.
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
