import { recordsOf } from '../support/fake-kafka/batches.ts';
import type { Fate, Message } from '../support/fake-kafka/network.ts';
import type { Host, Surroundings } from './host.ts';
import { CHECK_MS, OPERATOR, Operator } from './operator.ts';
import { MACHINES, WITNESS } from './setting.ts';

/** The number of backups that are kept, and how often one is taken. */
const BACKUPS = 4;
const BACKUP_MS = 4_000;
/** Less than a worker waits for its witness. */
const MAX_HELD_MS = 2_500;
/** The share of the other simulations in which a witness is delayed once. */
const HOLDING = 0.5;
/** Time from a rebuild to the next delayed witness: all workers wait for the floor of the rebuild. */
const REST_MS = 10_000;
/** Requests sent when a delayed witness arrives, and within what time: the worker uses its reservation immediately. */
const REQUESTS = 8;
const ASKING_MS = 1_500;
/** How long readers may be slow before and after etcd is rolled back, and how late records reach them then. */
const SLOW_MS = { before: 3_000, after: 9_000 } as const;
const MAX_BEHIND_MS = 3_000;
/** How often etcd is rolled back in the scenarios where that is repeated. */
const AGAIN_MS = { from: 8_000, to: 16_000 } as const;

/** When etcd and the ledger lose what they have, in the scenario of that. */
const BOTH_MS = { from: 10_000, to: 30_000 } as const;

/** How often all workers lose their worker IDs in the scenario where claims are undone. */
const CLAIMING_MS = { from: 5_000, to: 9_000 } as const;

/** Actions of workers and clients that a loss triggers. */
interface Others {
  readonly stopWorkers: () => void;
  readonly send: () => void;
  readonly loseLedger: () => void;
}

/**
 * Sets etcd back, to an earlier backup or to nothing, while workers continue: at random times and at the worst moments,
 * which are while the witness of a reservation is in flight, or while readers of the witness topic are behind.
 */
export class EtcdLoss {
  readonly #around: Surroundings;
  readonly #others: Others;
  readonly #operator: Operator;
  readonly #backups: Array<() => void> = [];
  readonly #holds: 'always' | 'once' | 'never';
  /** By process: how late it gets records of the witness topic, while readers are slow. */
  readonly #behindMs = new Map<string, number>();
  /** By process: a function that undoes its newest claim of a worker ID. */
  readonly #claims = new Map<string, () => void>();
  #slowUntilMs = 0;
  #restUntilMs = 0;
  #over = false;

  constructor(around: Surroundings, others: Others) {
    const { world, brokers, scenario } = around;
    this.#around = around;
    this.#others = others;
    this.#operator = new Operator(around, others.stopWorkers);
    this.#holds = scenario === 'late-witness' ? 'always' : world.rng.chance(HOLDING) ? 'once' : 'never';
    this.#backUp();
    if (scenario === 'slow-readers' || scenario === 'lost-heads') this.#again();
    if (scenario === 'both-memories') world.after(world.rng.between(BOTH_MS.from, BOTH_MS.to), () => this.#loseBoth());
    if (scenario === 'lost-claim') this.#loseClaims();
    brokers.meddlers.push((process, message) => this.#meddle(process, message));
  }

  /** The ledger loses its tail while etcd is rolled back. What both remembered alone is lost. */
  #loseBoth(): void {
    const { world, history } = this.#around;
    history.losesBoth = world.tick();
    for (let times = 0; times < 4; times += 1) this.#others.loseLedger();
    this.setBack();
  }

  setBack(): void {
    const { world, scenario } = this.#around;
    const { rng } = world;
    const isSlow = rng.chance(scenario === 'slow-readers' ? 0.9 : 0.3);
    const inMs = isSlow ? rng.between(0, SLOW_MS.before) : 0;
    if (isSlow) this.#slowDown(inMs + rng.between(0, SLOW_MS.after));
    world.after(inMs, () => {
      if (this.#over) return;
      this.#setBack(rng.chance(0.5) ? undefined : this.#backups[rng.below(this.#backups.length)]);
      // The operator who restores a backup may also restart all workers.
      if (rng.chance(isSlow ? 0.6 : 0.3)) this.#others.stopWorkers();
      if (!this.#operator.isWatching) this.#operator.check(rng.between(0, CHECK_MS));
    });
  }

  /** Ends all losses and delays. */
  heal(): void {
    this.#over = true;
    this.#slowUntilMs = 0;
  }

  #again(): void {
    const { world } = this.#around;
    world.after(world.rng.between(AGAIN_MS.from, AGAIN_MS.to), () => {
      if (this.#over) return;
      this.setBack();
      this.#again();
    });
  }

  #meddle(process: string, message: Message): Fate | undefined {
    if (process.startsWith(OPERATOR)) return undefined;
    if (message.call === 'fetch' && message.way === 'back') {
      const isReading = this.#around.brokers.cluster
        .positionsOf(message.request)
        .some(({ topic }) => topic === WITNESS);
      return isReading && this.#around.world.nowMs < this.#slowUntilMs ? this.#behindOf(process) : undefined;
    }
    if (message.call !== 'produce' || message.way !== 'there') return undefined;
    const { topic, batch } = message.request;
    const isReservation = topic === WITNESS && recordsOf(batch)[0]?.value !== null;
    const undo = isReservation ? this.#claims.get(process) : undefined;
    if (undo !== undefined) return this.#undo(process, undo);
    return isReservation && this.#mayHold(process) && this.#around.world.rng.chance(0.5)
      ? this.#holdWitness(process)
      : undefined;
  }

  /** Delays only witnesses of workers that serve: others would not use what they reserve. */
  #mayHold(process: string): boolean {
    const { world, history } = this.#around;
    if (this.#over || this.#holds === 'never' || world.nowMs < this.#restUntilMs || this.#operator.isChecking)
      return false;
    if (this.#holds === 'once' && this.#operator.isWatching) return false;
    return history.appends.some((append) => append.process === process && !append.marks);
  }

  /** Delays the witness of a reservation, so that it arrives while the namespace is being rebuilt: the worst case. */
  #holdWitness(process: string): number {
    const { world } = this.#around;
    const { rng } = world;
    const forMs = rng.between(100, MAX_HELD_MS);
    world.note(() => `the witness of ${process} is held for ${forMs.toFixed(0)} ms`);
    const landsMs = world.nowMs + forMs;
    this.#restUntilMs = landsMs + REST_MS;
    this.#operator.check(rng.between(2, forMs), rng.chance(0.7) ? landsMs + rng.between(5, 50) : undefined);
    world.after(rng.between(0, 2), () => this.#setBack(undefined));
    this.#askSoon(forMs);
    return forMs;
  }

  #askSoon(inMs: number): void {
    const { world } = this.#around;
    for (let sent = 0; sent < REQUESTS; sent += 1) {
      world.after(inMs + world.rng.between(0, ASKING_MS), this.#others.send);
    }
  }

  /** Makes all owners lose their worker IDs, repeatedly, so that they take new ones at about the same time. */
  #loseClaims(): void {
    const { world, store } = this.#around;
    store.onClaim = (process, restore) => {
      this.#claims.clear();
      if (!this.#over && world.nowMs >= this.#restUntilMs) this.#claims.set(process, restore);
    };
    world.after(world.rng.between(CLAIMING_MS.from, CLAIMING_MS.to), () => {
      if (this.#over) return;
      for (let owner = 0; owner < MACHINES; owner += 1) store.expireOne();
      this.#loseClaims();
    });
  }

  /** Undoes a claim, so that the next worker finds the worker ID free and gets it with the same fence. */
  #undo(process: string, restore: () => void): number {
    const { world } = this.#around;
    const { rng } = world;
    const forMs = rng.between(0, MAX_HELD_MS);
    world.note(() => `the witness of ${process} is held for ${forMs.toFixed(0)} ms, its claim undone`);
    this.#claims.clear();
    this.#restUntilMs = world.nowMs + 2 * CLAIMING_MS.from;
    this.#setBack(restore);
    this.#operator.check(CLAIMING_MS.to);
    this.#askSoon(forMs);
    return forMs;
  }

  /** Makes some processes get records of the witness topic late for a while, so that they don't know all witnesses. */
  #slowDown(forMs: number): void {
    const { world } = this.#around;
    this.#slowUntilMs = world.nowMs + forMs;
    this.#behindMs.clear();
    world.note(() => `readers of the witness topic are slow for ${forMs.toFixed(0)} ms`);
  }

  #behindOf(process: string): number | undefined {
    const { rng } = this.#around.world;
    const behindMs = this.#behindMs.get(process) ?? (rng.chance(0.7) ? rng.between(0, MAX_BEHIND_MS) : 0);
    this.#behindMs.set(process, behindMs);
    return behindMs > 0 ? behindMs : undefined;
  }

  #setBack(restore: (() => void) | undefined): void {
    const { world, store, history } = this.#around;
    world.note(() => `etcd is ${restore ? 'restored from a backup' : 'wiped'}`);
    history.setBacks.push(world.tick());
    store.setBack(restore);
  }

  #backUp(): void {
    const { world, store } = this.#around;
    this.#backups.push(store.backUp());
    if (this.#backups.length > BACKUPS) this.#backups.shift();
    world.after(world.rng.between(0, 2 * BACKUP_MS), () => this.#backUp());
  }
}

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
  readonly #around: Surroundings;
  readonly #workers: Workers;
  /** By process: when etcd refused its latest writes. */
  readonly #refusedMs = new Map<string, number[]>();
  #isFull = false;
  #over = false;

  constructor(around: Surroundings, workers: Workers) {
    this.#around = around;
    this.#workers = workers;
    around.store.onRefused = (process) => this.#count(process);
    this.#fillLater();
  }

  /** Gives etcd space for good. */
  heal(): void {
    this.#over = true;
    this.#free();
  }

  #fillLater(): void {
    const { world } = this.#around;
    world.after(world.rng.between(SPACE_MS.from, SPACE_MS.to), () => {
      if (!this.#over) this.#fill();
    });
  }

  #fill(): void {
    const { world, store } = this.#around;
    const { rng } = world;
    const forMs = rng.between(FULL_MS.from, FULL_MS.to);
    world.note(() => `etcd refuses writes for ${forMs.toFixed(0)} ms`);
    this.#isFull = true;
    store.fill(rng.chance(0.5));
    if (forMs > SUCCEEDED_MS && rng.chance(0.5)) this.#workers.killOne();
    world.after(forMs, () => this.#free());
  }

  #free(): void {
    const { world, store } = this.#around;
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
    const { history } = this.#around;
    const reason = worker.unready;
    if (!process.running || reason === undefined || !WAITS.has(reason)) return;
    history.unresumed.push(`${process.name} is still ${reason} ${RESUMED_MS} ms after etcd takes writes again`);
  }

  #count(process: string): void {
    const { world, history } = this.#around;
    const lately = (this.#refusedMs.get(process) ?? []).filter((atMs) => world.nowMs - atMs < 1_000);
    lately.push(world.nowMs);
    this.#refusedMs.set(process, lately);
    if (lately.length <= MOST_REFUSED) return;
    history.unresumed.push(`${process} sent ${lately.length} writes within a second to an etcd that refuses them`);
    this.#refusedMs.delete(process);
  }
}
