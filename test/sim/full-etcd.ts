import type { Host, Place } from './host.ts';

/** How long etcd has space before it reaches its quota, and how long it then refuses writes. */
const SPACE_MS = { from: 2_000, to: 8_000 } as const;
const FULL_MS = { from: 1_000, to: 22_000 } as const;
/** Within this, the lease of a worker that was killed has ended, and its successor has started. */
const SUCCEEDED_MS = 14_000;
/** A worker that lost its reservation has a new one so soon after etcd takes writes again. */
const RESUMED_MS = 5_000;
/** Writes of one process that etcd may refuse within a second; a worker sends about one. */
const MOST_REFUSED = 10;

const WAITS = new Set(['NO_IDENTITY', 'LEASE_SUSPENDED', 'LEASE_LOST', 'RESERVATION_EXHAUSTED', 'POOL_EXHAUSTED']);

interface Workers {
  readonly hosts: () => readonly Host[];
  readonly killOne: () => void;
}

/**
 * Fills etcd for a while, again and again, so that it refuses writes and serves everything else; may kill a worker
 * meanwhile.
 */
export class FullEtcd {
  readonly #place: Place;
  readonly #workers: Workers;
  /** By process: when etcd refused its latest writes. */
  readonly #refusedMs = new Map<string, number[]>();
  #isFull = false;
  #over = false;

  constructor(place: Place, workers: Workers) {
    this.#place = place;
    this.#workers = workers;
    place.store.onRefused = (process) => this.#count(process);
    this.#fillLater();
  }

  /** Gives etcd space for good. */
  heal(): void {
    this.#over = true;
    this.#free();
  }

  #fillLater(): void {
    const { world } = this.#place;
    world.after(world.rng.between(SPACE_MS.from, SPACE_MS.to), () => {
      if (!this.#over) this.#fill();
    });
  }

  #fill(): void {
    const { world, store } = this.#place;
    const { rng } = world;
    const forMs = rng.between(FULL_MS.from, FULL_MS.to);
    world.note(() => `etcd refuses writes for ${forMs.toFixed(0)} ms`);
    this.#isFull = true;
    store.fill(rng.chance(0.5));
    if (forMs > SUCCEEDED_MS && rng.chance(0.5)) this.#workers.killOne();
    world.after(forMs, () => this.#free());
  }

  #free(): void {
    const { world, store } = this.#place;
    if (!this.#isFull) return;
    this.#isFull = false;
    world.note(() => 'etcd takes writes again');
    store.free();
    const waiting = this.#workers.hosts().filter(({ process }) => process.running);
    world.after(RESUMED_MS, () => {
      for (const host of waiting) this.#requireResumed(host);
      this.#fillLater();
    });
  }

  #requireResumed({ process, worker }: Host): void {
    const { history } = this.#place;
    const reason = worker.unready;
    if (!process.running || reason === undefined || !WAITS.has(reason)) return;
    history.unresumed.push(`${process.name} is still ${reason} ${RESUMED_MS} ms after etcd takes writes again`);
  }

  #count(process: string): void {
    const { world, history } = this.#place;
    const lately = (this.#refusedMs.get(process) ?? []).filter((atMs) => world.nowMs - atMs < 1_000);
    lately.push(world.nowMs);
    this.#refusedMs.set(process, lately);
    if (lately.length <= MOST_REFUSED) return;
    history.unresumed.push(`${process} sent ${lately.length} writes within a second to an etcd that refuses them`);
    this.#refusedMs.delete(process);
  }
}
