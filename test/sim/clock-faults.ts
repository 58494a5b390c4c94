import type { Clients } from './clients.ts';
import type { Place } from './host.ts';
import type { Machine } from './machine.ts';

/** The largest error with which a clock counts as accurate. */
export const MAX_OFF_MS = 450;
const NUDGE_REQUESTS = 5;

/** Faults of the wall clocks of machines. */
export class ClockFaults {
  readonly #place: Place;
  readonly #clients: Clients;

  constructor(place: Place, clients: Clients) {
    this.#place = place;
    this.#clients = clients;
  }

  /** Gives a machine's clock a small error. */
  setAbout(machine: Machine): void {
    this.#setOff(machine, this.#place.world.rng.between(-MAX_OFF_MS, MAX_OFF_MS));
  }

  step(machine: Machine): void {
    const { world } = this.#place;
    const { rng } = world;
    const sizeMs = rng.pick([12, 12, 100, 1_500, 1_500, 20_000]);
    this.#setOff(machine, rng.chance(0.2) ? 0 : machine.stepMs + rng.between(-sizeMs, sizeMs));
    // Requests right after a step must meet a clock that is checked.
    if (rng.chance(0.5)) for (let i = 0; i < 3; i += 1) world.after(rng.between(0, 50), () => this.#clients.send());
    world.note(() => `the wall clock of ${machine.name} steps: off by ${machine.stepMs.toFixed(0)} ms`);
  }

  /** A step that leaves a clock accurate enough, so that the worker is soon back for the next one. */
  nudge(machine: Machine): void {
    const { world } = this.#place;
    this.setAbout(machine);
    world.note(() => `the wall clock of ${machine.name} is off by ${machine.stepMs.toFixed(0)} ms now`);
    for (let i = 0; i < NUDGE_REQUESTS; i += 1) world.after(world.rng.between(0, 50), () => this.#clients.send());
  }

  #setOff(machine: Machine, byMs: number): void {
    const { history } = this.#place;
    machine.stepMs = byMs;
    history.aheadMs = Math.max(history.aheadMs, byMs);
  }
}
