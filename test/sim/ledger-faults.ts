import type { FetchRequest } from '../../src/kafka/wire/record-apis.ts';
import type { Fate, Message } from '../support/fake-kafka/network.ts';
import type { BrokerFaults } from './broker-faults.ts';
import type { Clients } from './clients.ts';
import { readsBack } from './copy-watch.ts';
import { sameRanges } from './decisions.ts';
import type { History } from './history.ts';
import type { Surroundings } from './host.ts';
import { pairOf } from './pairs.ts';
import { kindOf } from './recorder.ts';
import { keepsItsTime } from './scenario.ts';
import { CLOCK_MARGIN_MS, RENEW_AFTER_MS } from './setting.ts';

/** How long to delay an append that should lose, so that another worker can decide meanwhile. */
const HELD_MS = { from: 2_000, to: 10_000 } as const;
/** The share of decisions whose append the scenario delays. */
const HELD = 0.1;
/** The time from the append of a loser until the log is trimmed before it. */
const CUT_MS = 2_000;
/** The number of correlation IDs that are sent again when the ledger has lost its tail. */
const AGAIN = 6;
/** How long requests are kept. The ledger keeps entries longer, by more than brokers' clocks may differ. */
const KEPT_MS = 8_000;
const LONGER_MS = RENEW_AFTER_MS + CLOCK_MARGIN_MS;

/** The faults of workers that accompany those of the ledger. */
export interface Workers {
  /** Kills a process by its name; its machine keeps its disk. */
  readonly kill: (process: string) => void;
  /** Kills a worker, whose machine loses its disk. */
  readonly destroyOne: () => void;
  /** Keeps a worker from reading a ledger partition for a while: it is frozen, cut off from the leader, or down. */
  readonly blindOne: (partition: number) => void;
  /** Kills the owner of the partition; its machine keeps its disk. */
  readonly killOwner: (partition: number) => void;
}

/** Faults of the ledger: retention, lost tails, and late entries. */
export class LedgerFaults {
  readonly #around: Surroundings;
  readonly #clients: Clients;
  readonly #workers: Workers;
  readonly #brokerFaults: Pick<BrokerFaults, 'freezeLeader'>;
  /** The shares of read-backs during which the leader freezes, or the log loses the entries. */
  readonly #readsMeet: { readonly frozen: number; readonly gone: number };
  /** Processes whose restore retention overtakes, at their next fetch of entries that they lack. */
  readonly #overtaken = new Set<string>();
  #over = false;

  constructor(
    around: Surroundings,
    clients: Clients,
    workers: Workers,
    brokerFaults: Pick<BrokerFaults, 'freezeLeader'>,
  ) {
    this.#around = around;
    this.#clients = clients;
    this.#workers = workers;
    this.#brokerFaults = brokerFaults;
    const { rng } = around.world;
    const [frozen, gone] = [rng.chance(0.3) ? 0.05 : 0, rng.chance(0.3) ? 0.05 : 0];
    const isCalm = ['take-over', 'full-etcd', 'each-loses'].includes(around.scenario ?? '');
    this.#readsMeet = {
      frozen: isCalm ? 0 : frozen,
      gone: keepsItsTime(around.scenario) || around.scenario === 'each-loses' ? 0 : gone,
    };
    around.brokers.meddlers.push((process, message) => this.#meddle(process, message));
  }

  /** Ends all faults. */
  heal(): void {
    this.#over = true;
  }

  /** Makes retention delete entries that a process lacks, at any moment while it restores its index. */
  overtake(process: string): void {
    this.#overtaken.add(process);
  }

  /** Trims the head of the ledger: preferably between a deciding entry and a later one under the same key. */
  trim(): void {
    const { world, brokers } = this.#around;
    const partition = world.rng.below(brokers.partitions);
    if (world.rng.chance(0.8) && this.#cutBeforeLoser(partition)) return;
    const { low, high } = brokers.bounds('ledger', partition);
    brokers.trim(partition, low + world.rng.below(high - low + 1));
  }

  truncate(): void {
    const { world, brokers } = this.#around;
    const partition = world.rng.below(brokers.partitions);
    const { low, high } = brokers.bounds('ledger', partition);
    brokers.truncate(partition, Math.max(low, high - world.rng.below(6)));
  }

  /**
   * Truncates or recreates the log while one worker can't read it. Others append until it is as long again as that
   * worker knows it, and that worker may then serve it. Correlation IDs decided before and after are sent again.
   */
  loseTail(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const partition = rng.below(brokers.partitions);
    this.askAgain(partition, 0);
    world.after(rng.between(500, 1_500), () => {
      if (this.#over) return;
      const { low, high } = brokers.bounds('ledger', partition);
      const lost = rng.chance(0.5) ? rng.below(6) : rng.below(high - low + 1);
      if (rng.chance(0.7)) this.#workers.blindOne(partition);
      if (rng.chance(0.2)) brokers.recreateLedger();
      else brokers.truncate(partition, Math.max(low, high - lost));
      const lostAt = world.tick();
      for (let left = rng.below(2 * lost + 10); left > 0; left -= 1) {
        world.after(rng.between(0, 2_500), () => this.#clients.sendTo(partition));
        if (world.hasSequences) world.after(rng.between(0, 5_000), () => this.#clients.takeNumbersOf(partition));
      }
      if (rng.chance(0.4)) world.after(rng.between(2_500, 4_000), () => this.#workers.killOwner(partition));
      world.after(3_000, () => this.askAgain(partition, lostAt));
      world.after(rng.between(3_000, 12_000), () => this.askAgain(partition, 0));
    });
  }

  /** Sends some of the correlation IDs again that were decided since then. */
  askAgain(partition: number, since: number): void {
    const { world, history } = this.#around;
    const decided = [...history.entries, ...history.numbers];
    const known = decided.filter((one) => one.partition === partition && one.order > since);
    for (const { correlationId } of known.filter(() => world.rng.chance(AGAIN / known.length))) {
      this.#clients.repeatSoon(partition, correlationId);
    }
  }

  /**
   * Retention as the documentation requires it: requests are deleted when they are old, and entries when they are older
   * by a margin. Workers write markers often enough that an anchor is left.
   */
  age(): void {
    const { brokers, history } = this.#around;
    for (let partition = 0; partition < brokers.partitions; partition += 1) {
      const anchor = history.marks.findLast((one) => one.partition === partition && one.offset === one.end);
      const requests = brokers.agedTo('requests', partition, KEPT_MS);
      const ledger = Math.min(brokers.agedTo('ledger', partition, KEPT_MS + LONGER_MS), anchor?.offset ?? 0);
      if (requests > brokers.bounds('requests', partition).low) brokers.trimRequests(partition, requests);
      if (ledger > brokers.bounds('ledger', partition).low) brokers.trim(partition, ledger);
    }
  }

  #meddle(process: string, message: Message): Fate | undefined {
    if (message.way === 'back') return undefined;
    if (message.call === 'fetch') this.#meddleWithFetch(process, message.request);
    if (message.call !== 'produce' || this.#around.scenario !== 'retention' || this.#over) return undefined;
    const { topic, partition, batch } = message.request;
    const { rng } = this.#around.world;
    const pair = pairOf('ledger', topic);
    if (pair === undefined || kindOf(batch) !== 'decisions' || !rng.chance(HELD)) return undefined;
    return this.#holdBack(process, pair.first + partition);
  }

  #meddleWithFetch(process: string, request: FetchRequest): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    for (const { topic, partition, offset } of brokers.cluster.positionsOf(request)) {
      const pair = pairOf('ledger', topic);
      if (pair && this.#overtaken.has(process)) this.#overtakeAt(process, pair.first + partition, offset);
    }
    const [wanted] = request.partitions;
    if (!readsBack(request) || wanted === undefined || this.#over) return;
    const { offset } = wanted;
    const partition = (pairOf('ledger', wanted.topic)?.first ?? 0) + wanted.partition;
    if (this.#readsMeet.frozen > 0 && rng.chance(this.#readsMeet.frozen)) {
      world.after(rng.between(0, 3), () => this.#brokerFaults.freezeLeader(partition));
    }
    if (this.#readsMeet.gone > 0 && rng.chance(this.#readsMeet.gone)) {
      world.after(rng.between(0, 3), () => brokers.trim(partition, offset + 1 + rng.below(3)));
    }
  }

  /** Trims before a fetch of a restore. A follower that only reads its last entry again is not restoring. */
  #overtakeAt(process: string, partition: number, offset: number): void {
    const { world, brokers } = this.#around;
    if (offset + 1 >= brokers.bounds('ledger', partition).high) return;
    this.#overtaken.delete(process);
    world.after(world.rng.between(0, 4), () => brokers.trim(partition, brokers.bounds('ledger', partition).high));
  }

  /** Delays an append and kills its sender, so that another worker decides first and the append becomes a loser. */
  #holdBack(process: string, partition: number): number {
    const { world } = this.#around;
    const { rng } = world;
    const forMs = rng.between(HELD_MS.from, HELD_MS.to);
    world.note(() => `an append of ${process} to ledger ${partition} is delayed for ${forMs.toFixed(0)} ms`);
    world.after(rng.between(0, 5), () => this.#workers.kill(process));
    // A request sent now is recent for the loser, and may be old for the deciding entry.
    world.after(forMs + rng.between(5, CUT_MS / 4), () => {
      for (const { correlationId } of this.#losers(partition))
        this.#clients.repeatSoon(partition, correlationId, CUT_MS / 2);
    });
    world.after(forMs + rng.between(0, CUT_MS), () => this.#cutBeforeLoser(partition));
    return forMs;
  }

  /**
   * Trims the deciding entry, so that a worker that restores or expires finds only the loser; false if there is none.
   */
  #cutBeforeLoser(partition: number): boolean {
    const { world, brokers } = this.#around;
    const losers = this.#losers(partition);
    if (losers.length === 0) return false;
    const { at, correlationId } = world.rng.pick(losers);
    brokers.trim(partition, at);
    this.#clients.repeatSoon(partition, correlationId);
    if (world.rng.chance(0.5)) this.#workers.destroyOne();
    return true;
  }

  /** Keys with a later entry that differs from the deciding one. */
  #losers(partition: number): { readonly at: number; readonly correlationId: string }[] {
    const { brokers, history } = this.#around;
    const { low } = brokers.bounds('ledger', partition);
    const decided = new Map<string, History['entries'][number]>();
    return history.entries.flatMap((entry) => {
      const { correlationId } = entry;
      if (entry.partition !== partition) return [];
      const winner = decided.get(correlationId);
      if (winner === undefined) decided.set(correlationId, entry);
      if (winner === undefined || winner.offset < low || sameRanges(winner.batch, entry.batch)) return [];
      return [{ at: winner.offset + 1, correlationId }];
    });
  }
}
