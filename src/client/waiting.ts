import type { Runtime } from '../async/runtime.ts';
import { timeLimit } from '../async/waiting.ts';

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
 * Waits until the caller is settled, the timeout expires or the signal is aborted. `begin` registers the caller and
 * returns a function that removes it again; it must not settle the caller before it returns.
 *
 * The timeout is a `timeLimit`: a standstill of the event loop extends it. So callers whose timeouts expire together,
 * whose errors take time, also let other work go between.
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
    const timer = timeLimit(runtime, timeoutMs, () => caller.reject(timeoutError()));
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
