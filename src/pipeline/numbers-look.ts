import type { PendingNumbers } from '../codec/head-values.ts';
import type { SequenceRow } from '../core/sequence-row.ts';
import type { ErrorCode } from '../errors.ts';
import { type Decided, type Decisions, FORGOTTEN, nameOf } from '../ledger/decided.ts';
import type { Head, HeadChange } from '../ledger/heads.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Draft } from '../ledger/ledger-ports.ts';
import {
  dueNow,
  fenceOf,
  type HeadsView,
  pendingRecord,
  type SequenceDue,
  statedRecord,
} from '../ledger/sequence-rule.ts';
import { needsRenewal } from './age.ts';
import { type DecidingDraft, firstDecided, type LookUp, renewalOf } from './drafts.ts';
import { type DraftedNumbers, draftNumbers } from './numbers-draft.ts';
import type { NumbersPart } from './numbers-part.ts';
import { type RulingDeps, settled } from './rulings.ts';
import type { PartTrace } from './trace.ts';

export interface LookDeps extends RulingDeps {
  readonly ledger: Ledger;
  readonly trace: PartTrace;
  /** The UUID of the namespace. Throws NO_IDENTITY before it is known. */
  readonly namespace: () => string;
}

/** The head of a partition as a worker knows it. */
export interface Known {
  readonly head: Head;
  /** The life of the copy in which it was read: later ones may show another log. */
  readonly life: number;
  /** This worker swapped it in: what it swapped before, without an answer, can't take effect any more. */
  readonly isOwn: boolean;
  /** The pending numbers that the copy was seen to show: their first number, by the names of their keys. */
  readonly shown: Map<string, number>;
}

/** What follows from a look. */
export type Looked =
  | { readonly kind: 'decided' }
  /** Something was appended that counts: look again. */
  | { readonly kind: 'appended' }
  /** What was appended is void, since another writer was first. */
  | { readonly kind: 'overtaken' }
  /** The head must be read, and after it the ledger to its end. */
  | { readonly kind: 'read' }
  /** The ledger has lost something: that is stated for all sequences of the partition, before anything else. */
  | { readonly kind: 'lost' }
  | { readonly kind: 'swap'; readonly known: Known; readonly change: HeadChange; readonly isRepair: boolean };

const DECIDED: Looked = { kind: 'decided' };
const APPENDED: Looked = { kind: 'appended' };
const OVERTAKEN: Looked = { kind: 'overtaken' };
const READ: Looked = { kind: 'read' };
const LOST: Looked = { kind: 'lost' };

/** Rows, end and keys of one moment. */
interface Seen extends LookUp {
  readonly rows: ReadonlyMap<string, SequenceRow | undefined>;
  /** Unknown keys of requests up to it are FORGOTTEN; -1 for none. */
  readonly horizon: number;
  readonly found: Decisions;
}

/**
 * One look at a part, in its partition's turn: what the ledger has decided is the decision; else what the rule says is
 * due is appended, or has to be swapped in. At most one append follows from a look, so that others get their turns in
 * between.
 */
export async function lookAt(deps: LookDeps, part: NumbersPart, head: Known | undefined): Promise<Looked> {
  const { partition } = part;
  if (part.mustCatchUp) {
    await deps.ledger.catchUp(partition);
    part.hasCaughtUp();
  }
  const known = head?.life === deps.ledger.life(partition) ? head : undefined;
  const seen = await see(deps, part, known);
  if (await takeKnown(deps, part, seen)) return part.isDecided ? DECIDED : APPENDED;
  if (part.isDecided) return DECIDED;
  const names = part.sequences();
  if (known === undefined || [...names].some((name) => !known.head.names.has(name))) return READ;
  const view = viewOf(deps, known, seen);
  const due = dueNow(view, names);
  switch (due.kind) {
    case 'loss':
      return LOST;
    case 'repair':
      // What the ledger contradicts is dropped only by who has read all of it.
      return part.isConfirmed ? { kind: 'swap', known, change: due.change, isRepair: true } : READ;
    case 'draft': {
      const { change, refused } = draftNumbers(deps, part, view);
      if (change !== undefined) return { kind: 'swap', known, change, isRepair: false };
      return refuse(part, { known, view }, refused);
    }
    default:
      return await append(deps, part, { known, seen }, due);
  }
}

/** The index is queried in one synchronous step, before anything is read from the ledger. */
async function see({ index, ledger }: LookDeps, part: NumbersPart, known: Known | undefined): Promise<Seen> {
  const { partition } = part;
  const pending = known?.head.pending ?? [];
  const names = new Set([...part.sequences(), ...pending.map(({ sequence }) => sequence)]);
  const rows = new Map([...names].map((name) => [name, index.sequence(partition, name)]));
  const horizon = index.horizon(partition) ?? -1;
  const view = { end: index.end(partition), through: index.through(partition) };
  const life = ledger.life(partition);
  const unseen = pending.filter((one) => one.kind === 'numbers' && known?.shown.has(nameOf(one.key)) !== true);
  const keys = (unseen as PendingNumbers[]).map(({ key }) => ({ key, name: nameOf(key) }));
  const found = await ledger.decided(partition, [...part.due.map(({ accepted }) => accepted), ...keys]);
  for (const { name } of keys) {
    const decided = found.get(name);
    if (typeof decided === 'object' && decided.entry.kind === 'numbers') known?.shown.set(name, decided.entry.first);
  }
  return { rows, horizon, view, life, found };
}

/** Decides the requests whose keys are known, and renews decisions that prove old; returns whether there were such. */
async function takeKnown(deps: LookDeps, part: NumbersPart, { view, life, found }: Seen): Promise<boolean> {
  const renewals = new Map<string, DecidingDraft>();
  for (const request of part.due) {
    const { accepted } = request;
    const decided = found.get(accepted.name);
    if (decided === undefined) continue;
    if (needsRenewal(deps, accepted, decided)) renewals.set(accepted.name, renewalOf(accepted, decided, view));
    part.decide(request, settled(deps, part.partition, accepted, decided));
  }
  if (renewals.size === 0) return false;
  await deps.ledger.commit(part.partition, { end: view.end, life, entries: [...renewals.values()] });
  return true;
}

function viewOf(deps: LookDeps, known: Known, { rows, horizon, view, found }: Seen): HeadsView {
  const { head, shown } = known;
  return {
    row: (name) => rows.get(name),
    head,
    namespace: deps.namespace(),
    through: view.through,
    firstOf: ({ key }) => shown.get(nameOf(key)),
    isForgotten: ({ key, entry }) => {
      const name = nameOf(key);
      if (shown.has(name)) return false;
      return found.get(name) === FORGOTTEN || entry.requestOffset <= horizon;
    },
  };
}

/** The refusals that an operator's command ends, or that follow from a head or a copy which may be old. */
const REVOCABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'UNKNOWN_SEQUENCE',
  'SEQUENCE_CLOSED',
  'SEQUENCE_EXHAUSTED',
  'SEQUENCE_STOPPED',
]);

/**
 * Refuses requests, once nothing else is drafted. What may be revoked is confirmed by reading head and ledger again.
 * Any other refusal promises that the request gets no numbers later, so what may still be swapped in for it by a call
 * without an answer must have become impossible: that is so once this worker has swapped since, if only to change
 * nothing.
 */
function refuse(
  part: NumbersPart,
  { known, view }: { readonly known: Known; readonly view: HeadsView },
  refused: DraftedNumbers['refused'],
): Looked {
  const codes = [...refused.values()].map(({ code }) => code);
  if (!part.isConfirmed && codes.some((code) => REVOCABLE.has(code))) return READ;
  if (!known.isOwn && !codes.every((code) => REVOCABLE.has(code)))
    return { kind: 'swap', known, change: fenceOf(view), isRepair: false };
  for (const [request, refusal] of refused) part.decide(request, refusal);
  return DECIDED;
}

/** What is appended for sequences before anything is drafted. */
type DueEntries = Extract<SequenceDue, { readonly kind: 'pending' | 'again' }>;

/**
 * Appends what is due at the end of the copy, and decides the requests whose numbers that shows. Rejects as the
 * ledger's `commit` does.
 */
async function append(
  deps: LookDeps,
  part: NumbersPart,
  { known, seen }: { readonly known: Known; readonly seen: Seen },
  due: DueEntries,
): Promise<Looked> {
  const { partition } = part;
  const { view, life } = seen;
  const entries = entriesFor(known, seen, due);
  const { baseOffset, appendedAtMs, firsts } = await deps.trace.step(
    'append',
    () => part.records(),
    () => deps.ledger.commit(partition, { end: view.end, life, entries }),
  );
  // If another writer's entries came between, none of these counts.
  if (baseOffset !== view.end) return OVERTAKEN;
  const own = new Map<string, Decided>();
  for (const [i, { key, entry }] of entries.entries()) {
    const offset = baseOffset + i;
    if (key === null || entry.kind !== 'numbers' || !firsts.has(offset)) continue;
    own.set(nameOf(key), firstDecided(entry, { offset, appendedAtMs }));
    known.shown.set(nameOf(key), entry.first);
  }
  const given = new Set<string>();
  for (const request of part.due) {
    const { accepted } = request;
    const decided = own.get(accepted.name);
    const isOld: boolean = decided !== undefined && needsRenewal(deps, accepted, decided);
    if (decided === undefined || isOld) continue;
    // Another request of the part with the same key gets its numbers again.
    part.decide(
      request,
      settled(deps, partition, accepted, decided, given.has(accepted.name) ? undefined : decided.offset),
    );
    given.add(accepted.name);
  }
  return part.isDecided ? DECIDED : APPENDED;
}

function entriesFor({ head }: Known, { view, rows }: Seen, due: DueEntries): readonly Draft[] {
  if (due.kind === 'pending')
    return due.records.map((record, i) => pendingRecord(record, { ...view, at: view.end + i }, head));
  return [statedRecord(due, rows.get(due.sequence)?.known.next, { ...view, at: view.end })];
}
