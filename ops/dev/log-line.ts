/** How the terminal names the levels that are shown. */
const LEVELS: ReadonlyMap<string, string> = new Map([
  ['warn', 'warning'],
  ['error', 'error'],
  ['fatal', 'fatal'],
]);
/** The `info` lines that show whether the worker serves. */
const STATES: ReadonlySet<unknown> = new Set(['gate open', 'gate closed, reason changed']);
const HIDDEN: ReadonlySet<string> = new Set(['level', 'time', 'pid', 'hostname', 'name', 'msg']);
const LONGEST = 300;

interface LogLine {
  readonly [field: string]: unknown;
  readonly level: string;
  /** Milliseconds of the wall clock. */
  readonly time: number;
}

/** Undefined if the text is not a line of the worker's log. */
function parseLine(line: string): LogLine | undefined {
  try {
    const parsed = JSON.parse(line) as LogLine;
    return typeof parsed?.level === 'string' && typeof parsed.time === 'number' ? parsed : undefined;
  } catch {
    return undefined;
  }
}

/** True for a log line of level warn or above since a time, and for one that is not JSON: a crash. */
export function isAlarming(line: string, sinceMs: number): boolean {
  const parsed = parseLine(line);
  return parsed === undefined || (LEVELS.has(parsed.level) && parsed.time >= sinceMs);
}

/**
 * A line of the worker's log for the terminal: warnings, errors, and whether the worker serves. Undefined for other
 * lines. Text that is not JSON, such as the output of a crash, is not changed.
 */
export function readableLine(line: string, sinceMs: number): string | undefined {
  const parsed = parseLine(line);
  if (parsed === undefined) return line;
  if (parsed.time < sinceMs || (!LEVELS.has(parsed.level) && !STATES.has(parsed.msg))) return undefined;
  const fields = Object.entries(parsed)
    .filter(([name]) => !HIDDEN.has(name))
    .map(([name, value]) => `${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`);
  const level = LEVELS.get(parsed.level);
  const text = [level === undefined ? parsed.msg : `${level}: ${parsed.msg}`, ...fields].join(', ');
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}
