import type { Runtime, Timer } from '../async/runtime.ts';

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

/** A timer that fires later than this after its time shows that the event loop stood still. */
const LATE_MS = 20;
/** What came meanwhile is read in at least this time; a timeout is extended by at most so much in all. */
const GRACE_MS = { least: 100, most: 2_000 };

/**
 * Waits until the caller is settled, the timeout expires or the signal is aborted. `begin` registers the caller and
 * returns a function that removes it again; it must not settle the caller before it returns.
 *
 * If the event loop stood still when the timeout expired, the result may have come without being read: then the wait
 * goes on for as long as the loop was late. So callers whose timeouts expire together, whose errors take time, also let
 * other work go between.
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
    let graceMs = GRACE_MS.most;
    let timer: Timer;
    const endAfter = (delayMs: number) => {
      const dueMs = runtime.monotonicMs() + delayMs;
      timer = runtime.schedule(delayMs, () => {
        const lateMs = runtime.monotonicMs() - dueMs;
        if (lateMs <= LATE_MS || graceMs <= 0) return caller.reject(timeoutError());
        const moreMs = Math.min(Math.max(lateMs, GRACE_MS.least), graceMs);
        graceMs -= moreMs;
        endAfter(moreMs);
      });
    };
    endAfter(timeoutMs);
    undo.push(() => timer.cancel());
  });
}

/** The longest time that one slice may block the event loop. */
const SLICE_MS = 5;

/**
 * Handles each item, with turns of the event loop between. The first slice is handled at once. Errors take time: the
 * stacks of 10,000 would block the loop for a few hundred milliseconds.
 */
export async function inSlices<T>(
  items: readonly T[],
  runtime: Pick<Runtime, 'monotonicMs' | 'nextTurn'>,
  handle: (item: T) => void,
): Promise<void> {
  let beganMs = runtime.monotonicMs();
  for (const item of items) {
    handle(item);
    if (runtime.monotonicMs() - beganMs < SLICE_MS) continue;
    await runtime.nextTurn();
    beganMs = runtime.monotonicMs();
  }
}
