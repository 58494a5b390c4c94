import type { Runtime, Timer } from '../core/runtime.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Demand } from './demand.ts';
import { type Answer, RequestRefused } from './requester.ts';
import type { IdStock } from './stock.ts';

export interface RefillOptions {
  readonly stock: IdStock;
  readonly demand: Demand;
  readonly runtime: Runtime;
  /** Maximum count of one request. */
  readonly maxCount: number;
  /** Requests `count` IDs, retrying until the workers answer. */
  readonly ask: (count: number) => Promise<Answer>;
  /** IDs that callers wait for: to take them, and to have them in the buffer. */
  readonly waitedFor: () => { readonly taken: number; readonly buffered: number };
  /** Called with each batch after it was added to the stock. */
  readonly onBatch: (answer: Answer, count: number) => void;
  /** Called when the workers reject a request for a reason other than its count. */
  readonly onRefused: (error: IdallocError) => void;
  readonly onError: (error: Error) => void;
}

/** Maximum number of concurrent requests. */
const MAX_ORDERS = 8;
const LOOK_EVERY_MS = 500;
const MIN_REST_MS = 1_000;
const MAX_REST_MS = 30_000;

/**
 * Keeps the stock filled: requests more at the low-water mark, which follows the demand.
 *
 * look: compare the stock with the mark, twice a second and on demand;  rest: pause after the workers rejected a request
 */
export class Refill {
  readonly #options: RefillOptions;
  #maxCount: number;
  #orders = 0;
  /** IDs in requests in progress. */
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

  /** Looks in a microtask, to keep it out of the caller's call stack. */
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
    const { runtime, onRefused, onError } = this.#options;
    if (error instanceof RequestRefused && error.code === 'INVALID_COUNT' && count > 1) {
      // Only the workers know their MAX_COUNT.
      this.#maxCount = Math.min(this.#maxCount, Math.floor(count / 2));
      onError(error);
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
    onError(refusal);
    onRefused(refusal);
  }
}
