import type { Span } from '../../adapters/kafka/topics/offsets.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import type { Finding } from './check.ts';
import { type BatchLocation, logOf } from './location.ts';
import type { FoundNumbers } from './number-store.ts';
import { sharesId } from './overlap.ts';

/** An entry at a lower offset than the end that its writer had read. */
interface Misplaced {
  readonly location: BatchLocation;
  readonly end: number;
  /** When it was decided at the earliest. */
  readonly decidedMs: number;
}

/** Misplaced entries that are reported in each ledger partition. */
const MAX_MISPLACED = 1_000;

/**
 * When ledger partitions last stated that their tails are lost. A decision from before such a statement may be missing for that reason. An
 * entry from before it that lies at another offset than its own may be from a copy that an operator has adopted.
 */
export class LostTails {
  readonly #lastMs = new Map<string, number>();
  readonly #misplaced = new Map<string, Misplaced[]>();
  readonly #partitions: ReadonlyMap<string, number>;

  /** `partitions`: how many decide, in each ledger. */
  constructor(partitions: ReadonlyMap<string, number>) {
    this.#partitions = partitions;
  }

  add(log: string, statedMs: number): void {
    this.#misplaced.delete(log);
    this.#lastMs.set(log, Math.max(statedMs, this.#lastMs.get(log) ?? statedMs));
  }

  /** One from before a statement may arrive behind it. */
  hold(log: string, misplaced: Misplaced): void {
    if (misplaced.decidedMs <= (this.#lastMs.get(log) ?? Number.NEGATIVE_INFINITY)) return;
    const held = this.#misplaced.get(log) ?? [];
    this.#misplaced.set(log, held);
    if (held.length < MAX_MISPLACED) held.push(misplaced);
  }

  /** The misplaced entries that no statement explains. */
  held(): readonly Misplaced[] {
    return [...this.#misplaced.values()].flat();
  }

  /** Whether what was decided by then may be lost, in the home partition of a request ID or the name of a sequence. */
  mayHave(homeKey: Buffer, timeMs: number): boolean {
    return [...this.#partitions].some(([topic, partitions]) => {
      const partition = partitionFor(homeKey, partitions, () => 0);
      return timeMs <= (this.#lastMs.get(logOf({ topic, partition })) ?? Number.NEGATIVE_INFINITY);
    });
  }
}

/**
 * How many partitions decide, in each ledger: of the first one as many as are configured, of others those up to the last one that was ever
 * written to. Partitions that were added later decide nothing.
 */
export function decidingPartitions(ledger: readonly Span[], configured?: number): ReadonlyMap<string, number> {
  const sizes = [...Map.groupBy(ledger, ({ topic }) => topic)].map(([topic, all]) => {
    const used = all.filter(({ to }) => to > 0);
    const most = Math.max(...(used.length === 0 ? all : used).map(({ partition }) => partition)) + 1;
    const isOwn = topic === ledger[0]?.topic && configured !== undefined;
    return [topic, isOwn ? Math.min(configured, all.length) : most] as const;
  });
  return new Map(sizes);
}

/** Numbers of a sequence that were given out, and lost with a tail of the ledger, as a statement of the loss shows. */
export interface LostNumbers {
  readonly sequence: string;
  readonly from: number;
  /** The last one. */
  readonly to: number;
  /** Where that was stated. */
  readonly location: BatchLocation;
}

/** Which numbers were lost. A reply may have them without a decision in the ledger. */
export class Losses {
  readonly all: LostNumbers[] = [];
  readonly #bySequence = new Map<string, LostNumbers[]>();

  add(lost: LostNumbers): void {
    this.all.push(lost);
    const known = this.#bySequence.get(lost.sequence);
    if (known === undefined) this.#bySequence.set(lost.sequence, [lost]);
    else known.push(lost);
  }

  has({ sequence, first, count, step }: FoundNumbers): boolean {
    const last = first + (count - 1) * step;
    return this.#bySequence.get(sequence)?.some(({ from, to }) => from <= first && last <= to) === true;
  }
}

/**
 * Finds lost numbers that two correlation IDs were told: the ledger does not show those. Takes what was found of a sequence in a
 * range, ordered by first number.
 */
export class ToldTwice {
  readonly #find: (finding: Finding) => void;
  /** Those that may have numbers in common with what follows. */
  #open: FoundNumbers[] = [];

  constructor(find: (finding: Finding) => void) {
    this.#find = find;
  }

  take(found: FoundNumbers): void {
    this.#open = this.#open.filter(({ first, count, step }) => first + (count - 1) * step >= found.first);
    const other = this.#open.find(
      (one) => !one.requestId.equals(found.requestId) && sharesId(runOf(one), runOf(found)),
    );
    if (other !== undefined) {
      const message = `two correlation IDs were told the same numbers of the sequence ${found.sequence}, which the ledger has lost`;
      this.#find({ code: 'GAP', message, locations: [other, found] });
    }
    if (!this.#open.some((one) => one.requestId.equals(found.requestId) && one.first === found.first)) {
      this.#open.push(found);
    }
  }
}

function runOf({ first, count, step }: FoundNumbers): { first: bigint; last: bigint; step: bigint } {
  return { first: BigInt(first), last: BigInt(first + (count - 1) * step), step: BigInt(step) };
}
