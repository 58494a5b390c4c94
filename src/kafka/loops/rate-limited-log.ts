import type { Runtime } from '../../async/runtime.ts';
import type { WireLog } from '../wire/broker.ts';

const SAME_LINE_MS = 10_000;

/** Logs the same warning at most every 10 s; repetitions go to debug. */
export class RateLimitedLog {
  readonly #log: WireLog;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  readonly #warnedMs = new Map<string, number>();
  /** Repetitions since it was last written. */
  readonly #counts = new Map<string, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, log: WireLog = () => undefined) {
    this.#runtime = runtime;
    this.#log = log;
  }

  /** `message` is one of a few constants: details go into the fields. */
  warn(fields: object, message: string): void {
    this.#log(this.#isDue(message) ? 'warn' : 'debug', fields, message);
  }

  /** Like `warn`, with the number of times since the previous line. */
  count(fields: object, message: string, times = 1): void {
    const count = (this.#counts.get(message) ?? 0) + times;
    const isDue = this.#isDue(message);
    this.#counts.set(message, isDue ? 0 : count);
    this.#log(isDue ? 'warn' : 'debug', { ...fields, count }, message);
  }

  debug(fields: object, message: string): void {
    this.#log('debug', fields, message);
  }

  #isDue(message: string): boolean {
    const nowMs = this.#runtime.monotonicMs();
    const isDue = nowMs - (this.#warnedMs.get(message) ?? Number.NEGATIVE_INFINITY) >= SAME_LINE_MS;
    if (isDue) this.#warnedMs.set(message, nowMs);
    return isDue;
  }
}
