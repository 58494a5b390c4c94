import { toTicks } from '../../src/core/layout.ts';
import type { Runtime } from '../../src/core/runtime.ts';
import type { Reading } from '../../src/core/units.ts';
import type { Authority } from '../../src/identity/state.ts';
import type { Allocation, Allocator } from '../../src/pipeline/ports.ts';
import type { AllocatorOptions } from '../../src/worker/allocator.ts';
import type { Store } from './etcd.ts';
import type { History, Issued } from './history.ts';
import type { Process } from './machine.ts';
import { layout } from './setting.ts';
import type { World } from './world.ts';

interface Taking {
  readonly order: number;
  readonly nowTicks: number;
  readonly ceiling: number | undefined;
  readonly from: number;
  readonly to: number;
}

/** What one allocation was given to take with, turn by turn. */
type Takings = Taking[];

/**
 * Stands around the allocator and sees, in the very turn in which ranges are taken, what the store says. The allocator
 * reads the clock, asks for authority and takes, all in one turn; which of its calls that turn belongs to is known,
 * because a call goes on only where it began, or where a sleep of its own ended.
 */
export class Probe {
  readonly #world: World;
  readonly #history: History;
  readonly #store: Store;
  readonly #process: Process;
  readonly #config: string;
  /** When the last answered renewal was sent: by the monotonic clock, and by the true one. */
  #renewed = { monoMs: Number.NEGATIVE_INFINITY, trueMs: Number.NEGATIVE_INFINITY };
  readonly #seen = new SeenClock();
  #term = '';
  #present: Takings = [];
  #steady = false;

  /** `config` names what the process is configured with. */
  constructor(world: World, history: History, store: Store, process: Process, config: string) {
    this.#config = config;
    this.#world = world;
    this.#history = history;
    this.#store = store;
    this.#process = process;
  }

  /** The same, but it is seen what the process sees of its clocks. */
  watched(runtime: Runtime): Runtime {
    return {
      ...runtime,
      wallMs: () => this.#seen.wall(runtime.wallMs(), this.#world.events),
      monotonicMs: () => this.#seen.mono(runtime.monotonicMs(), this.#world.events),
    };
  }

  /** A renewal is sent; what this returns is called when it is answered. */
  renewing(monoMs: number): () => void {
    const trueMs = this.#world.nowMs;
    return () => {
      if (monoMs > this.#renewed.monoMs) this.#renewed = { monoMs, trueMs };
    };
  }

  /** The allocator that `make` makes, seen from outside. */
  around(options: AllocatorOptions, make: (watched: AllocatorOptions) => Allocator): Allocator {
    const inner = make({
      ...options,
      readClock: () => {
        const seen = options.readClock();
        this.#steady = seen.verdict.kind === 'steady';
        return seen;
      },
      authority: (now) => this.#granted(options.authority(now), now),
      sleep: async (delayMs) => {
        const own = this.#present;
        await options.sleep(delayMs);
        this.#present = own;
      },
    });
    return {
      allocate: async (counts) => {
        const takings: Takings = [];
        this.#present = takings;
        const allocations = await inner.allocate(counts);
        const isLarge = counts.reduce((sum, count) => sum + count, 0) > layout.sequencesPerTick;
        for (const allocation of allocations) this.#issued(allocation, takings, isLarge);
        return allocations;
      },
    };
  }

  #granted(granted: Authority, now: Reading): Authority {
    if (!granted.ok || !this.#steady) return granted;
    const { workerId, fence, reservation } = granted;
    const term = `${workerId}/${fence}/${reservation.from}`; // etcd that was set back gives a fence a second time
    if (term !== this.#term) this.#seen.forget();
    this.#term = term;
    this.#present.push({
      order: this.#world.tick(),
      nowTicks: toTicks(layout, now.wall),
      ceiling: this.#store.ceiling(workerId),
      from: reservation.from,
      to: reservation.to,
    });
    const { thawed } = this.#process;
    this.#history.grants.push({
      order: this.#world.tick(),
      process: this.#process.name,
      config: this.#config,
      workerId,
      fence,
      ...reservation,
      sinceRenewalMs: now.mono - this.#renewed.monoMs,
      behindMs: this.#seen.highMs - now.wall,
      stoodStill: thawed !== undefined && this.#renewed.trueMs < thawed.atMs,
    });
    return granted;
  }

  /**
   * A range belongs to the first turn that could use its tick: a turn leaves nothing of that if it wants more. A large
   * call leaves the present tick to others.
   */
  #issued({ ranges, workerId, fence }: Allocation, takings: Takings, isLarge: boolean): void {
    const lastOf = ({ nowTicks, from, to }: Taking) =>
      isLarge && nowTicks > from && nowTicks < to ? nowTicks - 1 : nowTicks;
    const allocation = this.#world.tick();
    for (const { first, count } of ranges) {
      const tick = Number(first >> layout.timestampShift);
      const taken = takings.find((taking) => lastOf(taking) >= tick) ?? takings.at(-1);
      const last = first + BigInt(count - 1) * layout.step;
      const range: Issued = {
        order: taken?.order ?? 0,
        allocation,
        workerId,
        fence,
        from: taken?.from ?? 0,
        first,
        last,
        tick,
        ceiling: taken?.ceiling,
      };
      this.#history.issued.push(range);
    }
  }
}

/**
 * The highest wall time that the guard of the clock was shown. It reads the wall clock between two readings of the
 * monotonic one; whoever reads the wall clock alone shows it nothing.
 */
class SeenClock {
  highMs = Number.NEGATIVE_INFINITY;
  #before: 'mono' | 'wall' | undefined;
  #wallMs = 0;
  #event = -1;

  wall(readMs: number, event: number): number {
    this.#before = this.#before === 'mono' && event === this.#event ? 'wall' : undefined;
    this.#wallMs = readMs;
    return readMs;
  }

  mono(readMs: number, event: number): number {
    if (this.#before === 'wall' && event === this.#event) this.highMs = Math.max(this.highMs, this.#wallMs);
    this.#before = 'mono';
    this.#event = event;
    return readMs;
  }

  forget(): void {
    this.highMs = Number.NEGATIVE_INFINITY;
  }
}
