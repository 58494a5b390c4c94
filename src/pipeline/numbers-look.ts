import type { PendingNumbers } from '../codec/head-values.ts';
import { WIDE_REPLY_FINGERPRINT } from '../codec/id-reply.ts';
import { EntryKey } from '../codec/ledger-key.ts';
import { unknownSequenceText } from '../codec/refusal-texts.ts';
import { type Definition, refusalOf, type SequenceRow, type Statement } from '../core/sequence-row.ts';
import type { ErrorCode } from '../errors.ts';
import { type Decided, type Decisions, FORGOTTEN, type ReadAhead } from '../ledger/decided.ts';
import type { Head, HeadChange } from '../ledger/heads.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Draft } from '../ledger/ledger-ports.ts';
import {
  definitionNow,
  draftChange,
  dueNow,
  fenceOf,
  type HeadsView,
  isStopped,
  pendingRecord,
  type SequenceDue,
  statedRecord,
} from '../ledger/sequence-rule.ts';
import { type DecidingDraft, firstDecided, type LookUp, renewalOf } from './decide.ts';
import type { Decision, Refused } from './decision.ts';
import type { Accepted } from './intake.ts';
import type { RequestRecord } from './ports.ts';
import { charged, isCopy, needsRenewal, type RulingDeps, refusedUnknown, settled } from './rulings.ts';
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

/** One look at a part in its partition's turn. What it has to read of the ledger is read before. */
export async function look(deps: LookDeps, part: NumbersPart, head: () => Known | undefined): Promise<Looked> {
  const { ledger } = deps;
  const ahead = await ledger.readAhead(
    part.partition,
    part.due.map(({ accepted }) => accepted),
  );
  return await ledger.inTurn(part.partition, () => lookAt(deps, part, head(), ahead));
}

/**
 * One look at a part, in its partition's turn: what the ledger has decided is the decision; else what the rule says is
 * due is appended, or has to be swapped in. At most one append follows from a look, so that others get their turns in
 * between.
 */
async function lookAt(deps: LookDeps, part: NumbersPart, head: Known | undefined, ahead: ReadAhead): Promise<Looked> {
  const { partition } = part;
  if (part.mustCatchUp) {
    await deps.ledger.catchUp(partition);
    part.hasCaughtUp();
  }
  const known = head?.life === deps.ledger.life(partition) ? head : undefined;
  const seen = await see(deps, part, known, ahead);
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
async function see(
  { index, ledger }: LookDeps,
  part: NumbersPart,
  known: Known | undefined,
  ahead: ReadAhead,
): Promise<Seen> {
  const { partition } = part;
  const pending = known?.head.pending ?? [];
  const names = new Set([...part.sequences(), ...pending.map(({ sequence }) => sequence)]);
  const rows = new Map([...names].map((name) => [name, index.sequence(partition, name)]));
  const horizon = index.horizon(partition) ?? -1;
  const view = { end: index.end(partition), through: index.through(partition) };
  const life = ledger.life(partition);
  const unseen = pending.filter(
    (one) => one.kind === 'numbers' && known?.shown.has(EntryKey.of(one.key).name) !== true,
  );
  const keys = (unseen as PendingNumbers[]).map(({ key }) => ({ key: EntryKey.of(key) }));
  const keyed = [...part.due.map(({ accepted }) => accepted), ...keys];
  const found = await ledger.decided(partition, keyed, undefined, ahead);
  for (const {
    key: { name },
  } of keys) {
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
    firstOf: ({ key }) => shown.get(EntryKey.of(key).name),
    isForgotten: ({ key, entry }) => {
      const { name } = EntryKey.of(key);
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
    const { name } = EntryKey.of(key);
    own.set(name, firstDecided(entry, { offset, appendedAtMs }));
    known.shown.set(name, entry.first);
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

/** A request for numbers, and its place in the part. */
export interface NumbersRequest {
  readonly at: number;
  readonly accepted: Accepted;
  readonly sequence: string;
}

/** Requests for numbers of one partition that are decided together, and what is decided of them so far. */
export class NumbersPart {
  readonly partition: number;
  readonly #all: readonly NumbersRequest[];
  readonly #decisions: (Decision | undefined)[];
  #mustCatchUp = false;
  #isConfirmed = false;

  constructor(partition: number, requests: readonly Accepted[]) {
    this.partition = partition;
    this.#decisions = new Array<Decision | undefined>(requests.length);
    this.#all = requests.map((accepted, at) => {
      const { sequence } = accepted.request;
      if (sequence === undefined) throw new RangeError('a request for IDs among those for numbers');
      return { at, accepted, sequence };
    });
  }

  /** The requests that are not decided yet, in order. */
  get due(): readonly NumbersRequest[] {
    return this.#all.filter(({ at }) => this.#decisions[at] === undefined);
  }

  get isDecided(): boolean {
    return this.#all.every(({ at }) => this.#decisions[at] !== undefined);
  }

  decide({ at }: NumbersRequest, decision: Decision): void {
    this.#decisions[at] = decision;
  }

  decisions(): Decision[] {
    if (!this.isDecided) throw new RangeError('a request for numbers was not decided');
    return this.#decisions as Decision[];
  }

  /** The requests with their decisions, as far as there are any. */
  *decided(): Iterable<readonly [NumbersRequest, Decision]> {
    for (const request of this.#all) {
      const decision = this.#decisions[request.at];
      if (decision !== undefined) yield [request, decision];
    }
  }

  /** The names of the sequences that are due. */
  sequences(): Set<string> {
    return new Set(this.due.map(({ sequence }) => sequence));
  }

  records(): readonly RequestRecord[] {
    return this.due.map(({ accepted }) => accepted.record);
  }

  /** The head was read; whoever looks next must have read the ledger to its end. */
  hasReadHead(): void {
    this.#mustCatchUp = true;
  }

  get mustCatchUp(): boolean {
    return this.#mustCatchUp;
  }

  /** The ledger was read to its end, after the head. */
  hasCaughtUp(): void {
    this.#mustCatchUp = false;
    this.#isConfirmed = true;
  }

  /**
   * Head and ledger were read since the part was received. So whatever an operator's command had done before then is
   * known.
   */
  get isConfirmed(): boolean {
    return this.#isConfirmed;
  }
}

/** What a look at requests without a decision leads to. */
interface DraftedNumbers {
  /** Their numbers, to be swapped in; undefined if none gets any. */
  readonly change: HeadChange | undefined;
  /** The requests that get none, unless something changes before they are told so. */
  readonly refused: ReadonlyMap<NumbersRequest, Refused>;
}

/** A request that gets numbers. */
interface NumbersDraft {
  readonly accepted: Accepted;
  readonly sequence: string;
  readonly numbers: { readonly first: number; readonly count: number } & Pick<
    Definition,
    'step' | 'format' | 'edition'
  >;
  /** The highest offset of its copies in the part, as a producer's retry writes them: its record covers them all. */
  through: number;
}

/** The refusals that depend neither on etcd nor on what else is given out. They are not confirmed. */
const AT_ONCE: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['FORGOTTEN', 'ANSWERED_BEFORE', 'QUOTA_EXCEEDED']);

/**
 * The next numbers for the requests that are due, in order, and who gets none. Whoever is refused for what is known of
 * the ledger alone, or by a quota, is told so at once. A request is charged once, however often it is drafted.
 */
function draftNumbers(deps: RulingDeps, part: NumbersPart, view: HeadsView): DraftedNumbers {
  const drafts = new Map<string, NumbersDraft>();
  const refused = new Map<NumbersRequest, Refused>();
  const sequences = new Map<string, SequenceState>();
  for (const request of part.due) {
    const { accepted, sequence } = request;
    const twin = drafts.get(accepted.name);
    if (twin !== undefined) {
      if (twin.accepted.hash.equals(accepted.hash) && isCopy(accepted, twin)) twin.through = accepted.record.offset;
      continue;
    }
    const known = sequences.get(sequence) ?? sequenceIn(view, sequence);
    sequences.set(sequence, known);
    const { count } = accepted.request;
    const refusal =
      refusedUnknown(deps, part.partition, accepted) ??
      refusedBy(sequence, known, count) ??
      charged(deps, part.partition, accepted); // Last, because passing takes from the quota.
    if (refusal !== undefined) {
      if (AT_ONCE.has(refusal.code)) part.decide(request, refusal);
      else refused.set(request, refusal);
      continue;
    }
    const { next: first, step, format, edition } = known as Statement;
    sequences.set(sequence, { ...(known as Statement), next: first + count * step });
    const through = accepted.record.offset;
    drafts.set(accepted.name, { accepted, sequence, numbers: { first, count, step, format, edition }, through });
  }
  const through = Math.max(-1, ...[...drafts.values()].map((draft) => draft.through));
  const change = drafts.size === 0 ? undefined : draftChange(view, [...drafts.values()].map(pendingOf), through);
  return { change, refused };
}

/** What the next request of a sequence meets. */
type SequenceState = Statement | 'stopped' | undefined;

function sequenceIn(view: HeadsView, name: string): SequenceState {
  if (isStopped(view, name)) return 'stopped';
  const definition = definitionNow(view, name);
  const next = view.row(name)?.known.next;
  return definition && next !== undefined ? { ...definition, next } : undefined;
}

function pendingOf({ accepted, sequence, numbers, through }: NumbersDraft): PendingNumbers {
  const { request, hash, key } = accepted;
  const { first, count, step, format, edition } = numbers;
  const entry = {
    kind: 'numbers',
    requestHash: hash,
    replyTopic: request.replyTopic,
    requestOffset: through,
    framing: request.framing,
    schemaFingerprint: WIDE_REPLY_FINGERPRINT,
    ...{ first, count, step, format },
  } as const;
  return { kind: 'numbers', sequence, key: key.toBuffer(), edition, entry };
}

/** Why a new request gets no numbers of a sequence; undefined if it gets some. */
function refusedBy(name: string, known: SequenceState, count: number): Refused | undefined {
  if (known === 'stopped') return { kind: 'refused', code: 'SEQUENCE_STOPPED', message: stoppedText(name) };
  const code = refusalOf(known, count);
  return code && { kind: 'refused', code, message: messageOf(code, name, known) };
}

function stoppedText(name: string): string {
  return `the ledger contradicts what etcd holds of the sequence ${name}, so one of them has lost its memory: numbers go on after an operator has stopped all workers and run 'idalloc namespace rebuild'`;
}

function messageOf(
  code: NonNullable<ReturnType<typeof refusalOf>>,
  name: string,
  known: Statement | undefined,
): string {
  switch (code) {
    case 'UNKNOWN_SEQUENCE':
      return unknownSequenceText(name);
    case 'SEQUENCE_CLOSED':
      return `the sequence ${name} is closed and gives out no more numbers: use another one`;
    case 'SEQUENCE_EXHAUSTED':
      return `the sequence ${name} ends at ${known?.max} and continues at ${known?.next}: request fewer numbers, or raise its end with 'idalloc sequence redefine ${name} --max N'`;
  }
}
