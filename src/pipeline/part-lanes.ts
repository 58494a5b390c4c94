import { type LaneOptions, RetryingLane } from './lane.ts';

/** More would not help: while one part is decided, the others wait for that or for their replies. */
const PARTS_AT_ONCE = 3;

/**
 * Parts of one partition that are answered side by side: the next one is decided while those before it wait for their replies to be
 * acknowledged. Each is retried by itself. They are begun in order, and so decided in order, unless one is retried.
 *
 * They take the lanes in turn, so none is begun while one three places before it is in progress. That bounds what is answered but
 * can't be committed, because an earlier part is stuck.
 */
export class PartLanes {
  readonly #lanes: readonly RetryingLane[];
  readonly #busy = new Set<RetryingLane>();
  /** The number of parts begun. */
  #begun = 0;
  #onRoom: (() => void) | undefined;

  constructor(options: LaneOptions) {
    this.#lanes = Array.from({ length: PARTS_AT_ONCE }, () => new RetryingLane(options));
  }

  /** Resolves when the parts in progress have ended. */
  get settled(): Promise<unknown> {
    return Promise.all(this.#lanes.map(({ settled }) => settled));
  }

  /**
   * Begins to answer a part, until that succeeds or the session ends. Resolves when there is room for another part; must not be
   * called before.
   */
  async begin(answer: () => Promise<void>): Promise<void> {
    const lane = this.#next;
    if (this.#busy.has(lane)) throw new RangeError(`${PARTS_AT_ONCE} parts are in progress`);
    this.#begun += 1;
    this.#busy.add(lane);
    void this.#finish(lane, answer);
    if (!this.#busy.has(this.#next)) return;
    await new Promise<void>((resolve) => {
      this.#onRoom = resolve;
    });
  }

  /** The lane of the next part. */
  get #next(): RetryingLane {
    return this.#lanes[this.#begun % PARTS_AT_ONCE] as RetryingLane;
  }

  async #finish(lane: RetryingLane, answer: () => Promise<void>): Promise<void> {
    let isDue = true;
    await lane.finish(
      () => isDue,
      async () => {
        await answer();
        isDue = false;
      },
    );
    this.#busy.delete(lane);
    if (lane === this.#next) this.#onRoom?.();
  }

  pause(): void {
    for (const lane of this.#lanes) lane.pause();
  }

  resume(): void {
    for (const lane of this.#lanes) lane.resume();
  }

  end(): void {
    for (const lane of this.#lanes) lane.end();
  }
}
