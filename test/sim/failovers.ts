import { describeError, IdallocError } from '../../src/errors.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import { adopt } from './adopting.ts';
import type { Clients } from './clients.ts';
import type { Host, Place } from './host.ts';
import type { LedgerFaults } from './ledger-faults.ts';
import { Machine } from './machine.ts';
import { type Copying, replaceCluster } from './new-cluster.ts';
import { OPERATOR } from './operator.ts';
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
/** How often the command is given again, and the share that is killed, within what time. */
const AGAIN_MS = { from: 1_000, to: 4_000 } as const;
const KILLED = 0.15;
const KILLED_MS = 60;
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
  readonly #machine: Machine;
  #isOver = false;
  #isAdopted = true;

  constructor(place: Place, clients: Clients, workers: Workers, ledgerFaults: LedgerFaults) {
    this.#place = place;
    this.#clients = clients;
    this.#workers = workers;
    this.#ledgerFaults = ledgerFaults;
    this.#machine = new Machine(place.world, `${OPERATOR}-of-clusters`);
    const { world } = place;
    world.after(world.rng.between(FIRST_MS.from, FIRST_MS.to), () => this.#begin());
  }

  /**
   * Ends the faults. Requests go on until each partition ends above what its ledger knows: below that no worker serves
   * it.
   */
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
    if (rng.chance(0.6)) this.#workers.blackout();
    this.#sendSome();
    world.after(rng.between(ADOPT_MS.from, ADOPT_MS.to), () => this.#adopt());
  }

  /**
   * The operator gives the command until it succeeds; it is refused while workers hold worker IDs, and may be killed in
   * the middle.
   */
  #adopt(): void {
    const { world, history } = this.#place;
    const { rng } = world;
    const process = this.#machine.start();
    const again = (): void => {
      if (process.dead) return;
      process.crash();
      world.after(rng.between(AGAIN_MS.from, AGAIN_MS.to), () => this.#adopt());
    };
    if (rng.chance(KILLED)) world.after(rng.between(0, KILLED_MS), again);
    adopt(this.#place, this.#machine, process).then(
      () => {
        if (process.dead) return;
        process.crash();
        this.#adopted();
      },
      (error: unknown) => {
        world.note(() => `${process.name}: ${error}`);
        const isExpected = error instanceof IdallocError || error instanceof KafkaError;
        if (!isExpected) history.defects.push(`adopting the cluster: ${describeError(error)}`);
        if (error instanceof IdallocError && error.code === 'REBUILD_REFUSED') this.#workers.blackout();
        again();
      },
    );
  }

  #adopted(): void {
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
