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

/** A timer that fires later than this after its time shows that the event loop stood still. */
const LATE_MS = 20;
/** What came meanwhile is read in at least this time; a limit is extended by at most so much in all. */
const GRACE_MS = { least: 100, most: 2_000 };

/**
 * Calls `over` after `limitMs`. If the event loop stood still by then, as in a process that was suspended, what is
 * awaited may have come without being read: then the limit is extended by as long as the loop was late.
 */
export function timeLimit(
  runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>,
  limitMs: number,
  over: () => void,
): Timer {
  let graceMs = GRACE_MS.most;
  let timer: Timer;
  const endAfter = (delayMs: number): void => {
    const dueMs = runtime.monotonicMs() + delayMs;
    timer = runtime.schedule(delayMs, () => {
      const lateMs = runtime.monotonicMs() - dueMs;
      if (lateMs <= LATE_MS || graceMs <= 0) return over();
      const moreMs = Math.min(Math.max(lateMs, GRACE_MS.least), graceMs);
      graceMs -= moreMs;
      endAfter(moreMs);
    });
  };
  endAfter(limitMs);
  return { cancel: () => timer.cancel() };
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
