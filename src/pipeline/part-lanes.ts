import { type LaneOptions, RetryingLane } from './lane.ts';

/** More would not help: while one part is decided, the others wait for that or for their replies. */
const PARTS_AT_ONCE = 3;

/**
 * Parts of one partition that are answered side by side: the next one is decided while those before it wait for their
 * replies to be acknowledged. Each is retried by itself. They are begun in order, and so decided in order, unless one
 * is retried.
 *
 * They take the lanes in turn, so none is begun while one three places before it is in progress. That bounds what is
 * answered but can't be committed, because an earlier part is stuck.
 */
export class PartLanes {
  readonly #lanes: readonly RetryingLane[];
  /** The part in progress in each lane. */
  readonly #parts: (Promise<void> | undefined)[] = [];
  /** The number of parts begun. */
  #begun = 0;

  constructor(options: LaneOptions) {
    this.#lanes = Array.from({ length: PARTS_AT_ONCE }, () => new RetryingLane(options));
  }

  /** Resolves when the parts in progress have ended. */
  get settled(): Promise<unknown> {
    return Promise.all(this.#lanes.map(({ settled }) => settled));
  }

  /**
   * Begins to answer a part, until that succeeds or the session ends. Resolves when there is room for another part;
   * must not be called before.
   */
  async begin(answer: () => Promise<void>): Promise<void> {
    const at = this.#begun % PARTS_AT_ONCE;
    if (this.#parts[at] !== undefined) throw new RangeError(`${PARTS_AT_ONCE} parts are in progress`);
    this.#begun += 1;
    this.#parts[at] = this.#finish(at, answer);
    await this.#parts[this.#begun % PARTS_AT_ONCE];
  }

  async #finish(at: number, answer: () => Promise<void>): Promise<void> {
    let isDue = true;
    await (this.#lanes[at] as RetryingLane).finish(
      () => isDue,
      async () => {
        await answer();
        isDue = false;
      },
    );
    this.#parts[at] = undefined;
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
