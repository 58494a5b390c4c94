import type { Runtime, Timer } from '../../async/runtime.ts';

/**
 * How long the coordinator considers a member alive without a call. The session counts from the sending of the last
 * answered call, since the coordinator can't have received it earlier.
 */
export class SessionWatch {
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly #sessionTimeoutMs: number;
  readonly #onLapse: () => void;
  #confirmedMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  constructor(runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>, sessionTimeoutMs: number, onLapse: () => void) {
    this.#runtime = runtime;
    this.#sessionTimeoutMs = sessionTimeoutMs;
    this.#onLapse = onLapse;
  }

  /** A call that was sent at `sentMs` was answered. Starts the watch if there is none. */
  confirm(sentMs: number): void {
    this.#confirmedMs = Math.max(this.#confirmedMs, sentMs);
    this.#timer?.cancel();
    const leftMs = this.#confirmedMs + this.#sessionTimeoutMs - this.#runtime.monotonicMs();
    this.#timer = this.#runtime.schedule(Math.max(0, leftMs), this.#onLapse);
  }

  end(): void {
    this.#timer?.cancel();
  }
}
