import { type DecidingEntry, encodeLedgerEntry, type LedgerBatchEntry } from '../codec/ledger-entry.ts';
import { RENEWAL } from '../codec/sequence-entry.ts';
import type { Layout } from '../core/layout.ts';
import type { Decided, ReadAhead } from '../ledger/decided.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Decision } from './decision.ts';
import { type Accepted, hasTwins } from './intake.ts';
import type { Allocation, Allocator } from './ports.ts';
import {
  charged,
  isCopy,
  needsRenewal,
  type RulingDeps,
  refusedUnknown,
  route,
  settled,
  wouldRefuse,
} from './rulings.ts';
import type { PartTrace } from './trace.ts';

/** The dependencies of `decide`. */
export interface DecisionDeps extends RulingDeps, DraftDeps {
  /** The partitions that have a ledger. Requests of others are forwarded. */
  readonly partitions: number;
}

/**
 * How often a part is decided, until what was found in vain to be old is renewed: each time, another writer was first.
 */
const MAX_TRIES = 3;

/** A request and its place in the part. */
interface Due {
  readonly at: number;
  readonly accepted: Accepted;
}

/**
 * Decides a bounded number of requests for IDs of one partition: look up, admit, allocate, append, settle. Runs in the
 * partition's turn; returns one decision for each request, in order. Requests for numbers of another partition are
 * forwarded.
 *
 * The look-up comes before every check, so a known request always gets its batch. The decision is what the ledger holds
 * after settling, never what this worker tried to write. A decision that proves old is renewed.
 *
 * Undefined, and nothing is done, if the ledger must be read first and was not read `ahead` of the turn.
 */
export async function decide(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
  prepared?: Prepared,
  ahead?: ReadAhead,
): Promise<Decision[] | undefined> {
  const decisions = new Array<Decision | undefined>(part.length);
  let due: readonly Due[] = part.map((accepted, at) => ({ at, accepted }));
  for (let tries = 1; due.length > 0; tries += 1) {
    if (!(await decideDue(deps, partition, due, decisions, { prepared, ahead, tries }))) return undefined;
    due = due.filter(({ at }) => decisions[at] === undefined);
  }
  return decisions as Decision[];
}

/**
 * Decides all but those whose decision, by another writer, must be renewed; the last try: those as well. False if the
 * ledger must be read first.
 */
async function decideDue(
  deps: DecisionDeps,
  partition: number,
  due: readonly Due[],
  decisions: (Decision | undefined)[],
  {
    prepared,
    ahead,
    tries,
  }: {
    readonly prepared: Prepared | undefined;
    readonly ahead: ReadAhead | undefined;
    readonly tries: number;
  },
): Promise<boolean> {
  const view = { end: deps.index.end(partition), through: deps.index.through(partition) };
  const answeredBelow = deps.index.answeredBelow(partition);
  const life = deps.ledger.life(partition);
  const accepteds = due.map(({ accepted }) => accepted);
  const hashes: number[] = [];
  const known =
    tries === 1 && ahead === undefined
      ? deps.ledger.decidedUnread(partition, accepteds, hashes)
      : await deps.ledger.decided(partition, accepteds, hashes, ahead);
  if (known === undefined) return false;
  const drafted = hasTwins(accepteds) ? new Map<string, Undecided>() : undefined;
  const drafts: Undecided[] = [];
  const renewals = new Map<string, DecidingDraft>();
  for (let i = 0; i < due.length; i += 1) {
    const { at, accepted } = due[i] as Due;
    // Its name is needed only if it may be known, or have a twin.
    const decided = known.size === 0 ? undefined : known.get(accepted.name);
    const twin = drafted?.get(accepted.name);
    if (twin !== undefined) {
      if (twin.accepted.hash.equals(accepted.hash) && isCopy(accepted, twin)) twin.through = accepted.record.offset;
      continue;
    }
    if (decided !== undefined) {
      if (needsRenewal(deps, accepted, decided)) renewals.set(accepted.name, renewalOf(accepted, decided, view));
      continue;
    }
    decisions[at] =
      route(deps, partition, accepted, answeredBelow) ??
      refusedUnknown(deps, partition, accepted) ??
      charged(deps, partition, accepted); // Last, because passing takes from the quota.
    if (decisions[at] !== undefined) continue;
    const hash = hashes[i] as number;
    const draft: Undecided = { accepted, hash, through: accepted.record.offset, offset: undefined, first: undefined };
    drafted?.set(accepted.name, draft);
    drafts.push(draft);
  }
  await write(deps, partition, { view, life }, drafts, [...renewals.values()], prepared);
  const lost = drafts.filter(({ first }) => first === undefined);
  const settling = lost.map(({ accepted }) => accepted);
  const winners = settling.length === 0 ? undefined : await deps.ledger.decided(partition, settling);
  let next = 0; // of the drafts, which follow the order of their requests
  for (const { at, accepted } of due) {
    const own = drafts[next]?.accepted === accepted ? drafts[next++] : undefined;
    const draft = own ?? drafted?.get(accepted.name);
    // An entry may become readable long after its append: it is known now, and is renewed at the next try.
    const winner = winners?.get(accepted.name);
    if (tries < MAX_TRIES && winner !== undefined && needsRenewal(deps, accepted, winner)) continue;
    const found = winner ?? draft?.first ?? (known.size === 0 ? undefined : known.get(accepted.name));
    decisions[at] ??= settled(deps, partition, accepted, found, own?.offset);
  }
  return true;
}

/** The requests that will get IDs, as it looks now: the first ones of their keys that are unknown and not refused. */
export async function withoutDecision(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
  ahead: ReadAhead,
): Promise<Accepted[]> {
  const known = await deps.ledger.decided(partition, part, undefined, ahead);
  const firsts = new Map(part.toReversed().map((accepted) => [accepted.name, accepted]));
  return [...firsts]
    .filter(([name, accepted]) => {
      return !known.has(name) && !wouldRefuse(deps, partition, accepted) && !refusedUnknown(deps, partition, accepted);
    })
    .map(([, accepted]) => accepted);
}

/**
 * For a partition that was added to the request topic: nothing was ever decided there, so each request goes to its
 * home.
 */
export function forwardAll(deps: DecisionDeps, partition: number, part: readonly Accepted[]): Decision[] {
  return part.map((accepted) => {
    const decision = route(deps, partition, accepted, 0);
    if (decision === undefined) throw new RangeError(`partition ${partition} has no ledger`);
    return decision;
  });
}

/** The dependencies of `write`. */
interface DraftDeps {
  readonly layout: Layout;
  readonly datacenterId: number;
  readonly ledger: Ledger;
  readonly allocator: Allocator;
  /** The steps of the part that is being decided. */
  readonly trace: PartTrace;
}

/** IDs that were taken for requests before their partition's turn, by the offset of the request. */
export type Prepared = Map<number, Allocation>;

/** The state of the index when the keys of a part were looked up. */
export interface View {
  readonly end: number;
  readonly through: number;
}

/** What a look-up was based on. */
export interface LookUp {
  readonly view: View;
  readonly life: number;
}

/** A request that gets IDs. */
interface Undecided {
  readonly accepted: Accepted;
  /** The index's hash of its key. */
  readonly hash: number;
  /** The highest offset of its copies in the part, as a producer's retry writes them: its entry covers them all. */
  through: number;
  /** Once it is written: where. */
  offset: number | undefined;
  /** Once it is written: the decision, if it is known to be the first entry of its key. */
  first: Decided | undefined;
}

/** An entry to append that decides a request. */
export interface DecidingDraft {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly entry: DecidingEntry;
  /** The index's hash of the key, if it was looked up. */
  readonly hash?: number;
}

/**
 * Allocates for the drafts that hold no IDs yet, commits their entries, and the renewals with them, and notes in each
 * draft what became of it.
 */
async function write(
  deps: DraftDeps,
  partition: number,
  { view, life }: LookUp,
  drafts: readonly Undecided[],
  renewals: readonly DecidingDraft[],
  prepared: Prepared | undefined,
): Promise<void> {
  if (drafts.length + renewals.length === 0) return;
  const allocations = await allocate(deps, drafts, prepared);
  const entries = drafts.map((draft, i): DecidingDraft => {
    const entry = batchEntry(deps, draft, allocations[i] as Allocation, view);
    return { key: draft.accepted.key.toBuffer(), value: encodeLedgerEntry(entry), entry, hash: draft.hash };
  });
  const { baseOffset, appendedAtMs, firsts } = await deps.trace.step(
    'append',
    () => drafts.map(({ accepted }) => accepted.record),
    () => deps.ledger.commit(partition, { end: view.end, life, entries: [...entries, ...renewals] }),
  );
  drafts.forEach((draft, i) => {
    const { entry } = entries[i] as DecidingDraft;
    const offset = baseOffset + i;
    draft.offset = offset;
    if (firsts.has(offset)) draft.first = firstDecided(entry, { offset, appendedAtMs });
  });
}

/** The decision of an entry that was just settled as the first one of its key. */
export function firstDecided(
  entry: DecidingEntry,
  place: { readonly offset: number; readonly appendedAtMs: number },
): Decided {
  return { ...place, entry, newestMs: place.appendedAtMs, through: entry.requestOffset, entries: 1 };
}

/** The same decision again, for a later request. It has no effect while an earlier entry exists. */
export function renewalOf({ key, record }: Accepted, decided: Decided, view: View): DecidingDraft {
  const again = { requestOffset: record.offset, ...view };
  const entry: DecidingEntry =
    decided.entry.kind === 'numbers' ? { ...decided.entry, ...again, at: RENEWAL } : { ...decided.entry, ...again };
  return { key: key.toBuffer(), value: encodeLedgerEntry(entry), entry };
}

/** The IDs of each draft that needs some. Those prepared in an earlier term are not used: their time has passed. */
async function allocate(
  { allocator }: DraftDeps,
  drafts: readonly Undecided[],
  prepared: Prepared | undefined,
): Promise<readonly (Allocation | undefined)[]> {
  const allocations = drafts.map(({ accepted }) => {
    const held = prepared?.get(accepted.record.offset);
    return held !== undefined && allocator.holds(held) ? held : undefined;
  });
  const due: number[] = [];
  allocations.forEach((held, i) => {
    if (held === undefined) due.push(i);
  });
  if (due.length === 0) return allocations;
  const taken = await allocator.allocate(due.map((i) => (drafts[i] as Undecided).accepted.request.count));
  if (taken.length < due.length) throw new RangeError('the allocator returned fewer allocations than requested');
  due.forEach((i, nth) => {
    allocations[i] = taken[nth];
  });
  return allocations;
}

function batchEntry(
  { layout, datacenterId }: DraftDeps,
  { accepted: { request, hash }, through }: Undecided,
  allocation: Allocation,
  view: View,
): LedgerBatchEntry {
  return {
    kind: 'batch',
    requestHash: hash,
    count: request.count,
    replyTopic: request.replyTopic,
    batch: {
      ranges: allocation.ranges,
      step: layout.step,
      datacenterId,
      workerId: allocation.workerId,
      fence: allocation.fence,
      epochMs: layout.epochMs,
      layoutFingerprint: layout.fingerprint,
      generatedAtMs: allocation.generatedAt,
    },
    framing: request.framing,
    schemaFingerprint: request.schemaFingerprint,
    requestOffset: through,
    ...view,
  };
}
