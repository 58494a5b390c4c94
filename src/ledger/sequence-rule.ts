import type { Pending, PendingNumbers, SequenceHead } from '../codec/head-values.ts';
import { encodeLedgerEntry } from '../codec/ledger-entry.ts';
import { encodeStatementKey } from '../codec/ledger-key.ts';
import { type LedgerStatement, statementHeaders } from '../codec/sequence-entry.ts';
import {
  type Definition,
  MAX_STATEMENTS,
  type SequenceRow,
  type Statement,
  statedOf,
  statementAt,
  UNSTATED,
} from '../core/sequence-row.ts';
import { IdallocError } from '../errors.ts';
import type { Head, HeadChange } from './heads.ts';
import type { Draft } from './ledger-ports.ts';

/**
 * "The swap decides, the log shows": what comes next for the sequences of a ledger partition, by a copy of the log and
 * the head that are known at one moment. Pure. docs/internals/sequences.md has the rule, and test/model/heads runs this
 * file in all its worlds.
 */

/** Sequences in one draft or repair. Each is an operation of the swap, of which etcd allows 128. */
export const MAX_DRAFT = 100;
/**
 * Records that are pending in a partition, those of stopped sequences included: together less than etcd takes in one
 * request.
 */
export const MAX_PENDING = 1_000;

/** Everything on which the decision depends. */
export interface HeadsView {
  /** What the copy of the log shows of a sequence. */
  row(name: string): SequenceRow | undefined;
  readonly head: Head;
  /** The UUID of the namespace, as it is now. */
  readonly namespace: string;
  /** The highest request offset in the copy; -1 for none. */
  readonly through: number;
  /** The first number that the copy shows for the key of pending numbers; undefined if it knows no decision. */
  firstOf(pending: PendingNumbers): number | undefined;
  /** Whether the copy would answer the key with FORGOTTEN. */
  isForgotten(pending: PendingNumbers): boolean;
}

/** What must happen next. */
export type SequenceDue =
  /**
   * The log lost something: state in it that the sequence goes on here, and that unknown requests from before are
   * FORGOTTEN.
   */
  | { readonly kind: 'loss'; readonly sequence: string; readonly next: number; readonly definition: Definition }
  /** Append what is pending, with the same numbers and in this order, at the end of the copy. */
  | { readonly kind: 'pending'; readonly records: readonly Pending[] }
  /** The log does not show the newest definition: state it. */
  | { readonly kind: 'again'; readonly sequence: string; readonly next: number; readonly definition: Definition }
  /** The log is ahead of the head: swap this in. */
  | { readonly kind: 'repair'; readonly change: HeadChange }
  /** Nothing is due: whatever is unknown may be drafted. */
  | { readonly kind: 'draft' };

/** A sequence, as log and head show it. */
interface Sight {
  readonly name: string;
  readonly row: SequenceRow | undefined;
  /** The next number that the log shows; -1 without a row. */
  readonly next: number;
  /** The edition that the log shows; UNSTATED without a row. */
  readonly edition: number;
  readonly head: SequenceHead | undefined;
  readonly pending: readonly Pending[];
  /** The pending records that the copy does not show. */
  readonly lacking: readonly Pending[];
  /** Whether these are exactly what comes next in the copy. */
  readonly isNext: boolean;
  readonly loss: SequenceLoss | undefined;
}

type SequenceLoss = Extract<SequenceDue, { kind: 'loss' }>;

/** What is due for these sequences, and for those that have something pending. */
export function dueNow(view: HeadsView, names: Iterable<string>): SequenceDue {
  const sights = sightsOf(view, names);
  const pending: Pending[] = [];
  for (const { loss, isNext, lacking } of sights) {
    if (loss !== undefined) return loss;
    if (isNext) pending.push(...lacking);
  }
  if (pending.length > 0) return { kind: 'pending', records: pending };
  for (const { name, row, head, edition, pending: own } of sights) {
    if (row === undefined || head === undefined || edition >= head.edition || orderIn(own) !== undefined) continue;
    const { next } = row.known;
    return { kind: 'again', sequence: name, next, definition: holding(head, next) };
  }
  const change = repairOf(view, sights);
  return change === undefined ? { kind: 'draft' } : { kind: 'repair', change };
}

/**
 * All the losses among these, in their order. Each is what `dueNow` would return by itself, whatever becomes of the
 * others.
 */
export function lossesNow(
  view: Pick<HeadsView, 'row' | 'head' | 'firstOf'>,
  names: Iterable<string>,
): readonly SequenceLoss[] {
  const all = Map.groupBy(view.head.pending, sequenceOf);
  return [...names].flatMap((name) => {
    const [row, head] = [view.row(name), view.head.sequences.get(name)];
    return lossOf(view, { name, row, head, pending: all.get(name) ?? [] }) ?? [];
  });
}

/** Whether the log contradicts what is pending, so that only `idalloc namespace rebuild` lets the sequence go on. */
export function isStopped(view: HeadsView, name: string): boolean {
  return isContradicted(sightOf(view, name)) && view.head.namespace === view.namespace;
}

/**
 * The newest definition that log or head know; undefined if neither does. That of before there were editions is the
 * first one.
 */
export function definitionNow(view: HeadsView, name: string): Definition | undefined {
  return newestOf(sightOf(view, name));
}

/**
 * The swap of a draft, made when nothing else is due. `through` is the highest request offset of the draft, -1 for
 * none. What is pending of stopped sequences stays. Throws RangeError for a draft that does not continue the copy.
 *
 * An order may be drafted behind numbers that are due: the records are then those of the due `pending`, and the order.
 */
export function draftChange(view: HeadsView, records: readonly Pending[], through: number): HeadChange {
  const names = new Set(records.map(sequenceOf));
  if (names.size > MAX_DRAFT) throw new RangeError(`a draft of ${names.size} sequences; at most ${MAX_DRAFT} fit`);
  const sights = new Map(sightsOf(view, names).map((sight) => [sight.name, sight]));
  const sequences = new Map<string, SequenceHead>();
  for (const record of records) {
    const sight = sights.get(record.sequence);
    const known = sequences.get(record.sequence);
    if (sight === undefined || isContradicted(sight))
      throw new RangeError(`a draft of ${record.sequence}, which is stopped`);
    const next = known?.next ?? sight.next;
    if (firstOf(record) !== next) {
      throw new RangeError(`a draft of ${record.sequence} begins at ${firstOf(record)}, where ${next} is next`);
    }
    sequences.set(record.sequence, headAfter(record, known ?? newestOf(sight)));
  }
  const stopped = [...sights.values()].filter(isContradicted).flatMap(({ pending }) => pending);
  if (stopped.length + records.length > MAX_PENDING) throw tooManyStopped(stopped.length);
  return changeOf(view, [...stopped, ...records], sequences, through);
}

/** The swap that changes nothing but the revision: one of before that is still under way then fails. */
export function fenceOf(view: HeadsView): HeadChange {
  return changeOf(view, view.head.pending, new Map(), -1);
}

/** What stays pending from before a rebuild keeps that mark until it is settled. */
function changeOf(
  { head, namespace, through }: HeadsView,
  pending: readonly Pending[],
  sequences: ReadonlyMap<string, SequenceHead>,
  drafted: number,
): HeadChange {
  const kept = new Set(head.pending);
  const isOld = pending.some((record) => kept.has(record));
  return {
    namespace: isOld ? head.namespace : namespace,
    through: Math.max(head.through, through, drafted),
    pending,
    sequences,
  };
}

function sightsOf(view: HeadsView, names: Iterable<string>): readonly Sight[] {
  const all = Map.groupBy(view.head.pending, sequenceOf);
  return [...new Set([...names, ...all.keys()])].map((name) => sightOf(view, name, all.get(name) ?? []));
}

function sightOf(view: HeadsView, name: string, pending = pendingOf(view, name)): Sight {
  const { names, sequences } = view.head;
  if (!names.has(name)) throw new RangeError(`the head of ${name} was not read`);
  const [row, head] = [view.row(name), sequences.get(name)];
  const next = row?.known.next ?? -1;
  const edition = row?.known.edition ?? UNSTATED;
  const lacking = pending.filter((record) => {
    if (record.kind === 'order') return edition < record.statement.edition;
    if (view.firstOf(record) === record.entry.first) return false;
    // The key of what retention took since is FORGOTTEN.
    return nextBehind(record) > next || !view.isForgotten(record);
  });
  const [first] = lacking;
  const isUnknown = lacking.every((record) => {
    return record.kind === 'order' || (view.firstOf(record) === undefined && edition <= record.edition);
  });
  const isNext = first !== undefined && firstOf(first) === next && isUnknown;
  const loss = lossOf(view, { name, row, head, pending });
  return { name, row, next, edition, head, pending, lacking, isNext, loss };
}

/** The loss to state: numbers were given out that the log does not show. */
function lossOf(
  view: Pick<HeadsView, 'firstOf'>,
  { name, row, head, pending }: Pick<Sight, 'name' | 'row' | 'head' | 'pending'>,
): SequenceLoss | undefined {
  const shown = row?.known.next ?? -1;
  // What is behind the first one that the log lacks may still have to be appended: compared with anything later, a loss
  // would stay hidden. But numbers whose own record is gone are given, and not appended again, if a renewal shows their
  // key.
  const first = pending.find((record) => record.kind === 'order' || view.firstOf(record) !== record.entry.first);
  const from = first === undefined ? (head?.next ?? -1) : firstOf(first);
  if (shown >= from && (row?.gap ?? 0) === 0) return undefined;
  const next = Math.max(shown, from);
  const definition = lostDefinition(row, head, pending);
  return definition && { kind: 'loss', sequence: name, next, definition: holding(definition, next) };
}

/**
 * While an order is pending, the definition before it: of one that no log shows, the order itself stands in, as no
 * edition.
 */
function lostDefinition(
  row: SequenceRow | undefined,
  head: SequenceHead | undefined,
  pending: readonly Pending[],
): Definition | undefined {
  const order = orderIn(pending);
  if (order === undefined) return newerOf(row, head);
  return statedOf(row) ?? { ...definitionOf(order), edition: 0 };
}

function isContradicted({ lacking, isNext, loss }: Sight): boolean {
  return lacking.length > 0 && !isNext && loss === undefined;
}

/**
 * The head that says what the log says; undefined if it does. What the log contradicts stays as it is, unless the
 * namespace was rebuilt since it was swapped in: then the log is right. What does not fit into one swap is due again.
 */
function repairOf(view: HeadsView, sights: readonly Sight[]): HeadChange | undefined {
  const isRebuilt = view.head.namespace !== view.namespace;
  const due = sights.filter((sight) => (isContradicted(sight) ? isRebuilt : isBehind(sight))).slice(0, MAX_DRAFT);
  if (due.length === 0) return undefined;
  const kept = sights
    .filter((sight) => isContradicted(sight) && !due.includes(sight))
    .flatMap(({ pending }) => pending);
  const sequences = new Map<string, SequenceHead>();
  for (const sight of due) {
    const { name, row, head, next } = sight;
    const definition = isContradicted(sight) ? firstEdition(statedOf(row) ?? head) : newestOf(sight);
    const from = isContradicted(sight) ? next : Math.max(next, head?.next ?? -1);
    if (definition !== undefined) sequences.set(name, statementAt(from, definition));
  }
  return changeOf(view, kept, sequences, -1);
}

function isBehind({ row, next, edition, head }: Sight): boolean {
  if (head !== undefined) return next > head.next || edition > head.edition;
  return row !== undefined && edition !== UNSTATED;
}

/** The head of a sequence behind a drafted record. */
function headAfter(record: Pending, definition: Definition | undefined): SequenceHead {
  if (record.kind === 'numbers') {
    if (definition === undefined) throw new RangeError(`a draft of ${record.sequence}, which is unknown`);
    return { ...definitionOf(definition), next: nextBehind(record) };
  }
  const { statement, first, sequence } = record;
  if (statement.edition > (definition?.edition ?? 0) && statement.next >= first) return statement;
  throw new RangeError(
    `an order of ${sequence} makes edition ${statement.edition} from ${statement.next}: it goes back`,
  );
}

/** The newer of what log and head say of a sequence; undefined if neither says what it is. */
function newerOf(row: SequenceRow | undefined, head: SequenceHead | undefined): Definition | undefined {
  const stated = statedOf(row);
  return head !== undefined && head.edition > (stated?.edition ?? UNSTATED) ? head : stated;
}

function newestOf({ row, head }: Sight): Definition | undefined {
  return firstEdition(newerOf(row, head));
}

function firstEdition(definition: Definition | undefined): Definition | undefined {
  return definition && { ...definitionOf(definition), edition: Math.max(1, definition.edition) };
}

/** Exhausted, where the definition does not allow this next number. */
function holding(definition: Definition, next: number): Definition {
  return definitionOf(statementAt(next, definition));
}

function definitionOf({ step, max, format, closed, edition }: Definition): Definition {
  return { step, max, format, closed, edition };
}

function orderIn(pending: readonly Pending[]): Statement | undefined {
  const order = pending.find(({ kind }) => kind === 'order');
  return order?.kind === 'order' ? order.statement : undefined;
}

const sequenceOf = ({ sequence }: Pending): string => sequence;
const pendingOf = ({ head }: HeadsView, name: string) => head.pending.filter(({ sequence }) => sequence === name);

function firstOf(record: Pending): number {
  return record.kind === 'order' ? record.first : record.entry.first;
}

/** The next number behind it. */
function nextBehind(record: Pending): number {
  if (record.kind === 'order') return record.statement.next;
  const { first, count, step } = record.entry;
  return first + count * step;
}

function tooManyStopped(count: number): IdallocError {
  const message =
    `${count} records of stopped sequences are pending in etcd, which leaves no room for a draft: ` +
    'stop the workers and run: idalloc namespace rebuild';
  return new IdallocError('SEQUENCE_STOPPED', message);
}

/** What the writer of a record says of its copy of the log, and the offset for which it writes the record. */
type Placed = Pick<LedgerStatement, 'end' | 'through' | 'at'>;

/**
 * The record of a pending decision, with the numbers that were swapped in. An order is the same, whoever appends it:
 * all that the head had decided before (`decided`) is hidden by one that comes late to a log which has lost it; but
 * nothing comes before a creation.
 */
export function pendingRecord(pending: Pending, placed: Placed, decided: Pick<Head, 'through'>): Draft {
  if (pending.kind === 'numbers') {
    const entry = { ...pending.entry, ...placed };
    return { key: pending.key, value: encodeLedgerEntry(entry), entry };
  }
  const { sequence, first, statement } = pending;
  const isNew = first < 0;
  const place = { end: 0, through: isNew ? -1 : decided.through, at: placed.at };
  return statementRecord(sequence, { ...place, ...statement, first: isNew ? undefined : first, isLoss: false });
}

/**
 * The record of a loss, or of a definition that the log does not show. `first` is the next number in the writer's copy.
 */
export function statedRecord(
  { kind, sequence, next, definition }: Extract<SequenceDue, { readonly kind: 'loss' | 'again' }>,
  first: number | undefined,
  placed: Placed,
): Draft {
  return statementRecord(sequence, { ...placed, ...definition, next, first, isLoss: kind === 'loss' });
}

/**
 * The records of losses for the end of a log, as many as fit into one append. `next`: that of each sequence in the
 * writer's copy.
 */
export function lossRecords(
  losses: readonly Extract<SequenceDue, { readonly kind: 'loss' }>[],
  next: (sequence: string) => number | undefined,
  { end, through }: Pick<Placed, 'end' | 'through'>,
): readonly Draft[] {
  return losses.slice(0, MAX_STATEMENTS).map((loss, i) => {
    return statedRecord(loss, next(loss.sequence), { end, through, at: end + i });
  });
}

function statementRecord(sequence: string, said: Omit<LedgerStatement, 'kind'>): Draft {
  const entry: LedgerStatement = { kind: 'statement', ...said };
  const headers = statementHeaders(entry);
  return { key: encodeStatementKey(sequence), value: encodeLedgerEntry(entry), headers, entry };
}
