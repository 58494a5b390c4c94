import type { FetchRequest } from '../../src/kafka/wire/port.ts';
import type { Fate, Message } from '../support/fake-kafka/network.ts';
import type { BrokerFaults } from './broker-faults.ts';
import type { Clients } from './clients.ts';
import { readsBack } from './copy-watch.ts';
import { sameRanges } from './decisions.ts';
import type { History } from './history.ts';
import type { Place } from './host.ts';
import { pairOf } from './pairs.ts';
import { kindOf } from './recorder.ts';
import { keepsItsTime } from './scenario.ts';
import { CLOCK_MARGIN_MS, RENEW_AFTER_MS } from './setting.ts';

/** How long to delay an append that should lose, so that another worker can decide meanwhile. */
const HELD_MS = { from: 2_000, to: 10_000 } as const;
/** The share of deciding appends that the scenario delays. */
const HELD = 0.1;
/** How long from the landing of a loser until the log is cut in front of it. */
const CUT_MS = 2_000;
/** So many correlation IDs are asked again where the ledger loses its tail. */
const AGAIN = 6;
/** How old requests become, and how much longer the ledger keeps what it has: what brokers' clocks may differ by as well. */
const KEPT_MS = 8_000;
const LONGER_MS = RENEW_AFTER_MS + CLOCK_MARGIN_MS;

/** What may be done to workers from here. */
export interface Workers {
  /** Kills one, by the name of its process; its machine keeps its disk. */
  readonly kill: (process: string) => void;
  /** Kills one of them, whose machine loses its disk. */
  readonly destroyOne: () => void;
  /** One of them sees nothing of a ledger partition for a while: it is frozen, cut off from its leader, or down. */
  readonly blindOne: (partition: number) => void;
  /** Kills who has the partition; its machine keeps its disk. */
  readonly killOwner: (partition: number) => void;
}

/** What happens to the ledger: retention, lost tails, and entries that come to it late. */
export class LedgerFaults {
  readonly #place: Place;
  readonly #clients: Clients;
  readonly #workers: Workers;
  readonly #brokerFaults: Pick<BrokerFaults, 'freezeLeader'>;
  /** How many of the fetches that read entries back meet a leader that freezes, or a log that has lost them by then. */
  readonly #readsMeet: { readonly frozen: number; readonly gone: number };
  /** Processes whose restore retention overtakes: at their next fetch of what they lack. */
  readonly #overtaken = new Set<string>();
  #over = false;

  constructor(place: Place, clients: Clients, workers: Workers, brokerFaults: Pick<BrokerFaults, 'freezeLeader'>) {
    this.#place = place;
    this.#clients = clients;
    this.#workers = workers;
    this.#brokerFaults = brokerFaults;
    const { rng } = place.world;
    const [frozen, gone] = [rng.chance(0.3) ? 0.05 : 0, rng.chance(0.3) ? 0.05 : 0];
    const isCalm = place.scenario === 'take-over';
    this.#readsMeet = { frozen: isCalm ? 0 : frozen, gone: keepsItsTime(place.scenario) ? 0 : gone };
    place.brokers.meddlers.push((process, message) => this.#meddle(process, message));
  }

  /** Nothing is held up any more. */
  heal(): void {
    this.#over = true;
  }

  /** Retention takes what a process lacks of the ledger while it restores its index: at any moment of that. */
  overtake(process: string): void {
    this.#overtaken.add(process);
  }

  /** Retention takes the head: best of all between an entry that decides and a later one under the same key. */
  trim(): void {
    const { world, brokers } = this.#place;
    const partition = world.rng.below(brokers.partitions);
    if (world.rng.chance(0.8) && this.#cutBeforeLoser(partition)) return;
    const { low, high } = brokers.bounds('ledger', partition);
    brokers.trim(partition, low + world.rng.below(high - low + 1));
  }

  truncate(): void {
    const { world, brokers } = this.#place;
    const partition = world.rng.below(brokers.partitions);
    const { low, high } = brokers.bounds('ledger', partition);
    brokers.truncate(partition, Math.max(low, high - world.rng.below(6)));
  }

  /**
   * The log loses some of its tail, or is made anew, and one worker does not see it. Others write in its place what is new,
   * so that it is as long again as the blind one knows it, and may come to serve it. What was decided before and after is
   * asked again.
   */
  loseTail(): void {
    const { world, brokers } = this.#place;
    const { rng } = world;
    const partition = rng.below(brokers.partitions);
    this.#askAgain(partition, 0);
    world.after(rng.between(500, 1_500), () => {
      if (this.#over) return;
      const { low, high } = brokers.bounds('ledger', partition);
      const lost = rng.chance(0.5) ? rng.below(6) : rng.below(high - low + 1);
      if (rng.chance(0.7)) this.#workers.blindOne(partition);
      if (rng.chance(0.2)) brokers.recreateLedger();
      else brokers.truncate(partition, Math.max(low, high - lost));
      const lostAt = world.tick();
      for (let left = rng.below(2 * lost + 10); left > 0; left -= 1) {
        world.after(rng.between(0, 2_500), () => this.#clients.askAt(partition));
      }
      if (rng.chance(0.4)) world.after(rng.between(2_500, 4_000), () => this.#workers.killOwner(partition));
      world.after(3_000, () => this.#askAgain(partition, lostAt));
      world.after(rng.between(3_000, 12_000), () => this.#askAgain(partition, 0));
    });
  }

  /** Some of what was decided since then is asked again. */
  #askAgain(partition: number, since: number): void {
    const { world, history } = this.#place;
    const known = history.entries.filter((one) => one.partition === partition && one.order > since);
    for (const { correlationId } of known.filter(() => world.rng.chance(AGAIN / known.length))) {
      this.#clients.repeatSoon(partition, correlationId);
    }
  }

  /**
   * Retention as it is demanded: requests go when they are old, and entries when they are so much older. Whoever serves
   * marks the ledger often enough for an anchor to be left.
   */
  age(): void {
    const { brokers, history } = this.#place;
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
    if (message.call !== 'produce' || this.#place.scenario !== 'retention' || this.#over) return undefined;
    const { topic, partition, batch } = message.request;
    const { rng } = this.#place.world;
    const pair = pairOf('ledger', topic);
    if (pair === undefined || kindOf(batch) !== 'decisions' || !rng.chance(HELD)) return undefined;
    return this.#holdBack(process, pair.first + partition);
  }

  #meddleWithFetch(process: string, request: FetchRequest): void {
    const { world, brokers } = this.#place;
    const { rng } = world;
    for (const { topic, partition, offset } of request.partitions) {
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

  /** Whoever follows the log reads its last entry again: less than that is no restore. */
  #overtakeAt(process: string, partition: number, offset: number): void {
    const { world, brokers } = this.#place;
    if (offset + 1 >= brokers.bounds('ledger', partition).high) return;
    this.#overtaken.delete(process);
    world.after(world.rng.between(0, 4), () => brokers.trim(partition, brokers.bounds('ledger', partition).high));
  }

  /** Its sender dies, another worker decides the same request, and only then it reaches the log: a differing loser. */
  #holdBack(process: string, partition: number): number {
    const { world } = this.#place;
    const { rng } = world;
    const forMs = rng.between(HELD_MS.from, HELD_MS.to);
    world.note(() => `an append of ${process} to ledger ${partition} is held up for ${forMs.toFixed(0)} ms`);
    world.after(rng.between(0, 5), () => this.#workers.kill(process));
    // A request that comes now is young for the loser, and may be old for what decides.
    world.after(forMs + rng.between(5, CUT_MS / 4), () => {
      for (const { correlationId } of this.#losers(partition))
        this.#clients.repeatSoon(partition, correlationId, CUT_MS / 2);
    });
    world.after(forMs + rng.between(0, CUT_MS), () => this.#cutBeforeLoser(partition));
    return forMs;
  }

  /** Whoever restores its index now, or lets go of what is gone, finds the later entry alone. False when there is none. */
  #cutBeforeLoser(partition: number): boolean {
    const { world, brokers } = this.#place;
    const losers = this.#losers(partition);
    if (losers.length === 0) return false;
    const { at, correlationId } = world.rng.pick(losers);
    brokers.trim(partition, at);
    this.#clients.repeatSoon(partition, correlationId);
    if (world.rng.chance(0.5)) this.#workers.destroyOne();
    return true;
  }

  /** Keys with a later entry that differs from the one that decides; a copy of it tells nobody anything else. */
  #losers(partition: number): { readonly at: number; readonly correlationId: string }[] {
    const { brokers, history } = this.#place;
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
