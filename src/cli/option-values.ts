import { InvalidArgumentError } from 'commander';

/** Creates an option parser for whole numbers from `low` to `high`. */
export function wholeNumber(low: number, high: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= low && value <= high) return value;
    throw new InvalidArgumentError(`must be a whole number from ${low} to ${high}.`);
  };
}

const UNITS_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const AGO = /^([0-9]{1,9})([smhd])$/;
/** A time without a zone would mean another moment on each machine. */
const ISO = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/;

export const TIME_HELP = 'ISO 8601 with its zone, a date (UTC), ms since 1970, now, or an age: 90s, 30m, 2h, 7d';

/** Creates an option parser for times, in wall milliseconds since 1970. */
export function timeReader(now: () => number): (text: string) => number {
  return (text) => {
    const [, amount, unit] = AGO.exec(text) ?? [];
    if (amount !== undefined && unit !== undefined) return now() - Number(amount) * (UNITS_MS[unit] ?? 0);
    if (text === 'now') return now();
    if (/^[0-9]{5,16}$/.test(text)) return Number(text);
    const parsed = ISO.test(text) && isDay(text.slice(0, 10)) ? Date.parse(text) : Number.NaN;
    if (Number.isNaN(parsed)) throw new InvalidArgumentError(`must be ${TIME_HELP}.`);
    return parsed;
  };
}

/** Date.parse accepts 30 February as 2 March. */
function isDay(day: string): boolean {
  const start = Date.parse(day);
  return !Number.isNaN(start) && new Date(start).toISOString().startsWith(day);
}
