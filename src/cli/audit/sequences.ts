import { changesSequence, countsAt } from '../../codec/ledger-position.ts';
import { type LedgerStatement, RENEWAL, type SequenceEntry } from '../../codec/sequence-entry.ts';
import { afterRecord, type NumberRun, type SequenceRow } from '../../core/sequence.ts';
import type { Finding } from './check.ts';
import type { BatchLocation } from './location.ts';
import type { Losses } from './lost.ts';
import type { FoundNumbers } from './number-store.ts';

interface OrderOptions {
  readonly find: (finding: Finding) => void;
  /** Gets the numbers that count, and renewals. */
  readonly add: (numbers: FoundNumbers) => void;
  readonly losses: Pick<Losses, 'add'>;
}

/** Numbers from `from` on, below `to`, that are not there. */
interface Gap {
  readonly sequence: string;
  readonly from: number;
  readonly to: number;
  /** The record behind it. */
  readonly location: BatchLocation;
}

/** Gaps of one sequence that a loss further on may explain. */
const MAX_OPEN_GAPS = 100;

/**
 * Accounts for every number of each sequence: those that count follow each other in the ledger, unless an operator left some out or a
 * statement says that they were lost with the ledger's tail. Takes the records of a partition in log order. Memory holds what is known
 * of each sequence, its open gaps, and each loss.
 */
export class NumberOrder {
  readonly #options: OrderOptions;
  /** By ledger, partition and sequence; absent before the first record that shows it. */
  readonly #rows = new Map<string, SequenceRow>();
  readonly #gaps = new Map<string, Gap[]>();

  constructor(options: OrderOptions) {
    this.#options = options;
  }

  /** `log`: the ledger and its partition. */
  take(log: string, sequence: string, entry: SequenceEntry, location: BatchLocation, timeMs: number): void {
    const { offset } = location;
    if (!countsAt(entry, offset)) return;
    if (entry.kind === 'numbers') {
      const { first, count, step, at } = entry;
      this.#options.add({ ...location, sequence, first, count, step, timeMs, isRenewal: at === RENEWAL });
    }
    if (!changesSequence(entry, offset)) return;
    const name = `${log} ${sequence}`;
    const row = this.#rows.get(name);
    this.#rows.set(name, afterRecord(row, entry, { offset, appendedAtMs: timeMs }));
    if (row === undefined) return;
    if (entry.kind === 'statement' && entry.isLoss) this.#lost(name, sequence, row, entry, location);
    else this.#compare(name, sequence, row.known.next, entry, location);
  }

  /** Call it after the last record: what no loss has explained is missing. */
  end(): void {
    for (const gaps of this.#gaps.values()) for (const gap of gaps) this.#missing(gap);
    this.#gaps.clear();
  }

  /** An operator may leave numbers out, but nobody gives them out again. */
  #compare(name: string, sequence: string, known: number, entry: SequenceEntry, location: BatchLocation): void {
    const first = entry.first ?? known;
    const lowest = entry.kind === 'numbers' ? entry.first : entry.next;
    if (first > known) this.#gap(name, { sequence, from: known, to: first, location });
    if (lowest >= known) return;
    const what = entry.kind === 'numbers' ? 'numbers give' : 'a statement sets';
    const message = `${what} the sequence ${sequence} again from ${lowest}, though ${known} was next`;
    this.#options.find({ code: 'GAP', message, locations: [location] });
  }

  #gap(name: string, gap: Gap): void {
    const open = this.#gaps.get(name) ?? [];
    this.#gaps.set(name, open);
    if (open.length < MAX_OPEN_GAPS) open.push(gap);
    else this.#missing(gap);
  }

  #missing({ sequence, from, to, location }: Gap): void {
    const message = `the sequence ${sequence} continues at ${to}, not at ${from}`;
    this.#options.find({ code: 'GAP', message, locations: [location] });
  }

  /** What is not there below the next number that a loss states was given out and is gone. */
  #lost(
    name: string,
    sequence: string,
    { known, gap }: SequenceRow,
    { next, step }: LedgerStatement,
    location: BatchLocation,
  ): void {
    const add = (from: number, below: number) =>
      this.#options.losses.add({ sequence, from, to: Math.max(from, below - step), location });
    if (next >= gap) {
      for (const { from, to } of this.#gaps.get(name) ?? []) add(from, to);
      this.#gaps.delete(name);
    }
    if (next > known.next) add(known.next, next);
  }
}

interface JoinOptions {
  /** Replies of this time or later must have their decision in the ledger. */
  readonly ledgerReachesMs: number;
  readonly losses: Pick<Losses, 'has'>;
  readonly find: (finding: Finding) => void;
}

/**
 * Checks that each correlation ID has one record that counts in each sequence, and that the replies have its numbers, or such as the
 * ledger has lost. Numbers come in groups, as NumberStore.grouped returns them. Memory holds two of each correlation ID of a group.
 */
export class NumberJoin {
  readonly #options: JoinOptions;
  #group = -1;
  readonly #keys = new Map<string, Known>();

  constructor(options: JoinOptions) {
    this.#options = options;
  }

  take(found: FoundNumbers & { readonly group: number }): void {
    if (found.group !== this.#group) this.#keys.clear();
    this.#group = found.group;
    const name = `${found.sequence} ${found.requestId.toString('latin1')}`;
    const known = this.#keys.get(name) ?? { hasRecord: false };
    this.#keys.set(name, known);
    if (found.source === 'ledger') this.#decided(known, found);
    else if (found.timeMs >= this.#options.ledgerReachesMs) this.#replied(known, found);
  }

  #decided(known: Known, found: FoundNumbers): void {
    const { decision } = known;
    const isAgain = known.hasRecord && !found.isRenewal;
    if (decision !== undefined && (isAgain || !isSame(decision, found))) {
      const message = 'one correlation ID has two records of numbers that count';
      this.#options.find({ code: 'SPLIT', message, locations: [decision, found] });
    }
    if (!found.isRenewal || decision === undefined) known.decision = found;
    known.hasRecord ||= !found.isRenewal;
  }

  /** An older reply may have numbers of an earlier decision that the ledger no longer has. */
  #replied(known: Known, reply: FoundNumbers): void {
    const right = known.decision ?? known.reply;
    if (right === undefined) {
      const message = 'a reply has numbers without a decision';
      if (!this.#options.losses.has(reply)) this.#options.find({ code: 'UNDECIDED', message, locations: [reply] });
    } else if (!isSame(right, reply)) {
      const message = 'a reply has other numbers than were decided, or than another reply';
      this.#options.find({ code: 'DIVERGENT', message, locations: [right, reply] });
    }
    known.reply ??= reply;
  }
}

/** What is known of one correlation ID in one sequence. */
interface Known {
  decision?: FoundNumbers;
  /** The first reply. */
  reply?: FoundNumbers;
  /** The ledger has the record itself, not only a renewal. */
  hasRecord: boolean;
}

function isSame(one: NumberRun, other: NumberRun): boolean {
  return one.first === other.first && one.count === other.count && one.step === other.step;
}
