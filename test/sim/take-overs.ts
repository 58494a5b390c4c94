import type { Clients } from './clients.ts';
import type { Host, Place } from './host.ts';
import { ACCEPTABLE_LAG, PARTITIONS, SESSION_MS } from './setting.ts';

/** How long after the session of a killed owner its partitions must be served again. */
const SOON_MS = 5_000;
/** The pause between two kills, in which the killed worker restarts and restores its copies. */
const REST_MS = { from: 4_000, to: 9_000 } as const;
const ASK_MS = 700;

/** The actions on workers that TakeOvers needs. */
export interface Killing {
  readonly hosts: () => readonly Host[];
  /** Kills a process by its name; it restarts `backMs` later. */
  readonly kill: (process: string, backMs: number) => void;
}

/**
 * Kills owners of partitions, one after the other. If a standby is ready and has a complete copy, the history records
 * that, with the number of requests meanwhile.
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

  /** Stops killing. */
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
    // With a shorter log, every worker counts as having a copy.
    const isLong = brokers.bounds('ledger', partition).high > ACCEPTABLE_LAG + 1;
    const standbys = hosts.filter(({ process }) => brokers.shareOf(process.name).standbys.includes(partition));
    const hasHeir = isLong && standbys.some((host) => isComplete(host, partition));
    const killed = owner.process.name;
    const withinMs = SESSION_MS + SOON_MS;
    this.#workers.kill(killed, withinMs + world.rng.between(0, REST_MS.from));
    const [order, before] = [world.tick(), history.requests.length];
    for (let inMs = 0; inMs < withinMs - ASK_MS; inMs += ASK_MS)
      world.after(inMs, () => this.#clients.sendTo(partition));
    world.after(withinMs, () => {
      if (this.#isOver) return;
      this.#rest();
      if (!hasHeir) return;
      const requests = history.requests.slice(before).filter((one) => one.partition === partition).length;
      history.takeOvers.push({ order, partition, killed, until: world.tick(), requests });
    });
  }
}

function isComplete({ worker }: Host, partition: number): boolean {
  return worker.vitals().copies.some((copy) => copy.partition === partition && copy.state === 'following');
}
