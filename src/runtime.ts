import { randomUUID } from 'node:crypto';
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises';
import type { Runtime } from './async/runtime.ts';

/** This process's own clocks, timers and randomness. */
export const RUNTIME: Runtime = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  schedule: (delayMs, run) => {
    const timer = setTimeout(run, Math.max(0, delayMs));
    return { cancel: () => clearTimeout(timer) };
  },
  sleep: async (delayMs, signal) => {
    await delay(Math.max(0, delayMs), undefined, signal ? { signal } : {}).catch((error: unknown) => {
      if (!signal?.aborted) throw error;
    });
  },
  busyMs: () => performance.eventLoopUtilization().active,
  nextTurn: () => nextTurn(),
  random: Math.random,
  uuid: randomUUID,
};
