import { countsAt } from '../../codec/ledger-position.ts';
import { type Numbers, RENEWAL, type SequenceEntry } from '../../codec/sequence-entry.ts';
import type { Finding } from './check.ts';
import type { BatchLocation } from './store.ts';

type Run = Pick<Numbers, 'first' | 'count' | 'step'>;

/** Numbers of one correlation ID, and where they were found. */
interface Found {
  readonly run: Run;
  readonly location: BatchLocation;
  readonly timeMs: number;
}

/**
 * Checks sequences: in the ledger, that the numbers which count follow each other, and that each correlation ID has one record that
 * counts; in the replies, that they have the numbers which were decided. Takes the records of a ledger partition in log order. Memory
 * holds the numbers of each correlation ID.
 */
export class SequenceAudit {
  readonly #find: (finding: Finding) => void;
  /** The next number, by ledger, partition and sequence; absent before the first record that shows it. */
  readonly #next = new Map<string, number>();
  readonly #decided = new Map<string, Found>();
  /** The keys of which the log has the record itself, not only a renewal. */
  readonly #records = new Set<string>();
  readonly #replied = new Map<string, Found>();

  constructor(find: (finding: Finding) => void) {
    this.#find = find;
  }

  /** `log`: the ledger and its partition. */
  ledger(log: string, sequence: string, entry: SequenceEntry, { location, timeMs }: Omit<Found, 'run'>): void {
    if (!countsAt(entry, location.offset)) return;
    const name = `${log} ${sequence}`;
    if (entry.kind === 'statement') {
      this.#restate(name, entry.next, location);
      return;
    }
    const found = { run: entry, location, timeMs };
    const key = keyOf(sequence, location.requestId);
    const before = this.#decided.get(key);
    if (entry.at === RENEWAL) {
      if (before === undefined) this.#decided.set(key, found);
      else if (!isSame(before.run, entry)) this.#differs(before, found);
      return;
    }
    const { first, count, step } = entry;
    const expected = this.#next.get(name);
    if (expected !== undefined && first !== expected) {
      const message = `the sequence ${sequence} continues at ${first}, not at ${expected}`;
      this.#find({ code: 'GAP', message, locations: [location] });
    }
    this.#next.set(name, first + count * step);
    if (before !== undefined && (this.#records.has(key) || !isSame(before.run, entry))) this.#differs(before, found);
    this.#records.add(key);
    this.#decided.set(key, found);
  }

  /** A statement may announce a gap, but never sets a sequence back. */
  #restate(name: string, next: number, location: BatchLocation): void {
    const known = this.#next.get(name);
    if (known !== undefined && next < known) {
      const message = `a statement sets a sequence from ${known} back to ${next}`;
      this.#find({ code: 'GAP', message, locations: [location] });
    }
    this.#next.set(name, next);
  }

  #differs(before: Found, found: Found): void {
    const message = 'one correlation ID has two records of numbers that count';
    this.#find({ code: 'SPLIT', message, locations: [before.location, found.location] });
  }

  reply(sequence: string, run: Run, about: Omit<Found, 'run'>): void {
    const key = keyOf(sequence, about.location.requestId);
    const before = this.#replied.get(key);
    if (before === undefined) this.#replied.set(key, { run, ...about });
    else if (!isSame(before.run, run)) this.#diverges(before, about.location);
  }

  #diverges({ location }: Found, reply: BatchLocation): void {
    const message = 'a reply has other numbers than were decided, or than another reply';
    this.#find({ code: 'DIVERGENT', message, locations: [location, reply] });
  }

  /** Compares the replies with the ledger. Replies of `ledgerReachesMs` or later must have their decision there. */
  end(ledgerReachesMs: number): void {
    for (const [key, reply] of this.#replied) {
      const decided = this.#decided.get(key);
      if (decided !== undefined && !isSame(decided.run, reply.run)) this.#diverges(decided, reply.location);
      if (decided !== undefined || reply.timeMs < ledgerReachesMs) continue;
      const message = 'a reply has numbers without a decision';
      this.#find({ code: 'UNDECIDED', message, locations: [reply.location] });
    }
  }
}

function keyOf(sequence: string, requestId: Buffer): string {
  return `${sequence} ${requestId.toString('latin1')}`;
}

function isSame(one: Run, other: Run): boolean {
  return one.first === other.first && one.count === other.count && one.step === other.step;
}
