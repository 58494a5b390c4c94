import { changesSequence, countsAt } from '../../codec/ledger-entry.ts';
import { type LedgerNumbers, type LedgerStatement, RENEWAL, type SequenceEntry } from '../../codec/sequence-entry.ts';
import {
  afterRecord,
  type Definition,
  type NumberRun,
  refusalOf,
  type SequenceRow,
  statedOf,
} from '../../core/sequence-row.ts';
import type { BatchLocation, Finding, FoundNumbers } from './found.ts';
import { sharesId } from './ids.ts';

/*
 * A sequence promises more than IDs do: no number twice, and none left out. The auditor of an invoice book asks where
 * number 4711 is, and somebody must be able to say so. What became of each number?
 *
 * The ledger answers, since the numbers that count follow each other in its partition. But a hole in it is not yet a
 * missing number. An operator may have left numbers out, and said so in a statement. The ledger may have lost its tail,
 * and then it goes on behind the numbers that etcd still knew; a statement says which ones are lost, and it comes after
 * the hole, sometimes with numbers in between. What a sequence was at a place, its format and its step, may have been
 * stated in a record that was lost, and come again later. So nothing is a finding when it is seen: holes and misfits
 * stay open until a later statement explains them, or the log ends. `NumberOrder` does this along each partition.
 *
 * To whom a number was given is another question, and not one of order: `NumberJoin` takes all that one correlation ID
 * has, records and replies, and demands one decision, and replies that have its numbers. A reply may have numbers that
 * the ledger has lost. Whoever was told one keeps it, so that it is no fault; but that two were told the same one is a
 * fault which only the replies show, and `ToldTwice` finds it.
 *
 * The rule: each number is given, left out, lost or missing, and only a missing one is a finding.
 */

interface LogOrderOptions {
  readonly find: (finding: Finding) => void;
  /** Gets all numbers: those that count, void ones and renewals. */
  readonly add: (numbers: FoundNumbers) => void;
  readonly losses: Pick<Losses, 'add'>;
  /** Where a log starts. */
  readonly startOf: (log: string) => number;
}

/** Numbers from `from` on, below `to`, that are not there. */
interface Gap {
  readonly from: number;
  readonly to: number;
  readonly step: number;
  /** The record behind it. */
  readonly location: BatchLocation;
}

/** Gaps of one sequence that a loss further on may explain. */
const MAX_OPEN_GAPS = 100;
/** Records of one sequence that a later statement may explain. */
const MAX_MISFITS = 100;
/** Left out ranges of one sequence that are listed. */
const MAX_LEFT_OUT = 100;

/** Numbers that a statement of an operator left out. */
export interface LeftOut {
  readonly from: number;
  /** The last one. */
  readonly to: number;
  readonly count: number;
  /** The statement. */
  readonly location: BatchLocation;
  readonly timeMs: number;
}

/** What became of the numbers of one sequence, as far as its ledger partition reaches back. */
export interface SequenceAccount {
  readonly sequence: string;
  /** The ledger and its partition. */
  readonly log: string;
  /** The first number that the partition can account for. */
  from: number;
  /** The last number that was given; undefined for none. */
  to: number | undefined;
  given: number;
  leftOut: number;
  /** The first of them. */
  readonly leftOutRanges: LeftOut[];
  lost: number;
  missing: number;
  /** Numbers in records that don't count, because others came first. They were given to nobody by those. */
  void: number;
}

/**
 * Accounts for every number of each sequence. Takes the records of a partition in log order. Memory holds what is known
 * of each sequence, its open gaps, and what was left out or lost.
 */
export class NumberOrder {
  readonly #options: LogOrderOptions;
  /** What is known of each sequence, by ledger, partition and name. */
  readonly #courses = new Map<string, Course>();

  constructor(options: LogOrderOptions) {
    this.#options = options;
  }

  /** The accounts, sorted by sequence and ledger. */
  get accounts(): readonly SequenceAccount[] {
    return [...this.#courses.values()]
      .map(({ account }) => account)
      .toSorted((a, b) => compareText(a.sequence, b.sequence) || compareText(a.log, b.log));
  }

  /** `log`: the ledger and its partition. */
  take(log: string, sequence: string, entry: SequenceEntry, location: BatchLocation, timeMs: number): void {
    const name = `${log} ${sequence}`;
    let course = this.#courses.get(name);
    if (course === undefined) {
      course = new Course(this.#options, sequence, log, entry.kind === 'numbers' ? entry.first : entry.next);
      this.#courses.set(name, course);
    }
    course.take(entry, location, timeMs);
  }

  /** Call it after the last record: what no loss has explained is missing. */
  end(): void {
    for (const course of this.#courses.values()) course.end();
  }
}

/** One sequence in one partition, along the log. */
class Course {
  readonly #options: LogOrderOptions;
  readonly account: SequenceAccount;
  /** Absent before the first record that shows it. */
  #row: SequenceRow | undefined;
  #gaps: Gap[] = [];
  #misfits: Misfit[] = [];
  /**
   * A log whose beginning was deleted shows losses alone. Who stated them knew no more than is there, and another
   * worker may know what was deleted, and go on behind it.
   */
  #isOnlyLost = false;

  constructor(options: LogOrderOptions, sequence: string, log: string, from: number) {
    this.#options = options;
    const none = { given: 0, leftOut: 0, leftOutRanges: [], lost: 0, missing: 0, void: 0 };
    this.account = { sequence, log, from, to: undefined, ...none };
  }

  take(entry: SequenceEntry, location: BatchLocation, timeMs: number): void {
    const { offset } = location;
    const { account } = this;
    const { add, startOf } = this.#options;
    const isVoid = !countsAt(entry, offset);
    if (entry.kind === 'numbers') {
      const { first, count, step, format, end } = entry;
      const renewed = end < startOf(account.log) ? 'doubtful' : 'renewed';
      const kind = isVoid ? 'void' : entry.at === RENEWAL ? renewed : 'decided';
      add({ ...location, sequence: account.sequence, first, count, step, format, timeMs, kind, end });
      if (isVoid) account.void += count;
    }
    if (isVoid || !changesSequence(entry, offset)) return;
    const row = this.#row;
    this.#row = afterRecord(row, entry, { offset, appendedAtMs: timeMs });
    if (entry.kind === 'numbers') {
      account.given += entry.count;
      account.to = Math.max(account.to ?? 0, entry.first + (entry.count - 1) * entry.step);
    }
    const isLoss = entry.kind === 'statement' && entry.isLoss;
    if (row === undefined) {
      this.#isOnlyLost = isLoss && startOf(account.log) > 0;
      return;
    }
    if (entry.kind === 'statement') this.#explain(row, entry);
    if (isLoss) this.#lost(row, entry, location);
    else this.#compare(row, entry, location, timeMs);
  }

  end(): void {
    for (const gap of this.#gaps) this.#missing(gap);
    for (const { finding } of this.#misfits) this.#options.find(finding);
    this.#gaps = [];
    this.#misfits = [];
  }

  /** An operator may leave numbers out, but nobody gives them out again. */
  #compare(row: SequenceRow, entry: SequenceEntry, location: BatchLocation, timeMs: number): void {
    const { account } = this;
    const { next: known, step } = row.known;
    const first = entry.first ?? known;
    const lowest = entry.kind === 'numbers' ? entry.first : entry.next;
    if (this.#isOnlyLost) account.from = Math.max(account.from, first);
    else if (first > known) this.#gap({ from: known, to: first, step, location });
    this.#isOnlyLost = false;
    if (entry.kind === 'numbers') this.#fits(row, entry, location);
    else this.#leftOut(Math.max(known, first), entry.next, { step, location, timeMs });
    // A statement that was sent before the log lost its tail may arrive when the log has grown to its place again. It
    // says nothing new, and no reader goes back to it. An order is never late in this way: it makes a new edition.
    const isLate = entry.kind === 'statement' && entry.edition <= row.known.edition;
    if (lowest >= known || isLate) return;
    const what = entry.kind === 'numbers' ? 'numbers give' : 'a statement sets';
    const message = `${what} the sequence ${account.sequence} again from ${lowest}, though ${known} was next`;
    this.#options.find({ code: 'GAP', message, locations: [location] });
  }

  /**
   * Numbers follow what was stated last before them, unless that statement was lost: then it comes again behind them.
   */
  #fits(row: SequenceRow, numbers: LedgerNumbers, location: BatchLocation): void {
    const stated = statedOf(row);
    const fault = stated && misfit(this.account.sequence, stated, numbers);
    if (fault === undefined) return;
    const one = { numbers, finding: { code: 'FORMAT', message: fault, locations: [location] } } as const;
    if (this.#misfits.length < MAX_MISFITS) this.#misfits.push(one);
    else this.#options.find(one.finding);
  }

  /** What a newer statement says was so before, if the ledger had lost it. */
  #explain({ known }: SequenceRow, statement: LedgerStatement): void {
    if (statement.edition <= known.edition) return;
    const stated = { ...statement, closed: known.closed };
    this.#misfits = this.#misfits.filter(({ numbers }) => misfit('', stated, numbers) !== undefined);
  }

  #leftOut(
    from: number,
    below: number,
    { step, ...where }: Pick<LeftOut, 'location' | 'timeMs'> & { readonly step: number },
  ): void {
    const count = Math.ceil((below - from) / step);
    if (count <= 0) return;
    const { leftOutRanges } = this.account;
    this.account.leftOut += count;
    if (leftOutRanges.length < MAX_LEFT_OUT)
      leftOutRanges.push({ from, to: from + (count - 1) * step, count, ...where });
  }

  #gap(gap: Gap): void {
    if (this.#gaps.length < MAX_OPEN_GAPS) this.#gaps.push(gap);
    else this.#missing(gap);
  }

  #missing({ from, to, step, location }: Gap): void {
    this.account.missing += Math.ceil((to - from) / step);
    const message = `the sequence ${this.account.sequence} continues at ${to}, not at ${from}`;
    this.#options.find({ code: 'GAP', message, locations: [location] });
  }

  /** What is not there below the next number that a loss states was given out and is gone. */
  #lost({ known, gap }: SequenceRow, { next, step }: LedgerStatement, location: BatchLocation): void {
    const add = (from: number, below: number) => {
      const to = Math.max(from, below - step);
      this.account.lost += Math.floor((to - from) / step) + 1;
      this.#options.losses.add({ sequence: this.account.sequence, from, to, location });
    };
    if (next >= gap) {
      for (const { from, to } of this.#gaps) add(from, to);
      this.#gaps = [];
    }
    if (next > known.next) add(known.next, next);
  }
}

/** Numbers that are not what the sequence was. */
interface Misfit {
  readonly numbers: LedgerNumbers;
  readonly finding: Finding;
}

/** How numbers contradict what was stated of their sequence; undefined if they don't. */
function misfit(
  sequence: string,
  stated: Definition,
  { first, count, step, format }: LedgerNumbers,
): string | undefined {
  if (format !== stated.format)
    return `numbers of the sequence ${sequence} have the format '${format}', where it had '${stated.format}'`;
  if (step !== stated.step)
    return `numbers of the sequence ${sequence} are ${step} apart, where its step was ${stated.step}`;
  if (stated.closed) return `the sequence ${sequence} gave numbers from ${first} after it was closed`;
  const isBeyond = refusalOf({ ...stated, next: first }, count) === 'SEQUENCE_EXHAUSTED';
  return isBeyond ? `the sequence ${sequence} gave numbers beyond ${stated.max}, its largest one` : undefined;
}

function compareText(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
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
 * Finds lost numbers that two correlation IDs were told: the ledger does not show those. Takes what was found of a
 * sequence in a range, ordered by first number.
 */
export class ToldTwice {
  readonly #find: (finding: Finding) => void;
  /** What was told so far and may have numbers in common with what follows. */
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

interface NumbersJoinOptions {
  /** Replies of this time or later must have their decision in the ledger. */
  readonly ledgerReachesMs: number;
  readonly losses: Pick<Losses, 'has'>;
  readonly find: (finding: Finding) => void;
}

/**
 * Checks that each correlation ID has one record that counts in each sequence, and that the replies have its numbers,
 * or such as the ledger has lost. Numbers come in groups, as AuditStore.groupedNumbers returns them. Memory holds a few
 * of each correlation ID of a group.
 */
export class NumberJoin {
  readonly #options: NumbersJoinOptions;
  #group = -1;
  readonly #keys = new Map<string, KnownNumbers>();

  constructor(options: NumbersJoinOptions) {
    this.#options = options;
  }

  take(found: FoundNumbers & { readonly group: number }): void {
    if (found.group !== this.#group) this.#keys.clear();
    this.#group = found.group;
    const name = `${found.sequence} ${found.requestId.toString('latin1')}`;
    const known = this.#keys.get(name) ?? { hasRecord: false, voids: [] };
    this.#keys.set(name, known);
    if (found.source === 'ledger') this.#decided(known, found);
    else if (!this.#mayPrecede(known, found)) this.#replied(known, found);
  }

  /**
   * Whether the decision of a reply may lie before what was read of the ledger. That of one that was sent again may be
   * of any time.
   */
  #mayPrecede({ decision }: KnownNumbers, { timeMs, kind }: FoundNumbers): boolean {
    const { ledgerReachesMs } = this.#options;
    const isOfAnyTime = kind === 'again' && decision === undefined && ledgerReachesMs > Number.NEGATIVE_INFINITY;
    return isOfAnyTime || timeMs < ledgerReachesMs;
  }

  #decided(known: KnownNumbers, found: FoundNumbers): void {
    const { decision } = known;
    if (found.kind === 'void') {
      if (known.voids.length < MAX_VOIDS) known.voids.push(found);
      return;
    }
    const isOther = decision !== undefined && !isSame(decision, found);
    if (isOther && isLate(found, decision)) return;
    const isRecord = found.kind === 'decided';
    const isAgain = known.hasRecord && isRecord;
    if (decision !== undefined && (isAgain || (isOther && decision.kind !== 'doubtful'))) {
      const message = 'one correlation ID has two records of numbers that count';
      this.#options.find({ code: 'SPLIT', message, locations: [decision, found] });
    } else if (decision !== undefined && !isOther) this.#sameFormat(decision, found);
    if (isRecord || decision === undefined) known.decision = found;
    known.hasRecord ||= isRecord;
  }

  /** An older reply may have numbers of an earlier decision that the ledger no longer has. */
  #replied(known: KnownNumbers, reply: FoundNumbers): void {
    const right = known.decision ?? known.reply;
    const { losses } = this.#options;
    known.reply ??= reply;
    if (right !== undefined && isSame(right, reply)) this.#sameFormat(right, reply);
    else if (right?.kind !== 'doubtful' && (right !== undefined || !losses.has(reply)))
      this.#wrongReply(known, right, reply);
  }

  #wrongReply({ voids }: KnownNumbers, right: FoundNumbers | undefined, reply: FoundNumbers): void {
    const { find, losses } = this.#options;
    const ofVoid = voids.find((one) => isSame(one, reply));
    // In a copied log at other offsets records are void that counted before.
    if (ofVoid !== undefined && !losses.has(reply)) {
      const message = 'a reply has the numbers of a record that does not count';
      find({ code: 'VOID', message, locations: [ofVoid, reply] });
    } else if (right === undefined) {
      find({ code: 'UNDECIDED', message: 'a reply has numbers without a decision', locations: [reply] });
    } else {
      const message = losses.has(reply)
        ? TOLD_ANEW
        : 'a reply has other numbers than were decided, or than another reply';
      find({ code: 'DIVERGENT', message, locations: [right, reply] });
    }
  }

  #sameFormat(right: FoundNumbers, other: FoundNumbers): void {
    if (right.format === other.format) return;
    const message = `numbers of the sequence ${right.sequence} are written '${right.format}' and '${other.format}'`;
    this.#options.find({ code: 'FORMAT', message, locations: [right, other] });
  }
}

/** Nobody could prevent it; whoever keeps the books has to know it all the same. */
export const TOLD_ANEW = 'a correlation ID was told numbers that the ledger has lost, and others besides';

/** Void records that are kept of one correlation ID; each take-over may leave one. */
const MAX_VOIDS = 10;

/** What is known of one correlation ID in one sequence. */
interface KnownNumbers {
  decision?: FoundNumbers;
  /** The first reply. */
  reply?: FoundNumbers;
  /** The ledger has the record itself, not only a renewal. */
  hasRecord: boolean;
  readonly voids: FoundNumbers[];
}

/**
 * A renewal that arrived late: its writer had not read the decision. What it renewed was deleted, and the correlation
 * ID used again.
 */
function isLate({ kind, end }: FoundNumbers, decision: FoundNumbers): boolean {
  return kind !== 'decided' && end <= decision.offset;
}

function isSame(one: NumberRun, other: NumberRun): boolean {
  return one.first === other.first && one.count === other.count && one.step === other.step;
}
