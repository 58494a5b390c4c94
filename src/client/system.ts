import { randomUUID } from 'node:crypto';

/** Time and chance, as the client gets them. */
export interface System {
  readonly monotonicMs: () => number;
  /** Runs once after the delay, without keeping the process alive; the result takes it back. */
  readonly schedule: (delayMs: number, run: () => void) => () => void;
  /** Never the same twice, anywhere. */
  readonly newCorrelationId: () => string;
  /** In [0, 1). */
  readonly random: () => number;
}

export const SYSTEM: System = {
  monotonicMs: () => performance.now(),
  schedule: (delayMs, run) => {
    const timer = setTimeout(run, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  },
  newCorrelationId: randomUUID,
  random: Math.random,
};
