import type { Runtime, Timer } from '../core/runtime.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Demand } from './demand.ts';
import { type Answer, RequestRefused } from './requester.ts';
import type { IdStock } from './stock.ts';

export interface RefillOptions {
  readonly stock: IdStock;
  readonly demand: Demand;
  readonly runtime: Runtime;
  /** Most IDs to ask for in one request. */
  readonly maxCount: number;
  /** Asks for so many until they come or are refused. */
  readonly ask: (count: number) => Promise<Answer>;
  /** IDs that are waited for: to be given out at once, and to be in the buffer. */
  readonly waitedFor: () => { readonly taken: number; readonly buffered: number };
  /** Called with each batch, when it is in the stock. */
  readonly onBatch: (answer: Answer, count: number) => void;
  /** Called when the workers refuse what a smaller request would not mend. */
  readonly onRefused: (error: IdallocError) => void;
  readonly onFault: (error: Error) => void;
}

/** Requests under way at once. */
const MAX_ORDERS = 8;
const LOOK_EVERY_MS = 500;
const MIN_REST_MS = 1_000;
const MAX_REST_MS = 30_000;

/**
 * Keeps the stock filled: asks for more at the low-water mark, which it moves as the demand changes.
 *
 * looking: compares the stock with the mark, twice a second and when told;  resting: the workers refused, it asks again later
 */
export class Refill {
  readonly #options: RefillOptions;
  #maxCount: number;
  #orders = 0;
  /** IDs under way. */
  #ordered = 0;
  #restMs = MIN_REST_MS;
  #resting = false;
  #due = false;
  #stopped = false;
  #nextLook: Timer | undefined;
  #rest: Timer | undefined;

  constructor(options: RefillOptions) {
    this.#options = options;
    this.#maxCount = options.maxCount;
  }

  start(): void {
    const { stock, runtime } = this.#options;
    stock.dropOld();
    this.#look();
    this.#nextLook = runtime.schedule(LOOK_EVERY_MS, () => this.start());
  }

  stop(): void {
    this.#stopped = true;
    this.#nextLook?.cancel();
    this.#rest?.cancel();
  }

  /** Looks soon, outside of the caller's path. */
  look(): void {
    if (this.#due) return;
    this.#due = true;
    queueMicrotask(() => {
      this.#due = false;
      this.#look();
    });
  }

  #look(): void {
    const { stock, demand, runtime, waitedFor } = this.#options;
    demand.note(runtime.monotonicMs(), stock.taken);
    stock.setLow(demand.low);
    const { taken, buffered } = waitedFor();
    while (!this.#stopped && !this.#resting && this.#orders < MAX_ORDERS) {
      const left = stock.size + this.#ordered - taken;
      if (left > demand.low && left >= buffered) return;
      void this.#order(Math.min(this.#maxCount, Math.max(demand.full, buffered) - left));
    }
  }

  async #order(count: number): Promise<void> {
    const { stock, demand, ask, onBatch } = this.#options;
    this.#orders += 1;
    this.#ordered += count;
    try {
      const answer = await ask(count);
      const { ranges, step } = answer.batch;
      this.#restMs = MIN_REST_MS;
      demand.replied(answer.latencyMs);
      stock.add({ ranges, step, bornMs: answer.askedMs });
      this.#end(count);
      onBatch(answer, count);
    } catch (error) {
      this.#end(count);
      this.#failed(error, count);
    }
    this.#look();
  }

  #end(count: number): void {
    this.#orders -= 1;
    this.#ordered -= count;
  }

  #failed(error: unknown, count: number): void {
    if (this.#stopped) return;
    const { runtime, onRefused, onFault } = this.#options;
    if (error instanceof RequestRefused && error.code === 'INVALID_COUNT' && count > 1) {
      // The workers' MAX_COUNT is theirs to choose, and only they know it.
      this.#maxCount = Math.min(this.#maxCount, Math.floor(count / 2));
      onFault(error);
      return;
    }
    if (!this.#resting) {
      this.#resting = true;
      this.#rest = runtime.schedule(this.#restMs, () => {
        this.#resting = false;
        this.#look();
      });
      this.#restMs = Math.min(MAX_REST_MS, 2 * this.#restMs);
    }
    const refusal = error instanceof IdallocError ? error : new IdallocError('REFUSED', describeError(error));
    onFault(refusal);
    onRefused(refusal);
  }
}
