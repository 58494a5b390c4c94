import type { Clients } from './clients.ts';
import type { Host, Surroundings } from './host.ts';
import type { Machine } from './machine.ts';
import { pairOf } from './pairs.ts';
import { kindOf } from './recorder.ts';
import { ACCEPTABLE_LAG, PARTITIONS, SESSION_MS } from './setting.ts';

/** The largest error with which a clock counts as accurate. */
export const MAX_OFF_MS = 450;
const NUDGE_REQUESTS = 5;

/** Faults of the wall clocks of machines. */
export class ClockFaults {
  readonly #around: Surroundings;
  readonly #clients: Clients;

  constructor(around: Surroundings, clients: Clients) {
    this.#around = around;
    this.#clients = clients;
  }

  /** Gives a machine's clock a small error. */
  setAbout(machine: Machine): void {
    this.#setOff(machine, this.#around.world.rng.between(-MAX_OFF_MS, MAX_OFF_MS));
  }

  step(machine: Machine): void {
    const { world } = this.#around;
    const { rng } = world;
    const sizeMs = rng.pick([12, 12, 100, 1_500, 1_500, 20_000]);
    this.#setOff(machine, rng.chance(0.2) ? 0 : machine.stepMs + rng.between(-sizeMs, sizeMs));
    // Requests right after a step must meet a clock that is checked.
    if (rng.chance(0.5)) for (let i = 0; i < 3; i += 1) world.after(rng.between(0, 50), () => this.#clients.send());
    world.note(() => `the wall clock of ${machine.name} steps: off by ${machine.stepMs.toFixed(0)} ms`);
  }

  /** A step that leaves a clock accurate enough, so that the worker is soon back for the next one. */
  nudge(machine: Machine): void {
    const { world } = this.#around;
    this.setAbout(machine);
    world.note(() => `the wall clock of ${machine.name} is off by ${machine.stepMs.toFixed(0)} ms now`);
    for (let i = 0; i < NUDGE_REQUESTS; i += 1) world.after(world.rng.between(0, 50), () => this.#clients.send());
  }

  #setOff(machine: Machine, byMs: number): void {
    const { history } = this.#around;
    machine.stepMs = byMs;
    history.aheadMs = Math.max(history.aheadMs, byMs);
  }
}

/** How long after the session of a killed owner its partitions must be served again. */
const SOON_MS = 5_000;
/** The pause between two kills, in which the killed worker restarts and restores its copies. */
const REST_MS = { from: 4_000, to: 9_000 } as const;
const ASK_MS = 700;

/** The actions on workers that TakeOvers needs. */
interface Killing {
  readonly hosts: () => readonly Host[];
  /** Kills a process by its name; it restarts `backMs` later. */
  readonly kill: (process: string, backMs: number) => void;
}

/**
 * Kills owners of partitions, one after the other. If a standby is ready and has a complete copy, the history records
 * that, with the number of requests meanwhile.
 */
export class TakeOvers {
  readonly #around: Surroundings;
  readonly #clients: Clients;
  readonly #workers: Killing;
  #isOver = false;

  constructor(around: Surroundings, clients: Clients, workers: Killing) {
    this.#around = around;
    this.#clients = clients;
    this.#workers = workers;
    this.#rest();
  }

  /** Stops killing. */
  heal(): void {
    this.#isOver = true;
  }

  #rest(): void {
    const { world } = this.#around;
    world.after(world.rng.between(REST_MS.from, REST_MS.to), () => {
      if (!this.#isOver) this.#killOwner(world.rng.below(PARTITIONS));
    });
  }

  #killOwner(partition: number): void {
    const { world, brokers, history } = this.#around;
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
    let held = order;
    for (let inMs = 0; inMs < withinMs - ASK_MS; inMs += ASK_MS)
      world.after(inMs, () => {
        if (brokers.shareOf(killed).partitions.includes(partition)) held = world.tick();
        this.#clients.sendTo(partition);
      });
    world.after(withinMs, () => {
      if (this.#isOver) return;
      this.#rest();
      if (!hasHeir) return;
      const requests = history.requests.slice(before).filter((one) => one.partition === partition).length;
      history.takeOvers.push({ order, partition, killed, held, until: world.tick(), requests });
    });
  }
}

function isComplete({ worker }: Host, partition: number): boolean {
  return worker.vitals().copies.some((copy) => copy.partition === partition && copy.state === 'following');
}

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
  readonly #around: Surroundings;
  readonly #clients: Clients;
  /** Processes whose next append of numbers is late. */
  readonly #held = new Set<string>();
  #isOver = false;

  constructor(around: Surroundings, clients: Clients, hosts: () => readonly Host[]) {
    const { world, store, brokers } = around;
    this.#around = around;
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
    const { world, history } = this.#around;
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
