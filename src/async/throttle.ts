import type { Runtime } from './runtime.ts';

type Clock = Pick<Runtime, 'monotonicMs'>;

/** What an event that passes stands for. */
export interface Passed {
  /** How many events there were since the last one that passed, this one included. */
  readonly count: number;
  /** The number of names among them; undefined if all had the name of this one. */
  readonly names: number | undefined;
}

/** The events of one name, or of all names without a place of their own. */
interface Tally {
  /** From when an event may pass. */
  dueMs: number;
  /** How many events were held back since one passed. */
  held: number;
}

/** Names may come from requests, so only this many have a place of their own at a time. */
const MAX_NAMES = 20;
/** So many of the other names are told apart for the number of them. */
const MAX_OTHERS = 1_000;

/**
 * Lets one event of each name pass in an interval, and counts the others.
 *
 * A server that is down makes every retry fail, and a quota refuses thousands of requests a second. Each time one line
 * of a log says it, if it has the number of times. The trap is the names. If similar ones counted as the same, the line
 * of one tenant would hide another's; if each had its own line, whoever chooses the names could fill the log.
 *
 * So names are compared exactly, and a limited number has places. A name keeps its place for an interval after it has
 * passed; then a new one may take it, because the old one would pass anyway. All names that find no place share one
 * more, whose event says how many names it stands for. However many there are, MAX_NAMES + 1 events pass in an
 * interval.
 */
export class Throttle {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #tallies = new Map<string, Tally>();
  readonly #shared: Tally = { dueMs: Number.NEGATIVE_INFINITY, held: 0 };
  /** The names of the events in the shared place. */
  readonly #others = new Set<string>();

  constructor(clock: Clock, intervalMs: number) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
  }

  /** Returns what the event stands for if it may pass now, which also counts as having passed; else undefined. */
  passes(name = '', times = 1, intervalMs = this.#intervalMs): Passed | undefined {
    const nowMs = this.#clock.monotonicMs();
    const tally = this.#tallyOf(name, nowMs);
    const isShared = tally === this.#shared;
    if (isShared && this.#others.size < MAX_OTHERS) this.#others.add(name);
    tally.held += times;
    if (nowMs < tally.dueMs) return undefined;
    const passed = { count: tally.held, names: isShared ? this.#others.size : undefined };
    tally.held = 0;
    tally.dueMs = nowMs + intervalMs;
    if (isShared) this.#others.clear();
    return passed;
  }

  #tallyOf(name: string, nowMs: number): Tally {
    const known = this.#tallies.get(name);
    if (known !== undefined) return known;
    if (this.#tallies.size >= MAX_NAMES) this.#forgetOne(nowMs);
    if (this.#tallies.size >= MAX_NAMES) return this.#shared;
    const tally = { dueMs: nowMs, held: 0 };
    this.#tallies.set(name, tally);
    return tally;
  }

  #forgetOne(nowMs: number): void {
    for (const [name, { dueMs }] of this.#tallies) if (dueMs <= nowMs) return void this.#tallies.delete(name);
  }
}

/** Which repetitions of a line are held back. */
interface Repetition {
  /** What the line is about, by its exact name. Lines about different things do not hold each other back. */
  readonly about?: string | number;
  /** How many events the line stands for; 1 by default. If given, the line always has `count`. */
  readonly times?: number;
  /** How long the line holds back its repetitions (ms); 10 s by default. */
  readonly everyMs?: number | undefined;
}

type Level = 'error' | 'warn' | 'info' | 'debug';

/**
 * Writes a line. `message` is one of a few constants; names and numbers go into the fields. Returns whether it was
 * written at its own level.
 */
export type ThrottledLog = (level: Level, fields: object, message: string, repetition?: Repetition) => boolean;

const SAME_LINE_MS = 10_000;

/**
 * A log in which errors and warnings are written once in an interval for each message and what it is about. Repetitions
 * go to debug, and are counted: `count` is the number of events since the last such line, and `names` that of the
 * things that these were about, where they were more than have lines of their own.
 */
export function throttledLog(
  clock: Clock,
  write: (level: Level, fields: object, message: string) => void,
): ThrottledLog {
  const throttles = new Map<string, Throttle>();
  return (level, fields, message, { about = '', times, everyMs } = {}) => {
    if (level === 'info' || level === 'debug') {
      write(level, fields, message);
      return true;
    }
    const throttle = throttles.get(message) ?? new Throttle(clock, SAME_LINE_MS);
    throttles.set(message, throttle);
    const passed = throttle.passes(String(about), times, everyMs);
    if (passed === undefined) {
      write('debug', times === undefined ? fields : { ...fields, count: times }, message);
      return false;
    }
    const { count, names } = passed;
    const isSingle = times === undefined && count === 1 && names === undefined;
    write(level, isSingle ? fields : { ...fields, count, ...(names === undefined ? {} : { names }) }, message);
    return true;
  };
}
