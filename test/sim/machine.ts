import { MAX_PAUSE_MS } from '../../src/core/clock-guard.ts';
import { elapsedMs, monoMs, type Reading, wallMs } from '../../src/core/units.ts';
import { type Disk, MemoryDisk } from './disk.ts';
import { FIRST, type Pair } from './pairs.ts';
import { POOL, START_MS } from './setting.ts';
import type { Happening, World } from './world.ts';

/** A process may not notice a shorter pause. */
const LONG_MS = MAX_PAUSE_MS;

interface Drift {
  readonly rate: number;
  readonly sinceMs: number;
  readonly isOfBoth: boolean;
}

/** A host: its clocks and its disk outlive the processes on it. */
export class Machine implements Disposable {
  readonly #world: World;
  readonly name: string;
  /** The error of the wall clock. */
  stepMs = 0;
  #drift: Drift | undefined;
  /** How long the machine slept: its monotonic clock did not count that. */
  sleptMs = 0;
  disk: Disk;
  /** The pool that its workers are configured with. */
  pool: { readonly first: number; readonly last: number } = POOL;
  pair: Pair = FIRST;
  /** An impossible configuration: the namespace must reject its workers. */
  isStray = false;
  /** Whether one of its workers has found that the namespace has another configuration. */
  isMisfit = false;
  readonly number: number;
  readonly #newDisk: () => Disk;
  readonly #disks: Disk[] = [];
  #started = 0;

  constructor(world: World, name: string, number = 0, newDisk: () => Disk = () => new MemoryDisk()) {
    this.#world = world;
    this.name = name;
    this.number = number;
    this.#newDisk = newDisk;
    this.disk = this.#use(newDisk());
  }

  /** Ends the simulation. Until then, a process that has exited may be in the middle of a turn. */
  [Symbol.dispose](): void {
    for (const disk of this.#disks) disk[Symbol.dispose]();
  }

  readonly read = (): Reading => ({
    wall: wallMs(Math.floor(START_MS + this.#world.nowMs + this.stepMs + this.#gainedMs)),
    mono: monoMs(1_000 + this.#world.nowMs - this.sleptMs + (this.#drift?.isOfBoth ? this.#gainedMs : 0)),
  });

  get #gainedMs(): number {
    const { rate, sinceMs } = this.#drift ?? { rate: 0, sinceMs: 0 };
    return rate * (this.#world.nowMs - sinceMs);
  }

  /** From now on its wall clock gains `rate` in each millisecond, or loses it; with `isOfBoth` both clocks do. */
  drift(rate: number, isOfBoth: boolean): void {
    this.#drift = { rate, sinceMs: this.#world.nowMs, isOfBoth };
  }

  /** Sets the wall clock right, and ends the drift. The monotonic clock goes on from where it is. */
  correct(): void {
    if (this.#drift?.isOfBoth) this.sleptMs -= this.#gainedMs;
    this.#drift = undefined;
    this.stepMs = 0;
  }

  loseDisk(): void {
    this.disk = this.#use(this.#newDisk());
  }

  /** It goes on with another volume. */
  restoreDisk(disk: Disk): void {
    this.disk = this.#use(disk);
  }

  #use(disk: Disk): Disk {
    this.#disks.push(disk);
    return disk;
  }

  start(): Process {
    this.#started += 1;
    return new Process(this.#world, `${this.name}.${this.#started}`, this.read);
  }
}

/**
 * One process. It gets events only through `deliver`: a frozen process gets them later, and a dead one never, so that
 * its code keeps waiting.
 */
export class Process {
  readonly #world: World;
  readonly #read: () => Reading;
  readonly name: string;
  /** Links that carry nothing, either way: etcd, kafka for all brokers, kafka:1 for one of them. */
  readonly cut = new Set<string>();
  /** Until then, what it allocates comes late, as a large batch does. */
  slowUntilMs = 0;
  /** When it last resumed after a long freeze that its clocks show, and how long that was. */
  thawed: { readonly atMs: number; readonly afterMs: number } | undefined;
  #state: 'running' | 'frozen' | 'dead' = 'running';
  /** When it was last frozen. */
  frozenAtMs = 0;
  #frozenAt: Reading | undefined;
  #inbox: Array<() => void> = [];

  constructor(world: World, name: string, read: () => Reading) {
    this.#world = world;
    this.#read = read;
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
    const happening = this.#world.after(delayMs, () =>
      this.deliver(() => {
        if (!happening.cancelled) run();
      }),
    );
    return happening;
  }

  /** Resolves after the delay, or immediately when the signal aborts. */
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
    if (this.#state !== 'running') return;
    this.#state = 'frozen';
    this.frozenAtMs = this.#world.nowMs;
    this.#frozenAt = this.#read();
  }

  /** Resumes; events that arrived meanwhile are delivered now, in any order. */
  thaw(): void {
    if (this.#state !== 'frozen') return;
    this.#state = 'running';
    const afterMs = this.#world.nowMs - this.frozenAtMs;
    // A pause is not visible if the monotonic clock slept and the wall clock was set back meanwhile.
    const shownMs = this.#frozenAt === undefined ? 0 : elapsedMs(this.#frozenAt, this.#read());
    if (Math.min(afterMs, shownMs) > LONG_MS) this.thawed = { atMs: this.#world.nowMs, afterMs };
    for (const run of this.#inbox.splice(0)) this.after(this.#world.rng.between(0, 5), run);
  }
}
