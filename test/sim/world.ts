import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import type { Layout } from '../../src/core/layout.ts';
import { Rng } from './rng.ts';
import { hasSequences, layoutOf } from './setting.ts';

/** A scheduled event, which can be cancelled. */
export interface Happening {
  readonly atMs: number;
  cancelled: boolean;
}

interface Event extends Happening {
  readonly order: number;
  readonly run: () => void;
}

/**
 * Time, randomness and order of one simulation. Events run one at a time; before the next one, all code that the last
 * one woke has run until it waits again. So the order of everything observable is decided here.
 */
export class World {
  readonly seed: number;
  readonly rng: Rng;
  /** The layout of all workers. */
  readonly layout: Layout;
  /** Whether clients want numbers of sequences. */
  hasSequences: boolean;
  /** Whether workers that start are configured with a low limit of counts. */
  isCountLow = false;
  readonly trace: string[] | undefined;
  nowMs = 0;
  events = 0;
  #order = 0;
  readonly #queue: Event[] = [];

  constructor(seed: number, traced: boolean) {
    this.seed = seed;
    this.rng = new Rng(seed);
    this.layout = layoutOf(seed);
    this.hasSequences = hasSequences(seed);
    this.trace = traced ? [] : undefined;
  }

  /** Runs a function after a virtual delay; of two events at the same time, the one scheduled first runs first. */
  after(delayMs: number, run: () => void): Happening {
    const event: Event = { atMs: this.nowMs + Math.max(0, delayMs), order: this.tick(), run, cancelled: false };
    let at = this.#queue.push(event) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (!before(event, this.#at(parent))) break;
      this.#queue[at] = this.#at(parent);
      at = parent;
    }
    this.#queue[at] = event;
    return event;
  }

  /** Numbers all recorded events, so that the checker knows their order. */
  tick(): number {
    this.#order += 1;
    return this.#order;
  }

  /** A line of the trace, only formatted when it is read. */
  note(line: () => string): void {
    this.trace?.push(`${this.nowMs.toFixed(3).padStart(10)} ${line()}`);
  }

  /** Lets events happen until `over` says so, or until the virtual time is up; false when it is. */
  async run(untilMs: number, over: () => boolean): Promise<boolean> {
    for (;;) {
      if (over()) return true;
      const next = this.#queue[0];
      if (next === undefined || next.atMs > untilMs) return false;
      const event = this.#pop();
      if (event.cancelled) continue;
      this.nowMs = event.atMs;
      this.events += 1;
      event.run();
      await settled();
    }
  }

  #pop(): Event {
    const top = this.#at(0);
    const moved = this.#queue.pop() as Event;
    if (moved === top) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= this.#queue.length) break;
      if (child + 1 < this.#queue.length && before(this.#at(child + 1), this.#at(child))) child += 1;
      if (!before(this.#at(child), moved)) break;
      this.#queue[at] = this.#at(child);
      at = child;
    }
    this.#queue[at] = moved;
    return top;
  }

  #at(index: number): Event {
    return this.#queue[index] as Event;
  }
}

function before(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

/** Resolves when no promise can make progress: Node runs its tick queue after the last microtask. */
function settled(): Promise<void> {
  return new Promise((resolve) => process.nextTick(resolve));
}

/** Like AbortSignal.any, whose signals Node never frees while something waits for them, as killed processes do. */
function anyOf(signals: readonly AbortSignal[]): AbortSignal {
  const any = new AbortController();
  for (const signal of signals) {
    if (signal.aborted) any.abort(signal.reason);
    else signal.addEventListener('abort', () => any.abort(signal.reason), { once: true });
  }
  return any.signal;
}

/**
 * Runs with the real clocks and the real randomness disabled, so that a run can't depend on them unnoticed. A
 * simulation throws hundreds of errors: their stack traces, which take time, are cut to the given length.
 */
export async function sealed<T>(run: () => Promise<T>, stackTraceLimit: number): Promise<T> {
  const stackTraces = Error.stackTraceLimit;
  // biome-ignore-start lint/plugin: kept to be put back
  const { randomBytes, randomFillSync, randomInt, randomUUID } = crypto;
  const drawing = { randomBytes, randomFillSync, randomInt, randomUUID };
  const real = {
    any: AbortSignal.any,
    random: Math.random,
    now: Date.now,
    performanceNow: performance.now,
    setTimeout,
    setInterval,
  };
  // biome-ignore-end lint/plugin: as above
  const refuse = (): never => {
    throw new Error(
      'code in the simulation used the real clock, timers or randomness: pass it the runtime of its process',
    );
  };
  Object.assign(globalThis, { setTimeout: refuse, setInterval: refuse });
  Object.assign(AbortSignal, { any: anyOf });
  Object.assign(Math, { random: refuse });
  Object.assign(Date, { now: refuse });
  Object.assign(performance, { now: refuse });
  Object.assign(crypto, Object.fromEntries(Object.keys(drawing).map((name) => [name, refuse])));
  syncBuiltinESMExports();
  Error.stackTraceLimit = stackTraceLimit;
  try {
    return await run();
  } finally {
    Error.stackTraceLimit = stackTraces;
    Object.assign(globalThis, { setTimeout: real.setTimeout, setInterval: real.setInterval });
    Object.assign(AbortSignal, { any: real.any });
    Object.assign(Math, { random: real.random });
    Object.assign(Date, { now: real.now });
    Object.assign(performance, { now: real.performanceNow });
    Object.assign(crypto, drawing);
    syncBuiltinESMExports();
  }
}
