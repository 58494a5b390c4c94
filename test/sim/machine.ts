import { monoMs, type Reading, wallMs } from '../../src/core/units.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { START_MS } from './setting.ts';
import type { Happening, World } from './world.ts';

/** A host: its clocks and its disk outlive the processes on it. */
export class Machine {
  readonly #world: World;
  readonly name: string;
  /** What the wall clock is off by. */
  stepMs = 0;
  /** How long the machine slept: its monotonic clock did not count that. */
  sleptMs = 0;
  disk = new MemoryIndex();
  #started = 0;

  constructor(world: World, name: string) {
    this.#world = world;
    this.name = name;
  }

  readonly read = (): Reading => ({
    wall: wallMs(Math.floor(START_MS + this.#world.nowMs + this.stepMs)),
    mono: monoMs(1_000 + this.#world.nowMs - this.sleptMs),
  });

  loseDisk(): void {
    this.disk = new MemoryIndex();
  }

  start(): Process {
    this.#started += 1;
    return new Process(this.#world, `${this.name}.${this.#started}`);
  }
}

/**
 * One process. It learns of the world only by what is delivered to it: a frozen one gets it all later, and a dead one
 * never, so that its code stays where it was waiting.
 */
export class Process {
  readonly #world: World;
  readonly name: string;
  /** Links that carry nothing, either way. */
  readonly cut = new Set<string>();
  #state: 'running' | 'frozen' | 'dead' = 'running';
  #inbox: Array<() => void> = [];

  constructor(world: World, name: string) {
    this.#world = world;
    this.name = name;
  }

  get dead(): boolean {
    return this.#state === 'dead';
  }

  get running(): boolean {
    return this.#state === 'running';
  }

  deliver(run: () => void): void {
    if (this.#state === 'running') run();
    else if (this.#state === 'frozen') this.#inbox.push(run);
  }

  after(delayMs: number, run: () => void): Happening {
    return this.#world.after(delayMs, () => this.deliver(run));
  }

  /** Resolves after so many milliseconds, or at once when the signal aborts. */
  readonly sleep = (delayMs: number, signal?: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const end = (): void => {
        timer.cancelled = true;
        signal?.removeEventListener('abort', end);
        resolve();
      };
      const timer = this.after(delayMs, end);
      signal?.addEventListener('abort', end);
    });

  crash(): void {
    this.#state = 'dead';
    this.#inbox = [];
  }

  freeze(): void {
    if (this.#state === 'running') this.#state = 'frozen';
  }

  /** Goes on where it was; what came meanwhile comes now, in any order. */
  thaw(): void {
    if (this.#state !== 'frozen') return;
    this.#state = 'running';
    for (const run of this.#inbox.splice(0)) this.after(this.#world.rng.between(0, 5), run);
  }
}
