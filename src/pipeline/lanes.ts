import type { Runtime, Timer } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';

export interface LaneOptions {
  readonly runtime: Pick<Runtime, 'schedule'>;
  readonly isOpen: boolean;
  /** `lasting`: waiting won't fix it; the lane retries all the same, more slowly. */
  readonly onError: (error: unknown, lasting: boolean) => void;
}

/** The pause before a lane retries its requests after an error. */
const RETRY_DELAY_MS = { retryable: 200, lasting: 5_000 } as const;

/** Does one piece of work at a time, and retries it until it is done. */
export class RetryingLane {
  readonly #options: LaneOptions;
  #open: boolean;
  #ended = false;
  #attempt: Promise<void> | undefined;
  #wake: (() => void) | undefined;

  constructor(options: LaneOptions) {
    this.#options = options;
    this.#open = options.isOpen;
  }

  get isCurrent(): boolean {
    return this.#open && !this.#ended;
  }

  /** Resolves when the work in progress has ended. */
  get settled(): Promise<void> {
    return this.#attempt ?? Promise.resolve();
  }

  /** Resolves when nothing is due any more, or the session has ended. Must not run twice at the same time. */
  async finish(isDue: () => boolean, work: () => Promise<void>): Promise<void> {
    while (!this.#ended && isDue()) {
      if (!this.#open) await this.#woken();
      else await this.#serve(work);
    }
  }

  /** Starts no further work. */
  pause(): void {
    this.#open = false;
  }

  /** Resumes, and cuts short the pause after an error. */
  resume(): void {
    if (this.#open) return;
    this.#open = true;
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  async #serve(work: () => Promise<void>): Promise<void> {
    const outcome = this.#try(work);
    this.#attempt = outcome.then(() => undefined);
    const delayMs = await outcome;
    this.#attempt = undefined;
    if (delayMs > 0 && !this.#ended) await this.#woken(delayMs);
  }

  /** Returns how long to pause afterwards: 0 when nothing failed. */
  async #try(work: () => Promise<void>): Promise<number> {
    const { onError } = this.#options;
    try {
      await work();
      return 0;
    } catch (error) {
      const lasting = error instanceof IdallocError && !error.retryable;
      onError(error, lasting);
      return lasting ? RETRY_DELAY_MS.lasting : RETRY_DELAY_MS.retryable;
    }
  }

  /** Resolves when the session ends or the gate opens, or after the delay if one is given. */
  #woken(delayMs?: number): Promise<void> {
    return new Promise((resolve) => {
      let timer: Timer | undefined;
      this.#wake = () => {
        timer?.cancel();
        this.#wake = undefined;
        resolve();
      };
      if (delayMs !== undefined) timer = this.#options.runtime.schedule(delayMs, this.#wake);
    });
  }
}

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

/** Up to which offset everything is done, where parts may end in any order. */
export class InOrder {
  readonly #onDone: (through: number) => void;
  /** The parts that have begun and are not done, in the order of their offsets. */
  readonly #parts: { readonly until: number; isDone: boolean; readonly then: (() => void) | undefined }[] = [];

  /** `onDone`: everything below this offset is done. */
  constructor(onDone: (through: number) => void) {
    this.#onDone = onDone;
  }

  /**
   * What comes next, up to but not including an offset. Returns what to call when it is done; `then` is called when all
   * before is, too.
   */
  add(until: number, then?: () => void): () => void {
    const part = { until, isDone: false, then };
    this.#parts.push(part);
    return () => {
      part.isDone = true;
      this.#advance();
    };
  }

  #advance(): void {
    for (let first = this.#parts[0]; first?.isDone === true; first = this.#parts[0]) {
      this.#parts.shift();
      this.#onDone(first.until);
      first.then?.();
    }
  }
}
