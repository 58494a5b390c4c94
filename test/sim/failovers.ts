import type { Clients } from './clients.ts';
import type { Host, Place } from './host.ts';
import type { LedgerFaults } from './ledger-faults.ts';
import { type Copying, replaceCluster } from './new-cluster.ts';
import { FIRST, partitionsOf } from './pairs.ts';
import { growBeyondLedger } from './tail-losses.ts';

/** When the first cluster is replaced, and the next ones. */
const FIRST_MS = { from: 8_000, to: 20_000 } as const;
const NEXT_MS = { from: 10_000, to: 20_000 } as const;
const AGAIN = 0.4;
/** Requests that are sent before and after, and in what time. */
const REQUESTS = 12;
const SENDING_MS = 3_000;
/** How long until the operator adopts the new cluster. */
const ADOPT_MS = { from: 500, to: 6_000 } as const;
const COPIES: readonly Copying[] = ['same', 'same', 'shifted', 'none'];

/** The workers, as Failovers needs them. */
interface Workers {
  readonly hosts: () => readonly Host[];
  readonly blackout: () => void;
}

/** Kafka is replaced by another cluster, which has a copy of the logs that lags, or nothing; an operator adopts it. */
export class Failovers {
  readonly #place: Place;
  readonly #clients: Clients;
  readonly #workers: Workers;
  readonly #ledgerFaults: LedgerFaults;
  #isOver = false;
  #isAdopted = true;

  constructor(place: Place, clients: Clients, workers: Workers, ledgerFaults: LedgerFaults) {
    this.#place = place;
    this.#clients = clients;
    this.#workers = workers;
    this.#ledgerFaults = ledgerFaults;
    const { world } = place;
    world.after(world.rng.between(FIRST_MS.from, FIRST_MS.to), () => this.#begin());
  }

  /** Ends the faults. Requests go on until each partition ends above what its ledger knows: below that no worker serves it. */
  heal(): void {
    this.#isOver = true;
    for (const partition of partitionsOf(FIRST)) {
      this.#ledgerFaults.askAgain(partition, 0);
      growBeyondLedger(this.#place, this.#clients, partition);
    }
  }

  missing(): string[] {
    return this.#isAdopted ? [] : ['the cluster is not adopted'];
  }

  #begin(): void {
    if (this.#isOver) return;
    const { world } = this.#place;
    const { rng } = world;
    this.#sendSome();
    world.after(rng.between(0, SENDING_MS), () => {
      if (this.#isOver) return;
      this.#fail();
      if (rng.chance(AGAIN)) world.after(rng.between(NEXT_MS.from, NEXT_MS.to), () => this.#begin());
    });
  }

  #fail(): void {
    const { world } = this.#place;
    const { rng } = world;
    this.#isAdopted = false;
    replaceCluster(this.#place, rng.pick(COPIES));
    this.#workers.blackout();
    this.#sendSome();
    world.after(rng.between(ADOPT_MS.from, ADOPT_MS.to), () => this.#adopt());
  }

  #adopt(): void {
    const { world, history } = this.#place;
    this.#isAdopted = true;
    history.adoptions.push(world.tick());
    for (const loss of history.requestLosses) loss.seen ??= world.tick();
    this.#sendSome();
    for (const partition of partitionsOf(FIRST)) this.#ledgerFaults.askAgain(partition, 0);
  }

  /** New requests to each partition, for IDs and for numbers. */
  #sendSome(): void {
    const { world } = this.#place;
    const { rng } = world;
    for (const partition of partitionsOf(FIRST)) {
      for (let left = rng.below(REQUESTS); left > 0; left -= 1) {
        world.after(rng.between(0, SENDING_MS), () => this.#clients.sendTo(partition));
        world.after(rng.between(0, SENDING_MS), () => this.#clients.takeNumbersOf(partition));
      }
    }
  }
}
