import type { BrokerFaults } from './broker-faults.ts';
import type { Clients } from './clients.ts';
import { isLost } from './decisions.ts';
import type { RequestLoss } from './history.ts';
import type { Host, Surroundings } from './host.ts';
import type { LedgerFaults } from './ledger-faults.ts';
import { pairOf } from './pairs.ts';
import { PARTITIONS, SESSION_MS } from './setting.ts';

/** Which logs lose their tails. Requests more often: other scenarios truncate the ledger as well. */
const KINDS = ['requests', 'requests', 'both', 'ledger'] as const;
/** Who can't reach the brokers meanwhile. */
const BLIND = ['owner', 'owner', 'other', 'other', 'none'] as const;

/** The time for requests before a worker is blind, and from one round to the next. */
const BEFORE_MS = 2_000;
const ROUND_MS = 21_000;
/**
 * How long a worker is blind. The others believe in a shorter ledger after 6 s; then it grows again, before that worker
 * sees it.
 */
const BLIND_MS = { requests: { from: 4_000, to: 10_000 }, ledger: { from: 10_000, to: 14_000 } } as const;
const LOST_MS = 1_500;
/**
 * The share of losses of a single request, after which no request comes until a worker gives up waiting for a longer
 * log.
 */
const QUIET = 0.5;
const QUIET_MS = 8_000;
/** The time within which clients send after a loss. */
const SENDING_MS = 3_000;
/** From the end of the blindness to the death of the others, and to the last repetitions, when another serves. */
const KILL_MS = { from: 1_500, to: 3_000 } as const;
const AGAIN_MS = KILL_MS.to + SESSION_MS + 1_000;
/** The most records that a log loses. */
const MOST_LOST = 6;
/** Requests that arrive while the owner goes blind may be in progress until it sees again. */
const BLINDED_MS = 400;
/** The share of losses that no worker can notice, because the request log is as long again at once. */
const UNNOTICED = 0.25;
const FILL_MS = 500;
/** Beyond this many requests the log grows by dense batches, after the loss of one. */
const FAR = 50;

/** The workers, as TailLosses needs them. */
interface Workers {
  readonly hosts: () => readonly Host[];
  /** Kills a process by its name; it restarts `backMs` later. */
  readonly kill: (process: string, backMs: number) => void;
}

/** A loss that nobody has noticed yet. Until then its partition must end below this, else nobody can notice. */
interface Pending {
  readonly loss: RequestLoss;
  readonly below: number;
  readonly quietUntilMs: number;
  /** Processes that read the log as it is now. */
  readonly aware: Set<string>;
  /** One that was not aware has committed what it had read before: the next owner may begin beyond new requests. */
  isPassed: boolean;
}

/**
 * Request partitions, ledger partitions or both lose their tails: in an unclean election, or while all brokers are
 * away. One worker may be blind meanwhile. Clients send again what they had sent before, and new requests at the
 * offsets that became free.
 *
 * A worker notices a shorter request log by a fetch beyond its end. So a partition stays shorter than what any worker
 * has read or committed, until the owner reads from below its end and has committed such an offset. In some rounds it
 * is as long again at once: the requests at reused offsets may then be passed over, but nothing may be decided twice.
 */
export class TailLosses {
  readonly #around: Surroundings;
  readonly #clients: Clients;
  readonly #workers: Workers;
  readonly #ledgerFaults: LedgerFaults;
  readonly #brokerFaults: BrokerFaults;
  readonly #pending = new Map<number, Pending>();
  /** By partition and process: the offset of the last fetch of requests. */
  readonly #fetched = new Map<number, Map<string, number>>();
  #isOver = false;

  constructor(
    around: Surroundings,
    clients: Clients,
    workers: Workers,
    faults: { readonly ledger: LedgerFaults; readonly brokers: BrokerFaults },
  ) {
    this.#around = around;
    this.#clients = clients;
    this.#workers = workers;
    this.#ledgerFaults = faults.ledger;
    this.#brokerFaults = faults.brokers;
    const { world, brokers } = around;
    clients.isPlain = true;
    brokers.requestsEndBelow = (partition) => {
      const { loss, below } = this.#pending.get(partition) ?? {};
      if (loss === undefined || below === undefined) return Number.POSITIVE_INFINITY;
      const committed = brokers.committed(partition) ?? 0;
      return committed > loss.from ? Math.min(below, committed) : below;
    };
    brokers.recorder.onCommit = (process, partition, offset) => {
      const pending = this.#pending.get(partition);
      if (pending === undefined) return;
      if (offset > pending.loss.from && !pending.aware.has(process)) pending.isPassed = true;
      else this.#lookAgain(partition);
    };
    brokers.meddlers.push((process, { call, request, way }) => {
      if (call !== 'fetch' || way === 'back') return undefined;
      for (const { topic, partition, offset } of brokers.cluster.positionsOf(request)) {
        if (pairOf('requests', topic) !== undefined) this.#onFetch(process, partition, offset);
      }
      return undefined;
    });
    world.after(world.rng.between(500, BEFORE_MS), () => this.#round());
  }

  /**
   * Ends the losses. Requests go on until each partition ends above what its ledger knows: below that no worker serves
   * it.
   */
  heal(): void {
    this.#isOver = true;
    for (let partition = 0; partition < PARTITIONS; partition += 1) {
      this.#ledgerFaults.askAgain(partition, 0);
      growBeyondLedger(this.#around, this.#clients, partition);
    }
  }

  /** Losses that the next owner of a partition would not know of. */
  missing(): string[] {
    return [...this.#pending.keys()].map(
      (partition) => `the lost tail of requests ${partition} is not seen or committed`,
    );
  }

  #round(): void {
    if (this.#isOver) return;
    const { world } = this.#around;
    const { rng } = world;
    const partition = rng.below(PARTITIONS);
    this.#sendSome(partition, MOST_LOST, BEFORE_MS);
    world.after(BEFORE_MS, () => this.#loseSomething(partition));
    world.after(ROUND_MS, () => this.#round());
  }

  #loseSomething(partition: number): void {
    if (this.#isOver) return;
    const { world } = this.#around;
    const { rng } = world;
    const kind = rng.pick(KINDS);
    const { from, to } = BLIND_MS[kind === 'requests' ? 'requests' : 'ledger'];
    const blindMs = rng.between(from, to);
    this.#sendSome(partition, MOST_LOST, BLINDED_MS);
    const blinded = this.#blind(partition, rng.pick(BLIND), blindMs);
    world.after(rng.between(0, LOST_MS), () => {
      const lose = (): void => this.#lose(partition, kind);
      if (!rng.chance(0.3) || !this.#brokerFaults.restartAll(lose)) lose();
    });
    const beganAt = world.tick();
    world.after(blindMs + AGAIN_MS, () => this.#askAgain(partition, beganAt));
    if (rng.chance(0.7)) {
      const inMs = blindMs + rng.between(KILL_MS.from, KILL_MS.to);
      world.after(inMs, () => !this.#isOver && this.#killAllBut(blinded));
    }
  }

  /**
   * Keeps a worker from all brokers for a while: cut off or frozen. What it is about to decide may take even longer.
   */
  #blind(partition: number, who: (typeof BLIND)[number], forMs: number): string | undefined {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const owns = ({ process }: Host): boolean => brokers.shareOf(process.name).partitions.includes(partition);
    const chosen = this.#workers.hosts().filter((host) => host.process.running && owns(host) === (who === 'owner'));
    if (who === 'none' || chosen.length === 0) return undefined;
    const { process } = rng.pick(chosen);
    if (rng.chance(0.5)) process.slowUntilMs = world.nowMs + BLINDED_MS + forMs + rng.between(0, 4_000);
    const freezes = rng.chance(0.3);
    world.after(rng.between(0, BLINDED_MS), () => {
      world.note(() => `${process.name} ${freezes ? 'freezes' : 'is cut off from kafka'} for ${forMs.toFixed(0)} ms`);
      if (freezes) process.freeze();
      else process.cut.add('kafka');
      world.after(forMs, () => {
        if (freezes) process.thaw();
        else process.cut.delete('kafka');
      });
    });
    return process.name;
  }

  /** Whoever was blind must serve then, with what it knows. */
  #killAllBut(spared: string | undefined): void {
    for (const { process } of this.#workers.hosts()) {
      if (process.name !== spared) this.#workers.kill(process.name, SESSION_MS + AGAIN_MS);
    }
  }

  #lose(partition: number, kind: (typeof KINDS)[number]): void {
    if (this.#isOver) return;
    const { world, brokers } = this.#around;
    const { rng } = world;
    const isQuiet = kind === 'requests' && rng.chance(QUIET);
    const lostOf = (what: 'requests' | 'ledger'): number => {
      const { low, high } = brokers.bounds(what, partition);
      return Math.max(low, high - 1 - (isQuiet ? 0 : rng.below(MOST_LOST)));
    };
    if (kind !== 'requests') brokers.truncate(partition, lostOf('ledger'));
    const loss = kind === 'ledger' ? undefined : brokers.truncateRequests(partition, lostOf('requests'));
    if (loss !== undefined && (isQuiet || !rng.chance(UNNOTICED))) {
      const below = isQuiet ? loss.from : Math.min(loss.end, this.#lowestRead(partition, loss.from));
      const quietUntilMs = isQuiet ? world.nowMs + QUIET_MS : 0;
      this.#pending.set(partition, { loss, below, quietUntilMs, aware: new Set(), isPassed: false });
      world.after(QUIET_MS, () => this.#lookAgain(partition));
    }
    this.#sendSome(partition, 2 * MOST_LOST, SENDING_MS);
    this.#askAgain(partition, 0);
  }

  /** The lowest offset above `from` at which a worker may continue, as far as fetches and commits show. */
  #lowestRead(partition: number, from: number): number {
    const committed = this.#around.brokers.committed(partition) ?? 0;
    // An answer may be on its way to who has fetched from below: it may have ended anywhere.
    const fetched = [...(this.#fetched.get(partition)?.values() ?? [])].map((offset) => Math.max(offset, from + 1));
    return Math.min(...fetched, committed > from ? committed : Number.POSITIVE_INFINITY);
  }

  #onFetch(process: string, partition: number, offset: number): void {
    const own = this.#fetched.get(partition) ?? new Map<string, number>();
    this.#fetched.set(partition, own.set(process, offset));
    const pending = this.#pending.get(partition);
    if (pending === undefined) return;
    const { world, brokers } = this.#around;
    const end = brokers.bounds('requests', partition).high;
    if (offset <= end) pending.aware.add(process);
    if (world.nowMs < pending.quietUntilMs || offset > end || (brokers.committed(partition) ?? 0) > end) return;
    this.#pending.delete(partition);
    if (!pending.isPassed) pending.loss.seen = world.tick();
    world.note(() => `requests ${partition}: ${process} has seen the loss`);
    this.#sendSome(partition, 2 * MOST_LOST, SENDING_MS);
    this.#askAgain(partition, 0);
  }

  /** Whoever is aware may have nothing to fetch for now, such as while it refuses to serve. */
  #lookAgain(partition: number): void {
    for (const [process, offset] of this.#fetched.get(partition) ?? []) {
      if (this.#pending.get(partition)?.aware.has(process) === true) this.#onFetch(process, partition, offset);
    }
  }

  #sendSome(partition: number, most: number, withinMs: number): void {
    const { world } = this.#around;
    for (let left = 1 + world.rng.below(most); left > 0; left -= 1) {
      world.after(world.rng.between(0, withinMs), () => this.#clients.sendTo(partition));
    }
  }

  /** Sends requests again that were decided since then, and some that were lost. */
  #askAgain(partition: number, since: number): void {
    const { history } = this.#around;
    this.#ledgerFaults.askAgain(partition, since);
    const lost = history.requests.filter((one) => one.partition === partition && isLost(history, one));
    for (const { correlationId } of lost.slice(-MOST_LOST)) this.#clients.repeatSoon(partition, correlationId);
  }
}

/** Sends requests until the partition ends above all that its ledger ever knew of: below that no worker serves it. */
export function growBeyondLedger({ world, brokers, history }: Surroundings, clients: Clients, partition: number): void {
  const own = history.marks.filter((one) => one.partition === partition).map(({ through }) => through);
  const decided = history.entries.filter((one) => one.partition === partition).map((one) => one.requestOffset);
  const known = Math.max(-1, ...own, ...decided);
  const fill = (): void => {
    const { high } = brokers.bounds('requests', partition);
    if (high > known + 1) return;
    clients.sendTo(partition, known - high > FAR);
    world.after(FILL_MS, fill);
  };
  fill();
}
