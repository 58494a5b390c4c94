import { type DecidingEntry, encodeLedgerEntry, type LedgerBatchEntry } from '../codec/ledger-entry.ts';
import { RENEWAL } from '../codec/sequence-entry.ts';
import type { Layout } from '../core/layout.ts';
import type { Decided } from '../ledger/decided.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Accepted } from './intake.ts';
import type { Allocation, Allocator } from './ports.ts';
import type { PartTrace } from './trace.ts';

/** The dependencies of `write`. */
export interface DraftDeps {
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
export interface Undecided {
  readonly accepted: Accepted;
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
}

/**
 * Allocates for the drafts that hold no IDs yet, commits their entries, and the renewals with them, and notes in each
 * draft what became of it.
 */
export async function write(
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
    return { key: draft.accepted.key, value: encodeLedgerEntry(entry), entry };
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
  return { key, value: encodeLedgerEntry(entry), entry };
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
