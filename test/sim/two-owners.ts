import type { Clients } from './clients.ts';
import type { Host, Place } from './host.ts';
import { pairOf } from './pairs.ts';
import { kindOf } from './recorder.ts';
import { SESSION_MS } from './setting.ts';

/**
 * The share of swaps at which something happens to the worker, and how long it is away then: others take over
 * meanwhile.
 */
const STRUCK = 0.08;
const AWAY_MS = { from: SESSION_MS + 500, to: SESSION_MS + 8_000 } as const;
/** How long the append after a swap may be under way. */
const HELD_MS = { from: 1_000, to: SESSION_MS + 8_000 } as const;
const REQUESTS_MS = 400;

/**
 * Owners of a partition overlap, at the moments that matter for numbers: one is frozen or cut off between a swap and
 * its append, which another worker completes; or its append arrives long after.
 */
export class TwoOwners {
  readonly #place: Place;
  readonly #clients: Clients;
  /** Processes whose next append of numbers is late. */
  readonly #held = new Set<string>();
  #isOver = false;

  constructor(place: Place, clients: Clients, hosts: () => readonly Host[]) {
    const { world, store, brokers } = place;
    this.#place = place;
    this.#clients = clients;
    store.onSwap = (process) => {
      const host = hosts().find((one) => one.process.name === process);
      if (host !== undefined && !this.#isOver && world.rng.chance(STRUCK)) this.#strike(host);
    };
    brokers.meddlers.push((process, message) => {
      if (message.call !== 'produce' || message.way === 'back' || !this.#held.has(process)) return undefined;
      const { topic, batch } = message.request;
      if (pairOf('ledger', topic) === undefined || kindOf(batch) !== 'decisions') return undefined;
      this.#held.delete(process);
      const forMs = world.rng.between(HELD_MS.from, HELD_MS.to);
      world.note(() => `an append of ${process} is held for ${forMs.toFixed(0)} ms`);
      return forMs;
    });
    this.#clients.takeNumbersUntil(() => this.#isOver, REQUESTS_MS);
  }

  heal(): void {
    this.#isOver = true;
    this.#held.clear();
  }

  #strike({ process }: Host): void {
    const { world, history } = this.#place;
    const { rng } = world;
    const forMs = rng.between(AWAY_MS.from, AWAY_MS.to);
    const link = rng.pick(['etcd', 'kafka', 'kafka'] as const);
    const how = rng.pick(['frozen', 'cut', 'held'] as const);
    world.after(rng.between(0, 4), () => {
      if (!process.running) return;
      world.note(() => `${process.name} is ${how === 'cut' ? `cut off from ${link}` : how} for ${forMs.toFixed(0)} ms`);
      if (how === 'frozen') {
        process.freeze();
        world.after(forMs, () => process.thaw());
      } else if (how === 'cut') {
        process.cut.add(link);
        history.cuts.push({ process: process.name, link, untilMs: world.nowMs + forMs });
        world.after(forMs, () => process.cut.delete(link));
      } else this.#held.add(process.name);
    });
  }
}
