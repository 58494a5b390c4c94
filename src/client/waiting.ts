import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';

export interface WaitOptions {
  /** Aborts the wait with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs: number;
  /** The error on timeout. */
  readonly timeoutError: () => Error;
}

export interface WaitingCaller<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * Waits until the caller is settled, the timeout expires or the signal is aborted. `begin` registers the caller and returns
 * a function that removes it again; it must not settle the caller before it returns.
 */
export function wait<T>(
  runtime: Runtime,
  { signal, timeoutMs, timeoutError }: WaitOptions,
  begin: (caller: WaitingCaller<T>) => () => void,
): Promise<T> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason);
      return;
    }
    const undo: (() => void)[] = [];
    const settling =
      <V>(use: (value: V) => void) =>
      (value: V) => {
        for (const back of undo) back();
        use(value);
      };
    const caller: WaitingCaller<T> = { resolve: settling(resolve), reject: settling(reject) };
    if (signal !== undefined) {
      const aborted = () => caller.reject(signal.reason);
      signal.addEventListener('abort', aborted); // throws for an invalid signal, before anything has started
      undo.push(() => signal.removeEventListener('abort', aborted));
    }
    try {
      undo.push(begin(caller));
    } catch (error) {
      caller.reject(error);
      return;
    }
    if (!Number.isFinite(timeoutMs)) return;
    const timer = runtime.schedule(timeoutMs, () => caller.reject(timeoutError()));
    undo.push(() => timer.cancel());
  });
}

interface Waiter {
  readonly count: number;
  readonly caller: WaitingCaller<readonly bigint[]>;
}

/** A bounded queue of callers, each waiting for a number of IDs. */
export class WaitingQueue {
  readonly #maxWaiting: number;
  readonly #order: 'in turn' | 'any';
  readonly #waiters = new Set<Waiter>();
  #serving = false;

  /** in turn: first come, first served;  any: every caller for which there is enough. */
  constructor(maxWaiting: number, order: 'in turn' | 'any') {
    this.#maxWaiting = maxWaiting;
    this.#order = order;
  }

  get isEmpty(): boolean {
    return this.#waiters.size === 0;
  }

  get size(): number {
    return this.#waiters.size;
  }

  /** IDs needed to serve all callers: the sum in turn, otherwise the maximum. */
  get needed(): number {
    let needed = 0;
    for (const { count } of this.#waiters) needed = this.#order === 'any' ? Math.max(needed, count) : needed + count;
    return needed;
  }

  /** Adds a caller at the end; the returned function removes it. Throws IdallocError QUEUE_FULL. */
  join(count: number, caller: WaitingCaller<readonly bigint[]>): () => void {
    if (this.#waiters.size >= this.#maxWaiting) {
      throw new IdallocError('QUEUE_FULL', `${this.#maxWaiting} callers are waiting for IDs: see maxWaiting`);
    }
    const waiter: Waiter = { count, caller };
    this.#waiters.add(waiter);
    return () => this.#waiters.delete(waiter);
  }

  /** Serves all callers for which there is enough. A served caller leaves the queue, which may call this again: ignored. */
  serve(size: () => number, take: (count: number) => readonly bigint[]): void {
    if (this.#serving) return;
    this.#serving = true;
    for (const { count, caller } of this.#waiters) {
      if (size() >= count) caller.resolve(take(count));
      else if (this.#order === 'in turn') break;
    }
    this.#serving = false;
  }

  rejectAll(reason: Error): void {
    for (const { caller } of this.#waiters) caller.reject(reason);
  }
}
