/** The log ended here when it was looked at. */
interface LogEndSample {
  readonly end: number;
  readonly atMs: number;
}

export interface RequestLagOptions {
  /** The offset from which on nothing was answered yet. */
  readonly next: number;
  readonly monotonicMs: () => number;
  readonly onChange: (records: number) => void;
}

/** Looks while nothing moves on are a fetch's waiting time apart: 100 of them are 25 s. */
const MAX_SAMPLES = 100;

/**
 * How far a request partition is behind, told from the answers to its fetches and without any reading of its own.
 *
 * A reader of committed records gets nothing behind a transaction that is still open, however much waits there. So what
 * waits counts up to the high watermark, which each answer brings, and not up to the last stable offset.
 *
 * The age is by the monotonic clock, since records show their senders' time where the topic lets them. It counts from the
 * first answer that showed the oldest unread record to be there: what waited before this worker had the partition is not in
 * it, nor what came since the last fetch.
 */
export class RequestLag {
  readonly #options: RequestLagOptions;
  /** Oldest first, each with a higher end than the one before. */
  readonly #samples: LogEndSample[] = [];
  #next: number;

  constructor(options: RequestLagOptions) {
    this.#options = options;
    this.#next = options.next;
  }

  /** The log ends there now. */
  looked(end: number): void {
    if (end <= Math.max(this.#next, this.#samples.at(-1)?.end ?? 0)) return;
    // With no room for another one, what came since passes for older than it is.
    const before = this.#samples.length < MAX_SAMPLES ? undefined : this.#samples.pop();
    this.#samples.push({ end, atMs: before?.atMs ?? this.#options.monotonicMs() });
    this.#options.onChange(this.records);
  }

  /** Everything below this offset has been answered. */
  progressed(next: number): void {
    this.#next = Math.max(this.#next, next);
    const left = this.#samples.findIndex(({ end }) => end > this.#next);
    this.#samples.splice(0, left === -1 ? this.#samples.length : left);
    this.#options.onChange(this.records);
  }

  /** Offsets between what was answered and the end of the log; markers of transactions may be among them. */
  get records(): number {
    return Math.max(0, (this.#samples.at(-1)?.end ?? 0) - this.#next);
  }

  /** For how long the oldest record has waited that was not answered; 0 when none waits. */
  get oldestMs(): number {
    const oldest = this.#samples[0];
    return oldest === undefined ? 0 : this.#options.monotonicMs() - oldest.atMs;
  }
}
