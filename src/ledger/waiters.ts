import type { Runtime } from '../async/runtime.ts';
import { IdallocError } from '../errors.ts';

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** How long a caller waits for the reader. */
const REACH_TIMEOUT_MS = 10_000;

/** Callers that wait until a log has been read up to an offset. */
export class Waiters {
  readonly #waiting = new Set<Waiter>();

  /**
   * Resolves when everything below `offset` was read; rejects when reading fails first, or after 10 s with what was
   * read.
   */
  wait(offset: number, runtime: Pick<Runtime, 'schedule'>, wasRead: () => string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const waiter = { offset, resolve, reject };
    this.#waiting.add(waiter);
    const timer = runtime.schedule(REACH_TIMEOUT_MS, () => {
      const message = `${wasRead()}, not ${offset}, within ${REACH_TIMEOUT_MS} ms`;
      reject(new IdallocError('INDEX_RESTORING', message));
    });
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
