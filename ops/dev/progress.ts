const startedAt = performance.now();

/** One line of progress on standard error, with the seconds since the start. */
export function log(line: string): void {
  process.stderr.write(`[${((performance.now() - startedAt) / 1000).toFixed(1).padStart(5)} s] ${line}\n`);
}
