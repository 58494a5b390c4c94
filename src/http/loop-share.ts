/** Longest time per turn of the event loop for all queued pieces. */
const TURN_MS = 5;

/** Runs work in small pieces, so that it does not block the event loop. */
export class LoopShare {
  readonly #monotonicMs: () => number;
  #waiting: (() => void)[] = [];
  #scheduled = false;

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** Runs a piece in a later turn, first come, first served. A piece must take at most a millisecond and not throw. */
  run(piece: () => void): void {
    this.#waiting.push(piece);
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    const untilMs = this.#monotonicMs() + TURN_MS;
    const pieces = this.#waiting;
    let done = 0;
    this.#waiting = [];
    while (done < pieces.length && (done === 0 || this.#monotonicMs() < untilMs)) {
      pieces[done]?.();
      done += 1;
    }
    // Pieces queued meanwhile go after those still waiting.
    this.#waiting = [...pieces.slice(done), ...this.#waiting];
    this.#scheduled = this.#waiting.length > 0;
    if (this.#scheduled) setImmediate(() => this.#turn());
  }
}
