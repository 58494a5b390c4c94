/** The numbers of pino, by which tests compare the levels of a log. */
const LEVELS: Readonly<Record<string, number>> = {
  trace: 10,
  debug: 20,
  info: 30,
  warn: 40,
  error: 50,
  fatal: 60,
};

/** A line of a log with its level as a number. */
export function withNumber<T extends object>(line: T): T {
  const { level } = line as { readonly level?: unknown };
  return typeof level === 'string' ? { ...line, level: LEVELS[level] } : line;
}
