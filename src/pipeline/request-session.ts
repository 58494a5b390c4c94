import type { Runtime, Timer } from '../core/runtime.ts';
import { IdallocError } from '../errors.ts';
import type { BatchControl } from './batch.ts';
import type { RequestRecord } from './ports.ts';

/** Works on records of one partition: resolves parts as they are answered, rejects on a passing fault. */
export type RequestHandler = (
  partition: number,
  records: readonly RequestRecord[],
  control: BatchControl,
) => Promise<void>;

/** Records of one partition in the order of their offsets, as they were read. */
export interface RequestChunk {
  readonly records: readonly RequestRecord[];
  /** Where reading goes on: behind the last record, and behind markers of transactions that follow it. */
  readonly next: number;
}

export interface RequestSessionOptions {
  readonly partition: number;
  readonly handler: RequestHandler;
  readonly runtime: Pick<Runtime, 'schedule'>;
  readonly isOpen: boolean;
  /** Everything below this offset has been answered. */
  readonly onProgress: (next: number) => void;
  /** `lasting`: no waiting fixes it; the session tries again all the same, more slowly. */
  readonly onFault: (error: unknown, lasting: boolean) => void;
}

/** After a fault a partition rests before its requests come again; longer when nothing will pass by itself. */
const REST_MS = { retryable: 200, lasting: 5_000 } as const;

/**
 * One request partition for as long as this worker has it, rebalances that leave it here included.
 *
 *   idle ──deliver──▶ working ──all answered──▶ idle
 *                     working ──fault──▶ resting ──time is up, or the gate opens──▶ working
 *                     working ──gate closed──▶ waiting ──gate opens──▶ working
 *   any  ──end──▶ ended, for good
 *
 * One chunk is in hand at a time, and whoever delivers waits for it. A part that is under way when the gate closes or the
 * session ends comes to its end, since it may be decided already; no further part begins. What was not answered is tried
 * again from memory, so a fault never moves the place of reading.
 */
export class RequestSession {
  readonly #options: RequestSessionOptions;
  #open: boolean;
  #ended = false;
  #next: number | undefined;
  #attempt: Promise<void> | undefined;
  #wake: (() => void) | undefined;

  constructor(options: RequestSessionOptions) {
    this.#options = options;
    this.#open = options.isOpen;
  }

  get partition(): number {
    return this.#options.partition;
  }

  /** The offset to commit: everything below it has been answered. Undefined while nothing was. */
  get next(): number | undefined {
    return this.#next;
  }

  /** Resolves when the parts under way have ended. */
  get settled(): Promise<void> {
    return this.#attempt ?? Promise.resolve();
  }

  /** Resolves when every record has been answered, or the session has ended. */
  async deliver({ records, next }: RequestChunk): Promise<void> {
    for (;;) {
      if (this.#ended) return;
      const left = records.slice(this.#firstDue(records));
      if (left.length === 0) break;
      if (!this.#open) await this.#woken();
      else await this.#serve(left);
    }
    this.#advance(next);
  }

  /** Begins no further part. */
  pause(): void {
    this.#open = false;
  }

  /** Goes on; what rests after a fault, as after a refusal by the gate, rests no longer. */
  resume(): void {
    if (this.#open) return;
    this.#open = true;
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  async #serve(records: readonly RequestRecord[]): Promise<void> {
    const outcome = this.#try(records);
    this.#attempt = outcome.then(() => undefined);
    const restMs = await outcome;
    this.#attempt = undefined;
    if (restMs > 0 && !this.#ended) await this.#woken(restMs);
  }

  /** How long to rest afterwards: 0 when nothing failed. */
  async #try(records: readonly RequestRecord[]): Promise<number> {
    const { partition, handler, onFault } = this.#options;
    try {
      await handler(partition, records, {
        isCurrent: () => this.#open && !this.#ended,
        resolved: (offset) => this.#advance(offset + 1),
      });
      return 0;
    } catch (error) {
      const lasting = error instanceof IdallocError && !error.retryable;
      onFault(error, lasting);
      return lasting ? REST_MS.lasting : REST_MS.retryable;
    }
  }

  #firstDue(records: readonly RequestRecord[]): number {
    const next = this.#next;
    if (next === undefined) return 0;
    const at = records.findIndex(({ offset }) => offset >= next);
    return at === -1 ? records.length : at;
  }

  #advance(next: number): void {
    if (this.#ended || (this.#next !== undefined && next <= this.#next)) return;
    this.#next = next;
    this.#options.onProgress(next);
  }

  /** Resolves when the session ends or its gate opens, at the latest after the delay. */
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
