import type { Fate, Message } from '../support/fake-kafka/network.ts';
import type { Asker } from './asker.ts';
import { sameRanges } from './decisions.ts';
import type { History } from './history.ts';
import type { Place } from './host.ts';
import { kindOf } from './recorder.ts';
import { LEDGER, PARTITIONS } from './setting.ts';

/** How long an append is held up that is to become a loser, so that somebody else can decide meanwhile. */
const HELD_MS = { from: 2_000, to: 10_000 } as const;
/** In the scenario, so many of the appends that decide are held up. */
const HELD = 0.1;
/** How long from the landing of a loser until the log is cut in front of it. */
const CUT_MS = 2_000;

/** What may be done to workers from here. */
export interface Workers {
  /** Kills one, by the name of its process; its machine keeps its disk. */
  readonly kill: (process: string) => void;
  /** Kills one of them, whose machine loses its disk. */
  readonly destroyOne: () => void;
}

/** What happens to the ledger: retention, lost tails, and entries that come to it late. */
export class LedgerFaults {
  readonly #place: Place;
  readonly #asker: Asker;
  readonly #workers: Workers;
  /** Processes whose restore retention overtakes: at their next fetch of what they lack. */
  readonly #overtaken = new Set<string>();
  #over = false;

  constructor(place: Place, asker: Asker, workers: Workers) {
    this.#place = place;
    this.#asker = asker;
    this.#workers = workers;
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
    const partition = world.rng.below(PARTITIONS);
    if (world.rng.chance(0.8) && this.#cutBeforeLoser(partition)) return;
    const { low, high } = brokers.bounds(LEDGER, partition);
    brokers.trim(partition, low + world.rng.below(high - low + 1));
  }

  truncate(): void {
    const { world, brokers } = this.#place;
    const partition = world.rng.below(PARTITIONS);
    const { low, high } = brokers.bounds(LEDGER, partition);
    brokers.truncate(partition, Math.max(low, high - world.rng.below(6)));
  }

  #meddle(process: string, message: Message): Fate | undefined {
    if (message.way === 'back') return undefined;
    if (message.call === 'fetch' && this.#overtaken.has(process)) {
      for (const { topic, partition, offset } of message.request.partitions) {
        if (topic === LEDGER) this.#overtakeAt(process, partition, offset);
      }
    }
    if (message.call !== 'produce' || this.#place.scenario !== 'retention' || this.#over) return undefined;
    const { topic, partition, batch } = message.request;
    const { rng } = this.#place.world;
    if (topic !== LEDGER || kindOf(batch) !== 'decisions' || !rng.chance(HELD)) return undefined;
    return this.#holdBack(process, partition);
  }

  /** Whoever follows the log reads its last entry again: less than that is no restore. */
  #overtakeAt(process: string, partition: number, offset: number): void {
    const { world, brokers } = this.#place;
    if (offset + 1 >= brokers.bounds(LEDGER, partition).high) return;
    this.#overtaken.delete(process);
    world.after(world.rng.between(0, 4), () => brokers.trim(partition, brokers.bounds(LEDGER, partition).high));
  }

  /** Its sender dies, somebody decides the same anew, and only then it comes to the log: a loser that differs. */
  #holdBack(process: string, partition: number): number {
    const { world } = this.#place;
    const { rng } = world;
    const forMs = rng.between(HELD_MS.from, HELD_MS.to);
    world.note(() => `an append of ${process} to ledger ${partition} is held up for ${forMs.toFixed(0)} ms`);
    world.after(rng.between(0, 5), () => this.#workers.kill(process));
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
    this.#asker.repeatSoon(partition, correlationId);
    if (world.rng.chance(0.5)) this.#workers.destroyOne();
    return true;
  }

  /** Keys with a later entry that differs from the one that decides; a copy of it tells nobody anything else. */
  #losers(partition: number): { readonly at: number; readonly correlationId: string }[] {
    const { brokers, history } = this.#place;
    const { low } = brokers.bounds(LEDGER, partition);
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
