import type { Runtime } from '../core/runtime.ts';
import { IdallocError } from '../errors.ts';

export interface WaitOptions {
  /** Ends the wait with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  readonly timeoutMs: number;
  /** What the wait ends with when its time is up. */
  readonly late: () => Error;
}

export interface Caller<T> {
  readonly resolve: (value: T) => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * One caller that waits, until it is settled, its time is up or its signal is aborted; whatever comes first counts. `begin`
 * lets it wait and gives back what ends that; it must not settle the caller before it returns.
 */
export function wait<T>(
  runtime: Runtime,
  { signal, timeoutMs, late }: WaitOptions,
  begin: (caller: Caller<T>) => () => void,
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
    const caller: Caller<T> = { resolve: settling(resolve), reject: settling(reject) };
    if (signal !== undefined) {
      const aborted = () => caller.reject(signal.reason);
      signal.addEventListener('abort', aborted); // throws for what is no signal, while nothing has begun yet
      undo.push(() => signal.removeEventListener('abort', aborted));
    }
    try {
      undo.push(begin(caller));
    } catch (error) {
      caller.reject(error);
      return;
    }
    if (!Number.isFinite(timeoutMs)) return;
    const timer = runtime.schedule(timeoutMs, () => caller.reject(late()));
    undo.push(() => timer.cancel());
  });
}

interface Waiter {
  readonly count: number;
  readonly caller: Caller<readonly bigint[]>;
}

/** Callers that wait until there are as many IDs as each needs. Its length is bounded. */
export class WaitingQueue {
  readonly #maxWaiting: number;
  readonly #order: 'in turn' | 'any';
  readonly #waiters = new Set<Waiter>();
  #serving = false;

  /** in turn: first come, first served;  any: whoever can be served, is. */
  constructor(maxWaiting: number, order: 'in turn' | 'any') {
    this.#maxWaiting = maxWaiting;
    this.#order = order;
  }

  get isEmpty(): boolean {
    return this.#waiters.size === 0;
  }

  /** How many IDs are needed to serve all: each its own when they are served in turn. */
  get needed(): number {
    let needed = 0;
    for (const { count } of this.#waiters) needed = this.#order === 'any' ? Math.max(needed, count) : needed + count;
    return needed;
  }

  /** Puts a caller at the end; the result takes it out again. Throws IdallocError QUEUE_FULL. */
  join(count: number, caller: Caller<readonly bigint[]>): () => void {
    if (this.#waiters.size >= this.#maxWaiting) {
      throw new IdallocError('QUEUE_FULL', `${this.#maxWaiting} callers wait for IDs already: see maxWaiting`);
    }
    const waiter: Waiter = { count, caller };
    this.#waiters.add(waiter);
    return () => this.#waiters.delete(waiter);
  }

  /** Serves all that there is enough for. Who is served leaves, which may call this again: once is enough. */
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
