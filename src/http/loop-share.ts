/** Longest that one turn of the event loop is spent on the work of all who wait here. */
const TURN_MS = 5;

/** Gives work in small pieces its turns, so that the event loop stays free for everybody else. */
export class LoopShare {
  readonly #monotonicMs: () => number;
  #waiting: (() => void)[] = [];
  #scheduled = false;

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** Runs a piece in a later turn, in the order of asking. The piece takes a millisecond at most, and does not throw. */
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
    // What asked meanwhile comes after those who still wait.
    this.#waiting = [...pieces.slice(done), ...this.#waiting];
    this.#scheduled = this.#waiting.length > 0;
    if (this.#scheduled) setImmediate(() => this.#turn());
  }
}
