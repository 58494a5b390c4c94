import type { Host, Surroundings } from './host.ts';
import { Rng } from './rng.ts';
import { isAimed, isCalm } from './scenario.ts';

/** In one of so many seeds somebody calls the HTTP API, and where clocks drift. */
const SEEDS_WITH_CALLERS = 4;
const CALLERS = ['one', 'other'] as const;
const COUNTS = [1, 3, 40, 170] as const;
/** The time between two visits is this on average, and each asks for IDs up to so many times at once. */
const GAP_MS = 300;
const MOST_AT_ONCE = 4;

/** Whether IDs are wanted over HTTP, beside the requests in Kafka. Scenarios that aim at a moment keep theirs. */
export function hasCallers({ world, scenario }: Pick<Surroundings, 'world' | 'scenario'>): boolean {
  return scenario === 'drift' || (world.seed % SEEDS_WITH_CALLERS === 3 && !isCalm(scenario) && !isAimed(scenario));
}

/**
 * Callers of the HTTP API: they ask any worker, whatever its state, and try again elsewhere. Their random numbers are
 * their own, so that no fault of the seed changes.
 */
export class Callers {
  readonly #around: Surroundings;
  readonly #hosts: () => readonly Host[];
  readonly #rng: Rng;
  #isOver = false;

  constructor(around: Surroundings, hosts: () => readonly Host[]) {
    this.#around = around;
    this.#hosts = hosts;
    this.#rng = new Rng(-around.world.seed);
    this.#later();
  }

  /** Nobody calls any more. */
  heal(): void {
    this.#isOver = true;
  }

  #later(): void {
    this.#around.world.after(this.#rng.between(0, 2 * GAP_MS), () => {
      if (this.#isOver) return;
      this.#visit();
      this.#later();
    });
  }

  #visit(): void {
    const rng = this.#rng;
    const hosts = this.#hosts();
    if (hosts.length === 0) return;
    const host = rng.pick(hosts);
    for (let times = 1 + rng.below(MOST_AT_ONCE); times > 0; times -= 1) host.call(rng.pick(CALLERS), rng.pick(COUNTS));
  }
}
