import { countsAt } from '../../codec/ledger-position.ts';
import { RENEWAL, type SequenceEntry } from '../../codec/sequence-entry.ts';
import type { NumberRun } from '../../core/sequence.ts';
import type { Finding } from './check.ts';
import type { BatchLocation } from './location.ts';
import type { FoundNumbers } from './number-store.ts';

interface OrderOptions {
  readonly find: (finding: Finding) => void;
  /** Gets the numbers that count, and renewals. */
  readonly add: (numbers: FoundNumbers) => void;
}

/**
 * Checks that the numbers of each sequence which count follow each other in the ledger. Takes the records of a partition in log order.
 * Memory holds one number for each sequence.
 */
export class NumberOrder {
  readonly #options: OrderOptions;
  /** The next number, by ledger, partition and sequence; absent before the first record that shows it. */
  readonly #next = new Map<string, number>();

  constructor(options: OrderOptions) {
    this.#options = options;
  }

  /** `log`: the ledger and its partition. */
  take(log: string, sequence: string, entry: SequenceEntry, location: BatchLocation, timeMs: number): void {
    if (!countsAt(entry, location.offset)) return;
    const name = `${log} ${sequence}`;
    if (entry.kind === 'statement') {
      this.#restate(name, entry.next, location);
      return;
    }
    const { first, count, step, at } = entry;
    const isRenewal = at === RENEWAL;
    this.#options.add({ ...location, sequence, first, count, step, timeMs, isRenewal });
    if (isRenewal) return;
    const expected = this.#next.get(name);
    if (expected !== undefined && first !== expected) {
      const message = `the sequence ${sequence} continues at ${first}, not at ${expected}`;
      this.#options.find({ code: 'GAP', message, locations: [location] });
    }
    this.#next.set(name, first + count * step);
  }

  /** A statement may announce a gap, but never sets a sequence back. */
  #restate(name: string, next: number, location: BatchLocation): void {
    const known = this.#next.get(name);
    if (known !== undefined && next < known) {
      const message = `a statement sets a sequence from ${known} back to ${next}`;
      this.#options.find({ code: 'GAP', message, locations: [location] });
    }
    this.#next.set(name, next);
  }
}

interface JoinOptions {
  /** Replies of this time or later must have their decision in the ledger. */
  readonly ledgerReachesMs: number;
  readonly find: (finding: Finding) => void;
}

/**
 * Checks that each correlation ID has one record that counts in each sequence, and that the replies have its numbers. Numbers come in
 * groups, as NumberStore.grouped returns them. Memory holds two of each correlation ID of a group.
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
      this.#options.find({ code: 'UNDECIDED', message, locations: [reply] });
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
