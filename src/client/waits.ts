import type { Runtime } from '../async/runtime.ts';
import type { IdallocError } from '../errors.ts';
import type { WaitForIds } from './calls.ts';
import { noBuffer, reservedForWaiting, tooFewIds } from './refusals.ts';
import type { IdStock } from './stock.ts';
import { WaitingQueue, wait } from './waiting.ts';

export interface WaitsOptions {
  readonly stock: IdStock;
  readonly runtime: Runtime;
  readonly maxWaiting: number;
  readonly timeoutMs: number;
  readonly prefetch: boolean;
  /** Requests IDs if those that callers wait for are not on their way. */
  readonly check: () => void;
  /** Whether a reply to any request has come since then (monotonic ms). */
  readonly hasRepliedSince: (sinceMs: number) => boolean;
}

/** The callers that wait for IDs of the stock: those that take them, and those that want them to be there. */
export class Waits {
  readonly #options: WaitsOptions;
  readonly #takers: WaitingQueue;
  readonly #watchers: WaitingQueue;
  #closed: IdallocError | undefined;

  constructor(options: WaitsOptions) {
    this.#options = options;
    this.#takers = new WaitingQueue(options.maxWaiting, 'in turn');
    this.#watchers = new WaitingQueue(options.maxWaiting, 'any');
  }

  /** IDs needed to serve all callers. */
  get needed(): { readonly taken: number; readonly buffered: number } {
    return { taken: this.#takers.needed, buffered: this.#watchers.needed };
  }

  get size(): number {
    return this.#takers.size + this.#watchers.size;
  }

  get hasTakers(): boolean {
    return !this.#takers.isEmpty;
  }

  /** The next `count` IDs, in turn. Rejects as IdClient.takeAsync. */
  take(count: number, options: WaitForIds): Promise<readonly bigint[]> {
    return this.#wait(this.#takers, count, options);
  }

  /** Resolves when the stock has `count` IDs. Rejects as IdClient.ready. */
  async until(count: number, options: WaitForIds): Promise<void> {
    await this.#wait(this.#watchers, count, options);
  }

  /** Serves the callers for which there is enough. */
  serve(): void {
    if (this.#closed !== undefined) return;
    const { stock } = this.#options;
    this.#takers.serve(
      () => stock.size,
      (count) => stock.takeReserved(count),
    );
    this.#watchers.serve(
      () => stock.size,
      () => [],
    );
    this.#reserve();
  }

  rejectAll(error: IdallocError): void {
    this.#takers.rejectAll(error);
    this.#watchers.rejectAll(error);
  }

  /** Rejects all callers, and further ones. */
  close(reason: IdallocError): void {
    this.#closed = reason;
    this.rejectAll(reason);
  }

  async #wait(queue: WaitingQueue, count: number, { timeoutMs, signal }: WaitForIds): Promise<readonly bigint[]> {
    const { runtime, prefetch, check, hasRepliedSince } = this.#options;
    if (this.#closed !== undefined) throw this.#closed;
    if (!prefetch) throw noBuffer();
    const limitMs = timeoutMs ?? this.#options.timeoutMs;
    const beganMs = runtime.monotonicMs();
    const timeoutError = () => tooFewIds(count, limitMs, hasRepliedSince(beganMs));
    const waited = wait<readonly bigint[]>(runtime, { timeoutMs: limitMs, signal, timeoutError }, (caller) => {
      const leave = queue.join(count, caller);
      this.#reserve();
      return () => {
        leave();
        this.serve();
      };
    });
    check();
    return waited;
  }

  /** While callers wait to take IDs, new ones are reserved for them. */
  #reserve(): void {
    this.#options.stock.withhold(this.#takers.isEmpty ? undefined : reservedForWaiting);
  }
}
