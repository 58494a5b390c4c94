import type { Runtime } from '../../src/async/runtime.ts';
import type { Clockwork } from '../support/fake-kafka/clockwork.ts';
import type { Machine, Process } from './machine.ts';
import type { Rng } from './rng.ts';
import { START_MS } from './setting.ts';
import type { World } from './world.ts';

/** The runtime of a process: its machine's clocks, timers that fire while it runs, and random numbers from the seed. */
export function runtimeOf(world: World, machine: Machine, process: Process): Runtime {
  return {
    monotonicMs: () => machine.read().mono,
    wallMs: () => machine.read().wall,
    schedule: (delayMs, run) => cancellable(process.after(timerMs(delayMs), run)),
    sleep: (delayMs, signal) => process.sleep(timerMs(delayMs), signal),
    busyMs: () => 0, // code takes no time
    nextTurn: () => new Promise((resolve) => process.after(0, resolve)),
    random: world.rng.next,
    uuid: () => uuidFrom(world.rng),
  };
}

/** The true time, for servers. */
export function serverClock(world: World): Clockwork {
  return {
    monotonicMs: () => world.nowMs,
    wallMs: () => START_MS + world.nowMs,
    schedule: (delayMs, run) => cancellable(world.after(delayMs, run)),
    random: world.rng.next,
  };
}

/** Node's timers truncate to whole milliseconds, so they may fire too early, but never immediately. */
function timerMs(delayMs: number): number {
  return Math.max(1, Math.trunc(delayMs));
}

function cancellable(timer: { cancelled: boolean }): { cancel(): void } {
  return {
    cancel: () => {
      timer.cancelled = true;
    },
  };
}

/** A UUID of version 4. */
function uuidFrom(rng: Rng): string {
  const digits = (count: number): string =>
    rng
      .below(16 ** count)
      .toString(16)
      .padStart(count, '0');
  return `${digits(8)}-${digits(4)}-4${digits(3)}-8${digits(3)}-${digits(6)}${digits(6)}`;
}
