import type { Runtime } from '../../src/async/runtime.ts';
import type { IdRange } from '../../src/core/generator.ts';
import type { Reading } from '../../src/core/units.ts';
import type { Authority } from '../../src/identity/state.ts';
import type { AllocatorOptions } from '../../src/worker/allocator.ts';
import type { Store } from './etcd.ts';
import type { History } from './history.ts';
import type { Process } from './machine.ts';
import { START_MS } from './setting.ts';
import type { World } from './world.ts';

/** The authority of the present turn. */
interface Turn {
  readonly ceiling: number | undefined;
  readonly from: number;
  readonly workerId: number;
  readonly fence: bigint;
}

/**
 * Watches the allocator and reads the store in the same turn in which ranges are taken. The allocator reads the clock,
 * gets its authority and takes, all in one turn.
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
  #turn: Turn | undefined;
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

  /** The options of an allocator that is watched. */
  around(options: AllocatorOptions): AllocatorOptions {
    return {
      ...options,
      readClock: () => {
        const seen = options.readClock();
        this.#steady = seen.verdict.kind === 'steady';
        return seen;
      },
      authority: (now) => this.#granted(options.authority(now), now),
      onTaken: (ranges) => this.#taken(ranges),
    };
  }

  #granted(granted: Authority, now: Reading): Authority {
    if (!granted.ok || !this.#steady) return granted;
    const { workerId, fence, reservation } = granted;
    const term = `${workerId}/${fence}/${reservation.from}`; // after etcd was rolled back, fences may repeat
    if (term !== this.#term) this.#seen.forget();
    this.#term = term;
    this.#turn = { ceiling: this.#store.ceiling(workerId), from: reservation.from, workerId, fence };
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
      offMs: now.wall - START_MS - this.#world.nowMs,
    });
    return granted;
  }

  #taken(ranges: readonly IdRange[]): void {
    if (this.#turn === undefined) throw new Error('IDs were taken without authority');
    const { layout } = this.#world;
    for (const { first, count } of ranges) {
      const order = this.#world.tick();
      const last = first + BigInt(count - 1) * layout.step;
      this.#history.issued.push({ ...this.#turn, order, first, last, tick: Number(first >> layout.timestampShift) });
    }
  }
}

/** The only file that reads the clocks for the guard. */
const GUARD = 'guarded-clock';

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
    const isHigher = this.#before === 'wall' && event === this.#event && this.#wallMs > this.highMs;
    // Others read the clocks as well, and nothing but the caller tells them apart.
    if (isHigher && new Error().stack?.includes(GUARD) === true) this.highMs = this.#wallMs;
    this.#before = 'mono';
    this.#event = event;
    return readMs;
  }

  forget(): void {
    this.highMs = Number.NEGATIVE_INFINITY;
  }
}
