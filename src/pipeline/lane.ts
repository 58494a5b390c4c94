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
