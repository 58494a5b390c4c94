import type { Surroundings } from './host.ts';
import type { Machine } from './machine.ts';

/** What a clock gains or loses in each millisecond: so little that no two readings show it. */
const RATE = { from: 0.016, to: 0.02 } as const;
const BEGINS_MS = { from: 2_000, to: 8_000 } as const;
/** How often a worker compares its clock with the brokers', with the time that takes; and by how much it may be off. */
const COMPARED_MS = 62_000;
const ALLOWED_MS = 1_000;
/** The share of clocks that drift, and of those whose monotonic clock drifts as well, as one oscillator has both. */
const DRIFTING = 0.8;
const OF_BOTH = 0.5;

/** Clocks that drift, under workers that append nothing. */
export class Drifts {
  readonly #machines: readonly Machine[];

  constructor({ world, history }: Surroundings, machines: readonly Machine[]) {
    this.#machines = machines;
    const { rng } = world;
    history.mostOffMs = ALLOWED_MS + COMPARED_MS * RATE.to;
    // An ID may have the time of such a clock, and a request's expiry is judged by it.
    history.aheadMs = history.mostOffMs;
    for (const machine of machines) {
      if (!rng.chance(DRIFTING)) continue;
      const [rate, isOfBoth] = [rng.between(RATE.from, RATE.to) * rng.pick([1, -1]), rng.chance(OF_BOTH)];
      history.drifts += 1;
      world.after(rng.between(BEGINS_MS.from, BEGINS_MS.to), () => {
        world.note(
          () => `${isOfBoth ? 'both clocks' : 'the wall clock'} of ${machine.name} drift by ${rate.toFixed(4)}`,
        );
        machine.drift(rate, isOfBoth);
      });
    }
  }

  /** Sets all clocks right. */
  heal(): void {
    for (const machine of this.#machines) machine.correct();
  }
}
