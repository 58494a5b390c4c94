import type { Runtime } from '../../async/runtime.ts';
import { Throttle } from '../../async/throttle.ts';
import type { WireLog } from '../wire/broker.ts';

const SAME_LINE_MS = 10_000;

/** Logs the same warning at most every 10 s; repetitions go to debug. */
export class RateLimitedLog {
  readonly #log: WireLog;
  readonly #throttle: Throttle;
  /** Repetitions since it was last written. */
  readonly #counts = new Map<string, number>();

  constructor(runtime: Pick<Runtime, 'monotonicMs'>, log: WireLog = () => undefined) {
    this.#throttle = new Throttle(runtime, SAME_LINE_MS);
    this.#log = log;
  }

  /** `message` is one of a few constants: details go into the fields. */
  warn(fields: object, message: string): void {
    this.#log(this.#throttle.passes(message) ? 'warn' : 'debug', fields, message);
  }

  /** Like `warn`, with the number of times since the previous line. */
  count(fields: object, message: string, times = 1): void {
    const count = (this.#counts.get(message) ?? 0) + times;
    const isDue = this.#throttle.passes(message);
    this.#counts.set(message, isDue ? 0 : count);
    this.#log(isDue ? 'warn' : 'debug', { ...fields, count }, message);
  }

  info(fields: object, message: string): void {
    this.#log('info', fields, message);
  }

  debug(fields: object, message: string): void {
    this.#log('debug', fields, message);
  }
}
