import { changesSequence, countsAt } from '../../codec/ledger-position.ts';
import { type LedgerNumbers, type LedgerStatement, RENEWAL, type SequenceEntry } from '../../codec/sequence-entry.ts';
import {
  afterRecord,
  type Definition,
  type NumberRun,
  refusalOf,
  type SequenceRow,
  statedOf,
} from '../../core/sequence.ts';
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

interface OrderOptions {
  readonly find: (finding: Finding) => void;
  /** Gets all numbers: those that count, void ones and renewals. */
  readonly add: (numbers: FoundNumbers) => void;
  readonly losses: Pick<Losses, 'add'>;
  /** Where a log starts. */
  readonly startOf: (log: string) => number;
}

/** Numbers from `from` on, below `to`, that are not there. */
interface Gap {
  readonly account: SequenceAccount;
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
 * Accounts for every number of each sequence: those that count follow each other in the ledger, unless an operator left
 * some out or a statement says that they were lost with the ledger's tail. Takes the records of a partition in log
 * order. Memory holds what is known of each sequence, its open gaps, and what was left out or lost.
 */
export class NumberOrder {
  readonly #options: OrderOptions;
  /** By ledger, partition and sequence; absent before the first record that shows it. */
  readonly #rows = new Map<string, SequenceRow>();
  readonly #gaps = new Map<string, Gap[]>();
  readonly #misfits = new Map<string, Misfit[]>();
  readonly #accounts = new Map<string, SequenceAccount>();
  /**
   * Of which a log whose beginning was deleted shows losses alone. Who stated them knew no more than is there, and another worker may
   * know what was deleted, and go on behind it.
   */
  readonly #onlyLost = new Set<string>();

  constructor(options: OrderOptions) {
    this.#options = options;
  }

  /** By sequence and ledger. */
  get accounts(): readonly SequenceAccount[] {
    return [...this.#accounts.values()].toSorted(
      (a, b) => compareText(a.sequence, b.sequence) || compareText(a.log, b.log),
    );
  }

  /** `log`: the ledger and its partition. */
  take(log: string, sequence: string, entry: SequenceEntry, location: BatchLocation, timeMs: number): void {
    const { offset } = location;
    const name = `${log} ${sequence}`;
    const row = this.#rows.get(name);
    const account = this.#accountOf(name, { sequence, log, from: entry.kind === 'numbers' ? entry.first : entry.next });
    const isVoid = !countsAt(entry, offset);
    if (entry.kind === 'numbers') {
      const { first, count, step, format, end } = entry;
      const renewed = end < this.#options.startOf(log) ? 'doubtful' : 'renewed';
      const kind = isVoid ? 'void' : entry.at === RENEWAL ? renewed : 'decided';
      this.#options.add({ ...location, sequence, first, count, step, format, timeMs, kind, end });
      if (isVoid) account.void += count;
    }
    if (isVoid || !changesSequence(entry, offset)) return;
    this.#rows.set(name, afterRecord(row, entry, { offset, appendedAtMs: timeMs }));
    if (entry.kind === 'numbers') {
      account.given += entry.count;
      account.to = Math.max(account.to ?? 0, entry.first + (entry.count - 1) * entry.step);
    }
    const isLoss = entry.kind === 'statement' && entry.isLoss;
    if (row === undefined) {
      if (isLoss && this.#options.startOf(log) > 0) this.#onlyLost.add(name);
      return;
    }
    if (entry.kind === 'statement') this.#explain(name, row, entry);
    if (entry.kind === 'statement' && entry.isLoss) this.#lost(name, account, row, entry, location);
    else this.#compare(name, account, row, entry, { location, timeMs });
  }

  #accountOf(
    name: string,
    { sequence, log, from }: Pick<SequenceAccount, 'sequence' | 'log' | 'from'>,
  ): SequenceAccount {
    const known = this.#accounts.get(name);
    if (known !== undefined) return known;
    const none = { given: 0, leftOut: 0, leftOutRanges: [], lost: 0, missing: 0, void: 0 };
    const account: SequenceAccount = { sequence, log, from, to: undefined, ...none };
    this.#accounts.set(name, account);
    return account;
  }

  /** Call it after the last record: what no loss has explained is missing. */
  end(): void {
    for (const gaps of this.#gaps.values()) for (const gap of gaps) this.#missing(gap);
    this.#gaps.clear();
    for (const { finding } of [...this.#misfits.values()].flat()) this.#options.find(finding);
    this.#misfits.clear();
  }

  /** An operator may leave numbers out, but nobody gives them out again. */
  #compare(
    name: string,
    account: SequenceAccount,
    row: SequenceRow,
    entry: SequenceEntry,
    { location, timeMs }: { readonly location: BatchLocation; readonly timeMs: number },
  ): void {
    const { sequence } = account;
    const { next: known, step } = row.known;
    const first = entry.first ?? known;
    const lowest = entry.kind === 'numbers' ? entry.first : entry.next;
    if (this.#onlyLost.delete(name)) account.from = Math.max(account.from, first);
    else if (first > known) this.#gap(name, { account, from: known, to: first, step, location });
    if (entry.kind === 'numbers') this.#fits(name, account, row, entry, location);
    else this.#leftOut(account, { from: Math.max(known, first), below: entry.next, step }, { location, timeMs });
    if (lowest >= known) return;
    const what = entry.kind === 'numbers' ? 'numbers give' : 'a statement sets';
    const message = `${what} the sequence ${sequence} again from ${lowest}, though ${known} was next`;
    this.#options.find({ code: 'GAP', message, locations: [location] });
  }

  /**
   * Numbers follow what was stated last before them, unless that statement was lost: then it comes again behind them.
   */
  #fits(
    name: string,
    { sequence }: SequenceAccount,
    row: SequenceRow,
    numbers: LedgerNumbers,
    location: BatchLocation,
  ): void {
    const stated = statedOf(row);
    const fault = stated && misfit(sequence, stated, numbers);
    if (fault === undefined) return;
    const held = this.#misfits.get(name) ?? [];
    this.#misfits.set(name, held);
    const one = { numbers, finding: { code: 'FORMAT', message: fault, locations: [location] } } as const;
    if (held.length < MAX_MISFITS) held.push(one);
    else this.#options.find(one.finding);
  }

  /** What a newer statement says was so before, if the ledger had lost it. */
  #explain(name: string, { known }: SequenceRow, statement: LedgerStatement): void {
    const held = this.#misfits.get(name);
    if (held === undefined || statement.edition <= known.edition) return;
    const left = held.filter(
      ({ numbers }) => misfit('', { ...statement, closed: known.closed }, numbers) !== undefined,
    );
    this.#misfits.set(name, left);
  }

  #leftOut(
    account: SequenceAccount,
    { from, below, step }: { readonly from: number; readonly below: number; readonly step: number },
    where: Pick<LeftOut, 'location' | 'timeMs'>,
  ): void {
    const count = Math.ceil((below - from) / step);
    if (count <= 0) return;
    account.leftOut += count;
    if (account.leftOutRanges.length >= MAX_LEFT_OUT) return;
    account.leftOutRanges.push({ from, to: from + (count - 1) * step, count, ...where });
  }

  #gap(name: string, gap: Gap): void {
    const open = this.#gaps.get(name) ?? [];
    this.#gaps.set(name, open);
    if (open.length < MAX_OPEN_GAPS) open.push(gap);
    else this.#missing(gap);
  }

  #missing({ account, from, to, step, location }: Gap): void {
    account.missing += Math.ceil((to - from) / step);
    const message = `the sequence ${account.sequence} continues at ${to}, not at ${from}`;
    this.#options.find({ code: 'GAP', message, locations: [location] });
  }

  /** What is not there below the next number that a loss states was given out and is gone. */
  #lost(
    name: string,
    account: SequenceAccount,
    { known, gap }: SequenceRow,
    { next, step }: LedgerStatement,
    location: BatchLocation,
  ): void {
    const { sequence } = account;
    const add = (from: number, below: number) => {
      const to = Math.max(from, below - step);
      account.lost += Math.floor((to - from) / step) + 1;
      this.#options.losses.add({ sequence, from, to, location });
    };
    if (next >= gap) {
      for (const { from, to } of this.#gaps.get(name) ?? []) add(from, to);
      this.#gaps.delete(name);
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

interface JoinOptions {
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
    const known = this.#keys.get(name) ?? { hasRecord: false, voids: [] };
    this.#keys.set(name, known);
    if (found.source === 'ledger') this.#decided(known, found);
    else if (!this.#mayPrecede(known, found)) this.#replied(known, found);
  }

  /**
   * Whether the decision of a reply may lie before what was read of the ledger. That of one that was sent again may be
   * of any time.
   */
  #mayPrecede({ decision }: Known, { timeMs, kind }: FoundNumbers): boolean {
    const { ledgerReachesMs } = this.#options;
    const isOfAnyTime = kind === 'again' && decision === undefined && ledgerReachesMs > Number.NEGATIVE_INFINITY;
    return isOfAnyTime || timeMs < ledgerReachesMs;
  }

  #decided(known: Known, found: FoundNumbers): void {
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
  #replied(known: Known, reply: FoundNumbers): void {
    const right = known.decision ?? known.reply;
    const { losses } = this.#options;
    known.reply ??= reply;
    if (right !== undefined && isSame(right, reply)) this.#sameFormat(right, reply);
    else if (right?.kind !== 'doubtful' && (right !== undefined || !losses.has(reply)))
      this.#wrongReply(known, right, reply);
  }

  #wrongReply({ voids }: Known, right: FoundNumbers | undefined, reply: FoundNumbers): void {
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
interface Known {
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
