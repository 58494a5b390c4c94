import { isHttpRequestId } from '../codec/http-key.ts';
import type { DecidingEntry } from '../codec/ledger-entry.ts';
import { conflictText, expiredText, numbersConflictText, tooManyText } from '../codec/refusal-texts.ts';
import { decidingIdOf } from '../codec/request.ts';
import { textOfId } from '../codec/request-checks.ts';
import type { WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { type Decided, FORGOTTEN } from '../ledger/decided.ts';
import { type AgeDeps, forgotten, idKind, refuseByAge } from './age.ts';
import { type ChargeDeps, withoutTopic } from './charges.ts';
import type { Decision, Refused } from './decision.ts';
import type { Accepted } from './intake.ts';

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

function conflict(entry: DecidingEntry, { request }: Accepted): string {
  const id = decidingIdOf(request);
  return entry.kind === 'numbers'
    ? numbersConflictText(entry, textOfId(id), request.sequence)
    : conflictText(entry, request, idKind(request), isHttpRequestId(id));
}
