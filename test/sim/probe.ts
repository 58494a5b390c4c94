import { toTicks } from '../../src/core/layout.ts';
import type { Reading } from '../../src/core/units.ts';
import type { GuardedReading } from '../../src/identity/settings.ts';
import type { Authority } from '../../src/identity/state.ts';
import type { Allocation, Allocator } from '../../src/pipeline/ports.ts';
import type { Store } from './etcd.ts';
import type { History, Issued } from './history.ts';
import { layout } from './setting.ts';
import type { World } from './world.ts';

interface Taking {
  readonly order: number;
  readonly nowTicks: number;
  readonly ceiling: number | undefined;
  readonly from: number;
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
  /** When the last answered renewal was sent, by the monotonic clock. */
  renewedMs = Number.NEGATIVE_INFINITY;
  #present: Takings = [];
  #steady = false;

  constructor(world: World, history: History, store: Store) {
    this.#world = world;
    this.#history = history;
    this.#store = store;
  }

  readonly clock = (read: () => GuardedReading) => (): GuardedReading => {
    const seen = read();
    this.#steady = seen.verdict.kind === 'steady';
    return seen;
  };

  readonly authority =
    (ask: (now: Reading) => Authority) =>
    (now: Reading): Authority => {
      const granted = ask(now);
      if (!granted.ok || !this.#steady) return granted;
      const { workerId, fence, reservation } = granted;
      const ceiling = this.#store.ceiling(workerId);
      this.#present.push({
        order: this.#world.tick(),
        nowTicks: toTicks(layout, now.wall),
        ceiling,
        from: reservation.from,
      });
      this.#history.grants.push({ workerId, fence, ...reservation, sinceRenewalMs: now.mono - this.renewedMs });
      return granted;
    };

  readonly sleep =
    (sleep: (delayMs: number) => Promise<void>) =>
    async (delayMs: number): Promise<void> => {
      const own = this.#present;
      await sleep(delayMs);
      this.#present = own;
    };

  allocator(inner: Allocator): Allocator {
    return {
      allocate: async (counts) => {
        const takings: Takings = [];
        this.#present = takings;
        const allocations = await inner.allocate(counts);
        for (const allocation of allocations) this.#issued(allocation, takings);
        return allocations;
      },
    };
  }

  /** A range belongs to the first turn in which its tick had begun: a turn leaves nothing of that if it wants more. */
  #issued({ ranges, workerId, fence }: Allocation, takings: Takings): void {
    const allocation = this.#world.tick();
    for (const { first, count } of ranges) {
      const tick = Number(first >> layout.timestampShift);
      const taken = takings.find(({ nowTicks }) => nowTicks >= tick) ?? takings.at(-1);
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
