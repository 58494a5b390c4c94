import type { Runtime } from '../async/runtime.ts';

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** Callers that wait until a log has been read up to an offset. */
export class Waiters {
  readonly #waiting = new Set<Waiter>();

  /** Resolves when everything below `offset` was read; rejects when reading fails first, or with `late()` after `limitMs`. */
  wait(offset: number, runtime: Pick<Runtime, 'schedule'>, limitMs: number, late: () => Error): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter = { offset, resolve, reject };
    this.#waiting.add(waiter);
    const timer = runtime.schedule(limitMs, () => reject(late()));
    return promise.finally(() => {
      timer.cancel();
      this.#waiting.delete(waiter);
    });
  }

  /** Everything below `end` was read. */
  passed(end: number): void {
    for (const { offset, resolve } of this.#waiting) if (offset <= end) resolve();
  }

  fail(error: Error): void {
    for (const { reject } of this.#waiting) reject(error);
  }
}
