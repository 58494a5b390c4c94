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

/** The authority that one allocation used, turn by turn. */
type Takings = Taking[];

/**
 * Wraps the allocator and reads the store in the same turn in which ranges are taken. The allocator reads the clock, gets
 * its authority and takes, all in one turn. The turn belongs to a known call, because a call runs only from its start or
 * from the end of one of its sleeps.
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

  /** `config` names the configuration of the process. */
  constructor(world: World, history: History, store: Store, process: Process, config: string) {
    this.#config = config;
    this.#world = world;
    this.#history = history;
    this.#store = store;
    this.#process = process;
  }

  /** The same runtime, recording what the process sees of its clocks. */
  watched(runtime: Runtime): Runtime {
    return {
      ...runtime,
      wallMs: () => this.#seen.wall(runtime.wallMs(), this.#world.events),
      monotonicMs: () => this.#seen.mono(runtime.monotonicMs(), this.#world.events),
    };
  }

  /** A renewal is sent; returns a function to call when it is answered. */
  renewing(monoMs: number): () => void {
    const trueMs = this.#world.nowMs;
    return () => {
      if (monoMs > this.#renewed.monoMs) this.#renewed = { monoMs, trueMs };
    };
  }

  /** The allocator that `make` creates, wrapped. */
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
      holds: (allocation) => inner.holds(allocation),
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
    const term = `${workerId}/${fence}/${reservation.from}`; // after etcd was set back, fences may repeat
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
      wasPaused: thawed !== undefined && this.#renewed.trueMs < thawed.atMs,
    });
    return granted;
  }

  /**
   * A range belongs to the first turn that could use its tick: a turn that needs more takes all of it. A large call leaves
   * the current tick to others.
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
 * The highest wall time that the clock guard has seen. The guard reads the wall clock between two readings of the
 * monotonic one; other reads of the wall clock do not count.
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
