import { Backoff } from '../async/backoff.ts';
import { inMicrotask } from '../async/microtask.ts';
import type { Runtime, Timer } from '../async/runtime.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Demand } from './demand.ts';
import { RequestRefused } from './refusals.ts';
import type { BatchReply } from './requester.ts';
import type { IdStock } from './stock.ts';

export interface RefillOptions {
  readonly stock: IdStock;
  readonly demand: Demand;
  readonly runtime: Runtime;
  /** Maximum count of one request. */
  readonly maxCount: number;
  /** Requests `count` IDs, retrying until the workers answer. */
  readonly request: (count: number) => Promise<BatchReply>;
  /** IDs that callers wait for: to take them, and to have them in the buffer. */
  readonly needed: () => { readonly taken: number; readonly buffered: number };
  /** Called with each batch after it was added to the stock. */
  readonly onBatch: (reply: BatchReply, count: number) => void;
  /** Called when the workers reject a request for a reason other than its count. */
  readonly onRejected: (error: IdallocError) => void;
  readonly onError: (error: Error) => void;
}

/** Maximum number of concurrent requests. */
const MAX_REQUESTS = 8;
const CHECK_EVERY_MS = 500;

/**
 * Keeps the stock filled: requests more at the low-water mark, which follows the demand.
 *
 *   check:   compare the stock with the mark, twice a second and on demand
 *   backoff: no requests for a while after the workers rejected one
 */
export class Refill {
  readonly #options: RefillOptions;
  #maxCount: number;
  #requests = 0;
  /** IDs in requests in progress. */
  #requestedIds = 0;
  readonly #backoff = new Backoff({ minMs: 1_000, maxMs: 30_000 });
  #isBackingOff = false;
  #isCheckDue = false;
  #stopped = false;
  #checkTimer: Timer | undefined;
  #backoffTimer: Timer | undefined;

  constructor(options: RefillOptions) {
    this.#options = options;
    this.#maxCount = options.maxCount;
  }

  start(): void {
    const { stock, runtime } = this.#options;
    stock.dropOld();
    this.#check();
    this.#checkTimer = runtime.schedule(CHECK_EVERY_MS, () => this.start());
  }

  stop(): void {
    this.#stopped = true;
    this.#checkTimer?.cancel();
    this.#backoffTimer?.cancel();
  }

  /** Checks in a microtask, to keep it out of the caller's call stack. */
  check(): void {
    if (this.#isCheckDue) return;
    this.#isCheckDue = true;
    inMicrotask(() => {
      this.#isCheckDue = false;
      this.#check();
    });
  }

  #check(): void {
    const { stock, demand, runtime, needed } = this.#options;
    demand.note(runtime.monotonicMs(), stock.taken);
    stock.setLow(demand.low);
    const { taken, buffered } = needed();
    while (!this.#stopped && !this.#isBackingOff && this.#requests < MAX_REQUESTS) {
      const left = stock.size + this.#requestedIds - taken;
      if (left > demand.low && left >= buffered) return;
      void this.#request(Math.min(this.#maxCount, Math.max(demand.full, buffered) - left));
    }
  }

  async #request(count: number): Promise<void> {
    const { stock, demand, request, onBatch } = this.#options;
    this.#requests += 1;
    this.#requestedIds += count;
    try {
      const reply = await request(count);
      const { ranges, step } = reply.batch;
      this.#backoff.reset();
      demand.replied(reply.latencyMs);
      stock.add({ ranges, step, requestedAtMs: reply.sentAtMs });
      this.#end(count);
      onBatch(reply, count);
    } catch (error) {
      this.#end(count);
      this.#failed(error, count);
    }
    this.#check();
  }

  #end(count: number): void {
    this.#requests -= 1;
    this.#requestedIds -= count;
  }

  #failed(error: unknown, count: number): void {
    if (this.#stopped) return;
    const { runtime, onRejected, onError } = this.#options;
    if (error instanceof RequestRefused && error.code === 'INVALID_COUNT' && count > 1) {
      // Only the workers know their MAX_COUNT.
      this.#maxCount = Math.min(this.#maxCount, Math.floor(count / 2));
      onError(error);
      return;
    }
    if (!this.#isBackingOff) {
      this.#isBackingOff = true;
      this.#backoffTimer = runtime.schedule(this.#backoff.nextMs(), () => {
        this.#isBackingOff = false;
        this.#check();
      });
    }
    const rejection = error instanceof IdallocError ? error : new IdallocError('REFUSED', describeError(error));
    onError(rejection);
    onRejected(rejection);
  }
}
