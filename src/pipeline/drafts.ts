import { WIDE_REPLY_FINGERPRINT } from '../codec/id-reply.ts';
import { type DecidingEntry, encodeLedgerEntry, type LedgerBatchEntry } from '../codec/ledger-entry.ts';
import { countsAt } from '../codec/ledger-position.ts';
import { type LedgerNumbers, RENEWAL } from '../codec/sequence-entry.ts';
import type { Layout } from '../core/layout.ts';
import type { Decided } from '../ledger/decided.ts';
import type { Ledger } from '../ledger/ledger.ts';
import type { Accepted } from './intake.ts';
import type { Drafted } from './numbering.ts';
import type { Allocation, Allocator } from './ports.ts';
import type { PartTrace } from './trace.ts';

/** The dependencies of `write`. */
export interface DraftDeps {
  readonly layout: Layout;
  readonly datacenterId: number;
  readonly ledger: Ledger;
  readonly allocator: Allocator;
  /** Of the part that is being decided. */
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
  readonly epoch: number;
}

/** A request that gets an entry, its place in the part, the name of its key, and its numbers if it wants some. */
export interface Undecided {
  readonly at: number;
  readonly name: string;
  readonly accepted: Accepted;
  readonly numbers: Drafted | undefined;
}

/** An entry to append. */
export interface EntryDraft {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly entry: DecidingEntry;
}

interface Written {
  /** The offset of each entry, by the position of its request in the part. */
  readonly offsets: ReadonlyMap<number, number>;
  /** The entries known to be the first of their keys. */
  readonly firsts: ReadonlyMap<string, Decided>;
  /** The names of the keys whose numbers were written for another offset than theirs. */
  readonly voids: ReadonlySet<string>;
}

/** Allocates for the drafts that hold no IDs yet, and commits their entries, and the renewals with them. */
export async function write(
  deps: DraftDeps,
  partition: number,
  { view, epoch }: LookUp,
  drafts: readonly Undecided[],
  renewals: readonly EntryDraft[],
  prepared: Prepared | undefined,
): Promise<Written> {
  const offsets = new Map<number, number>();
  const firsts = new Map<string, Decided>();
  const voids = new Set<string>();
  if (drafts.length + renewals.length === 0) return { offsets, firsts, voids };
  const allocations = await allocate(deps, drafts, prepared);
  const entries = drafts.map((draft, i): EntryDraft => {
    const { key } = draft.accepted;
    const entry = entryOf(deps, draft, allocations.get(draft.name), view, view.end + i);
    return { key, value: encodeLedgerEntry(entry), entry };
  });
  const settled = await deps.trace.step(
    'append',
    () => drafts.map(({ accepted }) => accepted.record),
    () => deps.ledger.commit(partition, { end: view.end, epoch, entries: [...entries, ...renewals] }),
  );
  drafts.forEach(({ at, name }, i) => {
    const offset = settled.baseOffset + i;
    offsets.set(at, offset);
    const { entry } = entries[i] as EntryDraft;
    const { appendedAtMs } = settled;
    if (!countsAt(entry, offset)) voids.add(name);
    if (settled.firsts.has(offset)) firsts.set(name, { offset, entry, appendedAtMs, newestMs: appendedAtMs });
  });
  return { offsets, firsts, voids };
}

/** The same decision again, for a later request. It has no effect while an earlier entry exists. */
export function renewalOf({ key, record }: Accepted, decided: Decided, view: View): EntryDraft {
  const again = { requestOffset: record.offset, ...view };
  const entry: DecidingEntry =
    decided.entry.kind === 'numbers' ? { ...decided.entry, ...again, at: RENEWAL } : { ...decided.entry, ...again };
  return { key, value: encodeLedgerEntry(entry), entry };
}

/** The IDs of each draft that needs some, by its name. Those prepared in an earlier term are not used: their time has passed. */
async function allocate(
  { allocator }: DraftDeps,
  drafts: readonly Undecided[],
  prepared: Prepared | undefined,
): Promise<ReadonlyMap<string, Allocation>> {
  const allocations = new Map<string, Allocation>();
  const due: Undecided[] = [];
  for (const draft of drafts) {
    if (draft.numbers !== undefined) continue;
    const held = prepared?.get(draft.accepted.record.offset);
    if (held !== undefined && allocator.holds(held)) allocations.set(draft.name, held);
    else due.push(draft);
  }
  if (due.length === 0) return allocations;
  const taken = await allocator.allocate(due.map(({ accepted }) => accepted.request.count));
  due.forEach(({ name }, i) => {
    const allocation = taken[i];
    if (allocation === undefined) throw new RangeError('the allocator returned fewer allocations than requested');
    allocations.set(name, allocation);
  });
  return allocations;
}

function entryOf(
  deps: DraftDeps,
  { accepted, numbers }: Undecided,
  allocation: Allocation | undefined,
  view: View,
  at: number,
): DecidingEntry {
  if (numbers !== undefined) return numbersEntry(accepted, numbers, view, at);
  if (allocation === undefined) throw new RangeError('a draft without IDs');
  return batchEntry(deps, accepted, allocation, view);
}

/** `at`: the offset for which it is written, behind everything that the look-up saw and the entries before it in the append. */
function numbersEntry(accepted: Accepted, numbers: Drafted, view: View, at: number): LedgerNumbers {
  const { request, record, hash } = accepted;
  return {
    kind: 'numbers',
    requestHash: hash,
    replyTopic: request.replyTopic,
    requestOffset: record.offset,
    framing: request.framing,
    schemaFingerprint: WIDE_REPLY_FINGERPRINT,
    ...numbers,
    ...view,
    at,
  };
}

function batchEntry(
  { layout, datacenterId }: DraftDeps,
  { request, record, hash }: Accepted,
  allocation: Allocation,
  view: View,
): LedgerBatchEntry {
  return {
    kind: 'batch',
    requestHash: hash,
    count: request.count,
    replyTopic: request.replyTopic,
    requestOffset: record.offset,
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
    ...view,
  };
}
