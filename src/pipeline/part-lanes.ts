import { type LaneOptions, RetryingLane } from './lane.ts';

/** Options of PartLanes. */
export interface PartLanesOptions extends LaneOptions {
  readonly partsAtOnce: number;
}

/**
 * Parts of one partition that are answered side by side: the next one is decided while those before it wait for their replies to be
 * acknowledged. Each is retried by itself. They are begun in order, and so decided in order, unless one is retried.
 *
 * They take the lanes in turn, so none is begun while one `partsAtOnce` places before it is in progress. That bounds what is answered but
 * can't be committed, because an earlier part is stuck.
 */
export class PartLanes {
  readonly #lanes: readonly RetryingLane[];
  /** The part in progress in each lane. */
  readonly #parts: (Promise<void> | undefined)[] = [];
  /** The number of parts begun. */
  #begun = 0;

  constructor(options: PartLanesOptions) {
    this.#lanes = Array.from({ length: options.partsAtOnce }, () => new RetryingLane(options));
  }

  /** Resolves when no part is in progress, or the session has ended. */
  get idle(): Promise<unknown> {
    return Promise.all(this.#parts);
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
    const { length } = this.#lanes;
    const at = this.#begun % length;
    if (this.#parts[at] !== undefined) throw new RangeError(`${length} parts are in progress`);
    this.#begun += 1;
    this.#parts[at] = this.#finish(at, answer);
    await this.#parts[this.#begun % length];
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
