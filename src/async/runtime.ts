/**
 * Time, randomness and turns of the event loop for everything that waits: real ones in a process, virtual ones in the
 * simulator.
 */
export interface Runtime {
  /** Milliseconds by a clock that never steps; its origin means nothing. All deadlines use it. */
  monotonicMs(): number;
  /** Milliseconds since 1970 by the system's clock, which can step either way. */
  wallMs(): number;
  /** Runs once after the delay (monotonic), unless cancelled before. */
  schedule(delayMs: number, run: () => void): Timer;
  /** Resolves after the delay, or as soon as the signal aborts, whichever is first; never rejects. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /** Milliseconds for which the event loop did not wait for events; the origin means nothing. */
  busyMs(): number;
  /** Resolves in a later turn of the event loop, after pending I/O was processed. */
  nextTurn(): Promise<void>;
  /** In [0, 1). */
  random(): number;
  /** A random UUID (version 4), never the same twice. */
  uuid(): string;
}

export interface Timer {
  /** Does nothing once the timer has fired. */
  cancel(): void;
}
