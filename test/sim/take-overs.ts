import type { Clients } from './clients.ts';
import type { Host, Place } from './host.ts';
import { ACCEPTABLE_LAG, PARTITIONS, SESSION_MS } from './setting.ts';

/** How long until a lost owner's partitions are served again, after the end of its session. */
const SOON_MS = 5_000;
/** How long it is quiet between two kills, so that who was killed is back and warm. */
const REST_MS = { from: 4_000, to: 9_000 } as const;
const ASK_MS = 700;

/** What is done to workers from here. */
export interface Killing {
  readonly hosts: () => readonly Host[];
  /** Kills one by the name of its process; it starts again so much later. */
  readonly kill: (process: string, backMs: number) => void;
}

/**
 * Kills owners of partitions, one after the other. Where a standby is ready and has a complete copy, the history says so,
 * with what came meanwhile.
 */
export class TakeOvers {
  readonly #place: Place;
  readonly #clients: Clients;
  readonly #workers: Killing;
  #isOver = false;

  constructor(place: Place, clients: Clients, workers: Killing) {
    this.#place = place;
    this.#clients = clients;
    this.#workers = workers;
    this.#rest();
  }

  /** Nobody is killed any more. */
  heal(): void {
    this.#isOver = true;
  }

  #rest(): void {
    const { world } = this.#place;
    world.after(world.rng.between(REST_MS.from, REST_MS.to), () => {
      if (!this.#isOver) this.#killOwner(world.rng.below(PARTITIONS));
    });
  }

  #killOwner(partition: number): void {
    const { world, brokers, history } = this.#place;
    const hosts = this.#workers.hosts().filter(({ isReady }) => isReady);
    const owner = hosts.find(({ process }) => brokers.shareOf(process.name).partitions.includes(partition));
    if (owner === undefined) {
      this.#rest();
      return;
    }
    // Of a log that is shorter anybody counts as having a copy.
    const isLong = brokers.bounds('ledger', partition).high > ACCEPTABLE_LAG + 1;
    const standbys = hosts.filter(({ process }) => brokers.shareOf(process.name).standbys.includes(partition));
    const hasHeir = isLong && standbys.some((host) => isComplete(host, partition));
    const killed = owner.process.name;
    const withinMs = SESSION_MS + SOON_MS;
    this.#workers.kill(killed, withinMs + world.rng.between(0, REST_MS.from));
    const [order, before] = [world.tick(), history.requests.length];
    for (let inMs = 0; inMs < withinMs - ASK_MS; inMs += ASK_MS)
      world.after(inMs, () => this.#clients.askAt(partition));
    world.after(withinMs, () => {
      if (this.#isOver) return;
      this.#rest();
      if (!hasHeir) return;
      const asked = history.requests.slice(before).filter((one) => one.partition === partition).length;
      history.takeOvers.push({ order, partition, killed, until: world.tick(), asked });
    });
  }
}

function isComplete({ worker }: Host, partition: number): boolean {
  return worker.vitals().copies.some((copy) => copy.partition === partition && copy.state === 'following');
}
