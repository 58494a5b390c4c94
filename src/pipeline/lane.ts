import type { Runtime, Timer } from '../core/runtime.ts';
import { IdallocError } from '../errors.ts';
import type { BatchControl } from './batch.ts';
import type { RequestRecord } from './ports.ts';

/** Processes records of one partition: resolves parts as they are answered, rejects on a retryable error. */
export type RequestHandler = (
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
) => Promise<void>;

export interface LaneOptions {
  readonly partition: number;
  readonly handler: RequestHandler;
  readonly runtime: Pick<Runtime, 'schedule'>;
  readonly isOpen: boolean;
  /** `lasting`: waiting won't fix it; the lane retries all the same, more slowly. */
  readonly onError: (error: unknown, lasting: boolean) => void;
}

/** The pause before a lane retries its requests after an error. */
const RETRY_DELAY_MS = { retryable: 200, lasting: 5_000 } as const;

/** Processes requests of a partition one batch at a time, and retries until each is answered. */
export class Lane {
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
  async finish(due: () => readonly RequestRecord[], control: BatchControl): Promise<void> {
    while (!this.#ended) {
      const left = due();
      if (left.length === 0) break;
      if (!this.#open) await this.#woken();
      else await this.#serve(left, control);
    }
  }

  /** Starts no further part. */
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

  async #serve(records: readonly RequestRecord[], control: BatchControl): Promise<void> {
    const outcome = this.#try(records, control);
    this.#attempt = outcome.then(() => undefined);
    const delayMs = await outcome;
    this.#attempt = undefined;
    if (delayMs > 0 && !this.#ended) await this.#woken(delayMs);
  }

  /** Returns how long to pause afterwards: 0 when nothing failed. */
  async #try(records: readonly RequestRecord[], control: BatchControl): Promise<number> {
    const { partition, handler, onError } = this.#options;
    try {
      await handler(partition, records, control);
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
