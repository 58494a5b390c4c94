import { isHttpRequestId } from '../codec/http-key.ts';
import type { DecidingEntry } from '../codec/ledger-entry.ts';
import { conflictText, expiredText, numbersConflictText, tooManyText } from '../codec/refusal-texts.ts';
import { textOfId } from '../codec/request-checks.ts';
import { earliestDecisionMs } from '../codec/request-headers.ts';
import type { Layout } from '../core/layout.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { type Decided, FORGOTTEN } from '../ledger/decided.ts';
import type { LedgerIndex } from '../ledger/ledger-ports.ts';
import type { Decision, Refused } from './decision.ts';
import type { Accepted } from './intake.ts';
import { estimatedReplyBytes, type OutgoingContext } from './outgoing.ts';
import type { Charge, Quotas } from './quotas.ts';

/** What decides about a request besides its entry. */
export interface RulingDeps extends AgeDeps, ChargeDeps {
  /** The largest count of a request. */
  readonly maxCount: number;
  readonly now: () => WallMs;
}

/** A request is forwarded at most this often: more means that workers disagree on the number of partitions. */
const MAX_HOPS = 3;

/**
 * A request that is unknown here is forwarded to its home partition, wherever it arrived: so all of its records meet in
 * one ledger partition, and the first entry there decides. One whose reply topic does not exist is refused here: nobody
 * could be told of a batch, and a flood of them would be appended and read a second time.
 *
 * `answeredBelow` is that of the partition. A record below it was forwarded before, and its home decided about that
 * copy: about this one it decides nothing new.
 */
export function route(
  deps: ChargeDeps,
  partition: number,
  accepted: Accepted,
  answeredBelow: number,
): Decision | undefined {
  const { home, request, record } = accepted;
  if (home === partition) return undefined;
  const undeliverable = withoutTopic(deps, accepted);
  if (undeliverable !== undefined) return undeliverable;
  const wasAnswered = request.route.wasAnswered || record.offset < answeredBelow;
  if (request.route.hops < MAX_HOPS) return { kind: 'elsewhere', home, wasAnswered };
  const message = `the request was forwarded ${MAX_HOPS} times and has not reached partition ${home}: workers disagree on the number of partitions`;
  return { kind: 'refused', code: 'MISROUTED', message };
}

/** Why a request without an entry gets nothing, whatever it costs; undefined if it may get something. */
export function refusedUnknown(deps: RulingDeps, partition: number, accepted: Accepted): Refused | undefined {
  const { request, record } = accepted;
  const largest = tooMany(deps, request.count);
  if (largest !== undefined) return largest;
  const horizon = deps.index.horizon(partition);
  if (horizon === undefined || record.offset <= horizon) return forgotten(accepted);
  const tooOld = refuseByAge(deps, partition, accepted);
  if (tooOld !== undefined) return tooOld;
  return expired(deps, accepted) ?? answeredBefore(deps, partition, accepted);
}

function expired(deps: RulingDeps, { request: { expiresAtMs } }: Accepted): Refused | undefined {
  if (expiresAtMs === undefined || deps.now() < expiresAtMs) return undefined;
  return { kind: 'refused', code: 'EXPIRED', message: expiredText(expiresAtMs) };
}

/**
 * An answer is final: what was refused when the record was read before gets nothing now, though an operator has
 * meanwhile created its sequence, or its quota has room. Refusals have no entries, so an unknown record that was
 * answered is one that was refused.
 */
function answeredBefore({ index }: RulingDeps, partition: number, { request, record }: Accepted): Refused | undefined {
  if (!request.route.wasAnswered && record.offset >= index.answeredBelow(partition)) return undefined;
  const message =
    'this record was answered before, and the ledger has no decision for it: it was refused then, or its decision is forgotten; send the request again as a new record';
  return { kind: 'refused', code: 'ANSWERED_BEFORE', message };
}

function tooMany({ maxCount }: RulingDeps, count: number): Refused | undefined {
  if (count <= maxCount) return undefined;
  return { kind: 'refused', code: 'INVALID_COUNT', message: tooManyText(count, maxCount) };
}

/**
 * The decision that the ledger holds: `winner`. `ownOffset` is the offset of the request's own entry, if it just got
 * one.
 */
export function settled(
  deps: RulingDeps,
  partition: number,
  accepted: Accepted,
  winner: Decided | typeof FORGOTTEN | undefined,
  ownOffset?: number,
): Decision {
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

function conflict(entry: DecidingEntry, { request, id }: Accepted): string {
  return entry.kind === 'numbers'
    ? numbersConflictText(entry, textOfId(id), request.sequence)
    : conflictText(entry, request, idKind(request), isHttpRequestId(id));
}

/** The dependencies of what follows from the age of a request. */
export interface AgeDeps {
  readonly index: LedgerIndex;
  /** The time, while this worker's clock is trusted. */
  readonly trustedNow: () => WallMs | undefined;
  /** A decision is renewed when it answers a request that arrived this long after its newest entry. */
  readonly renewAfterMs: number;
  /**
   * Twice the largest difference between two brokers' clocks: one stamps a request, another the entry that decides it.
   */
  readonly clockMarginMs: number;
}

/**
 * Copies of a request get entries until its key has this many: nobody pays for them. Renewals by time alone are fewer,
 * for as long as the ledger keeps entries by default.
 */
const MAX_ENTRIES = 64;

/**
 * Refuses a forwarded or resent request that may have been decided by an entry that is gone. Its offset does not show
 * that, because it gets a new one each time; the time of its first record does.
 *
 * A time that has yet to come, by this record's own time or by this worker's clock, is wrong: some broker's or client's
 * clock is, or was. It must not count as recent once it has come, so nothing is decided by it meanwhile, whatever is
 * known.
 */
function refuseByAge(deps: AgeDeps, partition: number, accepted: Accepted): Refused | undefined {
  const { request, record } = accepted;
  const firstMs = earliestDecisionMs(request.route);
  if (firstMs === undefined) return undefined;
  const { clockMarginMs } = deps;
  if (firstMs > Math.min(record.timestampMs, deps.trustedNow() ?? record.timestampMs) + clockMarginMs)
    return ageless(accepted, firstMs);
  const sinceMs = deps.index.since(partition);
  const isYounger = sinceMs !== undefined && Math.min(firstMs, record.timestampMs) >= sinceMs + clockMarginMs;
  return sinceMs === 0 || isYounger ? undefined : forgotten(accepted);
}

/**
 * Whether the ledger may forget a decision while a request that it answers can still be read again. Entries are kept
 * longer than requests by more than `renewAfterMs`, so a later read of the request finds this entry or its renewal.
 */
export function needsRenewal(
  { renewAfterMs }: AgeDeps,
  accepted: Accepted,
  decided: Decided | typeof FORGOTTEN,
): decided is Decided {
  if (decided === FORGOTTEN || !decided.entry.requestHash.equals(accepted.hash)) return false;
  if (decided.entries < MAX_ENTRIES && isCopy(accepted, decided)) return true;
  return accepted.record.timestampMs - decided.newestMs >= renewAfterMs;
}

/**
 * Whether a record is a copy, as a producer's retry writes it, that no entry of its decision covers. Nothing shows its
 * age, so once the entries are gone, only the request offsets in them show that it was answered.
 */
export function isCopy({ record, request }: Accepted, { through }: { readonly through: number }): boolean {
  return record.offset > through && earliestDecisionMs(request.route) === undefined;
}

/** No batch is better than a second one. A document that has its numbers must not get others. */
function forgotten({ request }: Accepted): Refused {
  const ifNone = request.sequence === undefined ? '' : 'look whether its document has its numbers; if not, ';
  const message = `the ledger no longer holds the decisions for requests of this age: ${ifNone}send the request under a new ${idKind(request)}`;
  return { kind: 'refused', code: 'FORGOTTEN', message };
}

function ageless(accepted: Accepted, firstMs: number): Refused {
  const said = new Date(firstMs).toISOString();
  const message = `the age of this request is unknown, since its headers say that it was first sent at ${said}, which is yet to come: correct the clock of the broker or client that said so, and send the request under a new ${idKind(accepted.request)}`;
  return { kind: 'refused', code: 'FORGOTTEN', message };
}

/** Which of its IDs names the request, for messages. */
export function idKind({ requestId }: { readonly requestId?: Buffer | undefined }): string {
  return requestId === undefined ? 'correlation ID' : 'request ID';
}

/** What a requester may cause, and how large its replies are. */
export interface ChargeDeps extends Pick<OutgoingContext, 'customLayout'> {
  readonly layout: Layout;
  /** Undefined when no quotas are configured. */
  readonly quotas?: Quotas | undefined;
  /** The reply topics of the part that do not exist: whoever names one must use up neither another's quota nor IDs. */
  readonly missing?: ReadonlySet<string> | undefined;
}

/** The cost of a request: new IDs unless it has an entry, and a reply of about the size that its batch will have. */
export function chargeOf(deps: ChargeDeps, partition: number, accepted: Accepted, entry?: DecidingEntry): Charge {
  const { record, request } = accepted;
  const { sequencesPerTick, sequenceStartBelow } = deps.layout;
  const ranges =
    entry?.kind === 'batch'
      ? entry.batch.ranges.length
      : 1 + request.count / (sequencesPerTick - sequenceStartBelow + 1);
  return {
    partition,
    offset: record.offset,
    replyTopic: request.replyTopic,
    ids: entry === undefined ? request.count : 0,
    replyBytes: estimatedReplyBytes(accepted, Math.ceil(ranges), deps),
  };
}

/** Whether a new request would be refused for what it costs; charges nothing. */
export function wouldRefuse(deps: ChargeDeps, partition: number, accepted: Accepted): boolean {
  if (deps.missing?.has(accepted.request.replyTopic) === true) return true;
  return deps.quotas?.wouldRefuse(chargeOf(deps, partition, accepted)) === true;
}

/** The refusal of a request whose reply topic does not exist, whatever its decision is. */
function withoutTopic({ missing }: ChargeDeps, { request: { replyTopic } }: Accepted): Refused | undefined {
  if (missing?.has(replyTopic) !== true) return undefined;
  const message = `topic ${replyTopic} does not exist or can't be seen: create it with 'idalloc topics init --reply-topic ${replyTopic}'`;
  return { kind: 'refused', code: 'REPLY_UNDELIVERABLE', message };
}

/** Charges a request for its batch, new or that of its entry; returns why it can't have it now. */
export function charged(
  deps: ChargeDeps,
  partition: number,
  accepted: Accepted,
  entry?: DecidingEntry,
): Refused | undefined {
  const undeliverable = withoutTopic(deps, accepted);
  if (undeliverable !== undefined || deps.quotas === undefined) return undeliverable;
  const excess = deps.quotas.refuse(chargeOf(deps, partition, accepted, entry));
  return excess && { kind: 'refused', code: 'QUOTA_EXCEEDED', ...excess };
}
