/**
 * Longest time per turn of the event loop for all queued pieces. A request over Kafka takes about eight turns, and each
 * of them waits as long.
 */
const TURN_MS = 0.5;
/** Pieces that are run in place between two turns: a few milliseconds of requests would be read at once. */
const IN_PLACE = 8;

type Piece = () => void;

/** Runs work in small pieces, so that it does not block the event loop; callers take turns (round robin). */
export class LoopShare {
  readonly #monotonicMs: () => number;
  /** Pieces by caller, first come, first served; the caller whose turn is next is first. */
  readonly #waiting = new Map<string, Piece[]>();
  #scheduled = false;
  #isShort = false;
  #inPlace = 0;
  /** Pieces for the end of this turn. */
  #last: Piece[] = [];

  constructor(monotonicMs: () => number) {
    this.#monotonicMs = monotonicMs;
  }

  /** The share of one caller. */
  of(caller: string): Pick<LoopShare, 'run'> {
    return { run: (piece) => this.run(piece, caller) };
  }

  /**
   * Runs a piece later, after the caller's earlier ones. A piece must take half a millisecond at most, and not throw.
   */
  run(piece: Piece, caller = ''): void {
    const own = this.#waiting.get(caller);
    if (own === undefined) this.#waiting.set(caller, [piece]);
    else own.push(piece);
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  /** Runs a piece at once; after several, and while others wait, as run() does. */
  runSoon(piece: Piece, caller: string): void {
    if (this.#scheduled || this.#inPlace === IN_PLACE) this.run(piece, caller);
    else {
      this.#inPlace += 1;
      piece();
    }
  }

  /** Runs a piece at the end of this turn of the event loop, right after those of others. */
  runLast(piece: Piece): void {
    if (this.#last.push(piece) > 1) return;
    setImmediate(() => {
      const pieces = this.#last;
      this.#last = [];
      for (const one of pieces) one();
    });
  }

  /**
   * A connection was accepted, so others may wait for that. Node accepts one per turn of the event loop, so the next
   * turn here has only one piece: otherwise a flood of connections whose responses take long delays a new one by
   * seconds.
   */
  accepted(): void {
    this.#isShort = true;
  }

  async #turn(): Promise<void> {
    const untilMs = this.#monotonicMs() + (this.#isShort ? 0 : TURN_MS);
    this.#isShort = false;
    this.#inPlace = 0;
    do {
      this.#runNext();
      await undefined; // so that what a piece goes on with counts, too
    } while (this.#waiting.size > 0 && this.#monotonicMs() < untilMs);
    this.#scheduled = this.#waiting.size > 0;
    if (this.#scheduled) setImmediate(() => this.#turn());
  }

  #runNext(): void {
    for (const [caller, pieces] of this.#waiting) {
      const piece = pieces.shift();
      this.#waiting.delete(caller);
      if (pieces.length > 0) this.#waiting.set(caller, pieces);
      return void piece?.();
    }
  }
}
