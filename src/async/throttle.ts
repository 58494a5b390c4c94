import type { Runtime } from './runtime.ts';

/** Kinds are few; only a faulty peer could invent more. When they are too many, all are forgotten. */
const MAX_KINDS = 100;

/** Lets the first event of each kind pass, and then at most one in an interval. */
export class Throttle {
  readonly #clock: Pick<Runtime, 'monotonicMs'>;
  readonly #intervalMs: number;
  readonly #passedMs = new Map<string, number>();

  constructor(clock: Pick<Runtime, 'monotonicMs'>, intervalMs: number) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
  }

  /** Whether an event of this kind may pass now; true also counts as having passed. */
  passes(kind = ''): boolean {
    const nowMs = this.#clock.monotonicMs();
    const lastMs = this.#passedMs.get(kind);
    if (lastMs !== undefined && nowMs - lastMs < this.#intervalMs) return false;
    if (this.#passedMs.size >= MAX_KINDS) this.#passedMs.clear();
    this.#passedMs.set(kind, nowMs);
    return true;
  }
}
