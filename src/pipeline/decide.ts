import { encodeLedgerEntry, type LedgerBatchEntry } from '../codec/ledger-entry.ts';
import { requestIdOf } from '../codec/request.ts';
import { earliestDecisionMs } from '../codec/request-origin.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { type ChargeDeps, charged, type Refused, wouldRefuse } from './charges.ts';
import { type Decided, type Decisions, FORGOTTEN, nameOf } from './decided.ts';
import type { Accepted } from './intake.ts';
import type { Ledger } from './ledger.ts';
import type { Allocation, Allocator, LedgerIndex } from './ports.ts';

/** The dependencies of `decide`. */
export interface DecisionDeps extends ChargeDeps {
  readonly datacenterId: number;
  /** The largest count of a request. */
  readonly maxCount: number;
  readonly index: LedgerIndex;
  readonly ledger: Ledger;
  readonly allocator: Allocator;
  readonly now: () => WallMs;
  /** The home partition of a request ID. */
  readonly homeOf: (requestId: Buffer) => number;
  /** A decision is renewed when it answers a request that arrived this long after its newest entry. */
  readonly renewAfterMs: number;
  /** Twice the largest difference between two brokers' clocks: one stamps a request, another the entry that decides it. */
  readonly clockMarginMs: number;
}

/** A request is forwarded at most this often: more means that workers disagree on the number of partitions. */
const MAX_HOPS = 3;

/** The outcome for a request: the batch that the ledger holds for it, or why there is none. */
export type Decision =
  | {
      readonly kind: 'batch';
      readonly entry: LedgerBatchEntry;
      readonly appendedAtMs: number;
      readonly replayed: boolean;
    }
  | Refused
  /** Another partition decides; the request is unknown here. */
  | { readonly kind: 'elsewhere'; readonly home: number };

/** The state of the index when the keys of a part were looked up. */
interface View {
  readonly end: number;
  readonly through: number;
}

/** IDs that were taken for requests before their partition's turn, by the offset of the request. */
export type Prepared = Map<number, Allocation>;

/**
 * Decides a bounded number of requests of one partition: look up, admit, allocate, append, settle. Runs in the
 * partition's turn; returns one decision for each request, in order.
 *
 * The look-up comes before every check, so a known request always gets its batch. The decision is what the ledger holds
 * after settling, never what this worker tried to write.
 */
export async function decide(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
  prepared?: Prepared,
): Promise<Decision[]> {
  const view = { end: deps.index.end(partition), through: deps.index.through(partition) };
  const epoch = deps.ledger.epoch(partition);
  const known = await deps.ledger.decided(
    partition,
    part.map(({ key }) => key),
  );
  const decisions = new Array<Decision | undefined>(part.length);
  const drafted = new Set<string>();
  const drafts: Draft[] = [];
  const renewals = new Map<string, EntryDraft>();
  part.forEach((accepted, at) => {
    const name = nameOf(accepted.key);
    const decided = known.get(name);
    if (decided !== undefined) {
      if (needsRenewal(deps, accepted, decided)) renewals.set(name, renewalOf(accepted, decided, view));
      return;
    }
    if (drafted.has(name)) return;
    decisions[at] = route(deps, partition, accepted) ?? admit(deps, partition, accepted);
    if (decisions[at] !== undefined) return;
    drafted.add(name);
    drafts.push({ at, name, accepted });
  });
  const written = await write(deps, partition, { view, epoch }, drafts, [...renewals.values()], prepared);
  const lost = drafts.filter(({ name }) => !written.firsts.has(name)).map(({ accepted }) => accepted.key);
  const found = new Map([...known, ...written.firsts, ...(await deps.ledger.decided(partition, lost))]);
  return part.map(
    (accepted, at) => decisions[at] ?? settled(deps, partition, accepted, found, written.offsets.get(at)),
  );
}

/** The requests that will get IDs, as it looks now: the first ones of their keys that are unknown and not refused. */
export async function withoutDecision(
  deps: DecisionDeps,
  partition: number,
  part: readonly Accepted[],
): Promise<Accepted[]> {
  const known = await deps.ledger.decided(
    partition,
    part.map(({ key }) => key),
  );
  const firsts = new Map(part.toReversed().map((accepted) => [nameOf(accepted.key), accepted]));
  return [...firsts]
    .filter(([name, accepted]) => !known.has(name) && !wouldRefuse(deps, partition, accepted))
    .map(([, accepted]) => accepted);
}

/** A request that gets an entry, its place in the part, and the name of its key. */
interface Draft {
  readonly at: number;
  readonly name: string;
  readonly accepted: Accepted;
}

/**
 * A request that is unknown here is forwarded to its home partition, wherever it arrived: so all of its records meet in
 * one ledger partition, and the first entry there decides.
 */
function route({ homeOf }: DecisionDeps, partition: number, { request }: Accepted): Decision | undefined {
  const home = homeOf(requestIdOf(request));
  if (home === partition) return undefined;
  if (request.route.hops < MAX_HOPS) return { kind: 'elsewhere', home };
  const message = `the request was forwarded ${MAX_HOPS} times and has not reached partition ${home}: workers disagree on the number of partitions`;
  return { kind: 'refused', code: 'MISROUTED', message };
}

/** The checks for requests without an entry. */
function admit(deps: DecisionDeps, partition: number, accepted: Accepted): Decision | undefined {
  const { request, record } = accepted;
  const largest = tooMany(deps, request.count);
  if (largest !== undefined) return largest;
  const horizon = deps.index.horizon(partition);
  if (horizon === undefined || record.offset <= horizon) return forgotten(accepted);
  const earliestMs = earliestDecisionMs(request.route);
  if (earliestMs !== undefined && mayBeOlder(deps, partition, Math.min(earliestMs, record.timestampMs)))
    return forgotten(accepted);
  const { expiresAtMs } = request;
  if (expiresAtMs !== undefined && deps.now() >= expiresAtMs) {
    const message = `the request expired at ${new Date(expiresAtMs).toISOString()} and has no batch: send a new one`;
    return { kind: 'refused', code: 'EXPIRED', message };
  }
  // Last, because passing takes from the quota.
  return charged(deps, partition, accepted);
}

/**
 * Whether a forwarded or resent request may have been decided by an entry that is gone. Its offset does not show that,
 * because it gets a new one each time.
 */
function mayBeOlder({ index, clockMarginMs }: DecisionDeps, partition: number, earliestMs: number): boolean {
  const sinceMs = index.since(partition);
  return sinceMs !== 0 && (sinceMs === undefined || earliestMs < sinceMs + clockMarginMs);
}

function tooMany({ maxCount }: DecisionDeps, count: number): Decision | undefined {
  if (count <= maxCount) return undefined;
  const message = `count ${count} is above ${maxCount}, the largest batch of one request: send several requests`;
  return { kind: 'refused', code: 'INVALID_COUNT', message };
}

/** An entry to append. */
interface EntryDraft {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly entry: LedgerBatchEntry;
}

/**
 * Whether the ledger may forget a decision while a request that it answers can still be read again. Entries are kept
 * longer than requests by more than `renewAfterMs`, so a later read of the request finds this entry or its renewal.
 */
function needsRenewal(
  { renewAfterMs }: DecisionDeps,
  { record, hash }: Accepted,
  decided: Decided | typeof FORGOTTEN,
): decided is Decided {
  if (decided === FORGOTTEN || !decided.entry.requestHash.equals(hash)) return false;
  return record.timestampMs - decided.newestMs >= renewAfterMs;
}

/** The same decision again, for a later request. It has no effect while an earlier entry exists. */
function renewalOf({ key, record }: Accepted, decided: Decided, view: View): EntryDraft {
  const entry = { ...decided.entry, requestOffset: record.offset, ...view };
  return { key, value: encodeLedgerEntry(entry), entry };
}

/** What a look-up was based on. */
interface LookUp {
  readonly view: View;
  readonly epoch: number;
}

interface Written {
  /** The offset of each entry, by the position of its request in the part. */
  readonly offsets: ReadonlyMap<number, number>;
  /** The entries known to be the first of their keys. */
  readonly firsts: ReadonlyMap<string, Decided>;
}

/** Allocates for the drafts that hold no IDs yet, and commits their entries, and the renewals with them. */
async function write(
  deps: DecisionDeps,
  partition: number,
  { view, epoch }: LookUp,
  drafts: readonly Draft[],
  renewals: readonly EntryDraft[],
  prepared: Prepared | undefined,
): Promise<Written> {
  const offsets = new Map<number, number>();
  const firsts = new Map<string, Decided>();
  if (drafts.length + renewals.length === 0) return { offsets, firsts };
  const allocations = await allocate(deps, drafts, prepared);
  const entries = drafts.map(({ accepted }, i): EntryDraft => {
    const allocation = allocations[i];
    if (allocation === undefined) throw new RangeError('the allocator returned fewer allocations than requested');
    const entry = entryOf(deps, accepted, allocation, view);
    return { key: accepted.key, value: encodeLedgerEntry(entry), entry };
  });
  const settled = await deps.ledger.commit(partition, { end: view.end, epoch, entries: [...entries, ...renewals] });
  drafts.forEach(({ at, name }, i) => {
    const offset = settled.baseOffset + i;
    offsets.set(at, offset);
    const { entry } = entries[i] as EntryDraft;
    const { appendedAtMs } = settled;
    if (settled.firsts.has(offset)) firsts.set(name, { offset, entry, appendedAtMs, newestMs: appendedAtMs });
  });
  return { offsets, firsts };
}

/** One allocation for each draft, in order. Those prepared in an earlier term are not used: their time has passed. */
async function allocate(
  { allocator }: DecisionDeps,
  drafts: readonly Draft[],
  prepared: Prepared | undefined,
): Promise<readonly (Allocation | undefined)[]> {
  const held = drafts.map(({ accepted }) => prepared?.get(accepted.record.offset));
  const due = drafts.filter((_, i) => held[i] === undefined || !allocator.holds(held[i]));
  if (due.length === 0) return held;
  const taken = await allocator.allocate(due.map(({ accepted }) => accepted.request.count));
  const fresh = new Map(due.map(({ name }, i) => [name, taken[i]]));
  return drafts.map(({ name }, i) => fresh.get(name) ?? held[i]);
}

function entryOf(deps: DecisionDeps, accepted: Accepted, allocation: Allocation, view: View): LedgerBatchEntry {
  const { request, record, hash } = accepted;
  return {
    kind: 'batch',
    requestHash: hash,
    count: request.count,
    replyTopic: request.replyTopic,
    requestOffset: record.offset,
    batch: {
      ranges: allocation.ranges,
      step: deps.layout.step,
      datacenterId: deps.datacenterId,
      workerId: allocation.workerId,
      fence: allocation.fence,
      epochMs: deps.layout.epochMs,
      layoutFingerprint: deps.layout.fingerprint,
      generatedAtMs: allocation.generatedAt,
    },
    framing: request.framing,
    schemaFingerprint: request.schemaFingerprint,
    ...view,
  };
}

/** The decision that the ledger holds. `ownOffset` is the offset of the request's own entry, if it just got one. */
function settled(
  deps: DecisionDeps,
  partition: number,
  accepted: Accepted,
  found: Decisions,
  ownOffset: number | undefined,
): Decision {
  const winner = found.get(nameOf(accepted.key));
  if (winner === FORGOTTEN) return forgotten(accepted);
  if (winner === undefined) {
    throw new IdallocError(
      'LEDGER_TRUNCATED',
      `ledger partition ${partition} has no entry for a request that was just settled: restoring the index from the log`,
    );
  }
  const { entry, appendedAtMs, offset } = winner;
  if (entry.requestHash.equals(accepted.hash)) {
    return { kind: 'batch', entry, appendedAtMs, replayed: offset !== ownOffset };
  }
  // An error that does not depend on the ledger must be the same whenever the record is read.
  return (
    tooMany(deps, accepted.request.count) ?? {
      kind: 'refused',
      code: 'CONFLICT',
      message: conflict(entry, accepted),
    }
  );
}

/** No batch is better than a second one. */
function forgotten(accepted: Accepted): Decision {
  const message = `the ledger no longer holds the decisions for requests of this age: send the request under a new ${idKind(accepted.request)}`;
  return { kind: 'refused', code: 'FORGOTTEN', message };
}

/** Names what differs, but not the other request's values: it may be another requester's. */
function conflict(entry: LedgerBatchEntry, accepted: Accepted): string {
  const { request } = accepted;
  const differing = [
    ...(entry.count === request.count ? [] : [`count (here ${request.count})`]),
    ...(entry.replyTopic === request.replyTopic ? [] : [`reply_topic (here ${request.replyTopic})`]),
  ];
  const kind = idKind(accepted.request);
  return `this ${kind} was used for another request; it differs in ${differing.join(' and ')}: use a new ${kind}`;
}

/** Which of its IDs names the request, for messages. */
export function idKind({ requestId }: { readonly requestId?: Buffer }): string {
  return requestId === undefined ? 'correlation ID' : 'request ID';
}
