import type { Runtime, Timer } from './runtime.ts';

/** Repeats the work, each time `pauseMs` after it has ended, until it is disposed. The work handles its own errors. */
export function every(
  runtime: Pick<Runtime, 'schedule'>,
  pauseMs: number,
  work: () => void | Promise<void>,
): Disposable {
  let isOver = false;
  let timer: Timer | undefined;
  const schedule = (): void => {
    timer = runtime.schedule(pauseMs, () => void run());
  };
  const run = async (): Promise<void> => {
    await work();
    if (!isOver) schedule();
  };
  schedule();
  return {
    [Symbol.dispose]: () => {
      isOver = true;
      timer?.cancel();
    },
  };
}

/**
 * Settles as the work does, or resolves to undefined once `limitMs` have passed. The signal that the work gets aborts
 * in both cases, so that what it left open ends.
 */
export async function atMost<T>(
  runtime: Pick<Runtime, 'sleep'>,
  limitMs: number,
  work: (over: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const over = new AbortController();
  try {
    return await Promise.race([work(over.signal), runtime.sleep(limitMs, over.signal).then(() => undefined)]);
  } finally {
    over.abort();
  }
}

/** Resolves when the signal aborts, or immediately if it already has. */
export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/**
 * Runs a function in a microtask of its own. Test runners that fake timers, as Jest does, hold up those of
 * queueMicrotask.
 */
export function inMicrotask(run: () => void): void {
  void Promise.resolve().then(run);
}
