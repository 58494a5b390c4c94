import { earliestDecisionMs } from '../codec/request-headers.ts';
import type { WallMs } from '../core/units.ts';
import { type Decided, FORGOTTEN } from '../ledger/decided.ts';
import type { LedgerIndex } from '../ledger/ledger-ports.ts';
import type { Refused } from './decision.ts';
import type { Accepted } from './intake.ts';

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
export function refuseByAge(deps: AgeDeps, partition: number, accepted: Accepted): Refused | undefined {
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
export function forgotten({ request }: Accepted): Refused {
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
