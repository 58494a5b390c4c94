import { encodeIdReply, type IdReply } from '../../src/codec/id-reply.ts';
import type { IdRange } from '../../src/core/generator.ts';
import type { Layout } from '../../src/core/layout.ts';
import {
  markedFirst,
  oneAnswer,
  oneAppendAtATime,
  ownCommits,
  renewedInTime,
  repliedBeforeCommitted,
} from './answer-checks.ts';
import { audited } from './audit-checks.ts';
import { completeCopies, honestCopies, syncedCopies, takenOver } from './copy-checks.ts';
import {
  answeredBy,
  decidersOf,
  hadLost,
  mayBeLost,
  nameOf,
  placeName,
  requestsByPlace,
  requestsOfEntries,
  sameRanges,
} from './decisions.ts';
import { final, mayBeRefusedAgain } from './final-checks.ts';
import {
  claimBeyondRequests,
  decidedAgainst,
  decidedThoughKnown,
  decidedThoughRead,
  falseClaim,
  isNewToAdopted,
  mayBeForgotten,
} from './forgetting.ts';
import type { Entry, History, Letter, ReplyRecord, SentRequest } from './history.ts';
import { homeOf, pairAt } from './pairs.ts';
import { gapless, lossStated, numbersDecidedOnce, numbersGivenOnce, numbersReplied } from './sequence-checks.ts';
import { CLOCK_MARGIN_MS, FOREIGN_TOPIC, LIMITED_TOPICS, START_MS } from './setting.ts';
import {
  fleetKnew,
  lostForgotten,
  survivingNumbersOnce,
  survivingNumbersReplied,
  survivingReplies,
  swappedFirst,
} from './survival-checks.ts';
import {
  compare,
  comparedClocks,
  covered,
  disjoint,
  increasing,
  nearThePresent,
  noFalseAlarm,
  oneConfiguration,
  rebuiltOverAll,
  stopped,
  witnessed,
} from './term-checks.ts';

/** The longest time from the check of a request's expiry to its allocation, which may wait for ticks. */
const LONGEST_DECISION_MS = 7_000;

export interface Fault {
  readonly check: CheckName;
  readonly what: string;
}

type Check = (history: History) => string | undefined;
export type CheckName = keyof typeof CHECKS;

/** Each guarantee, as a check of the whole history that returns the first violation. */
export const CHECKS = {
  unique,
  covered,
  disjoint,
  'near the present': nearThePresent,
  'compared clocks': comparedClocks,
  'rebuilt over all': rebuiltOverAll,
  witnessed,
  'one configuration': oneConfiguration,
  refused,
  increasing,
  stopped,
  'closed gate': closedGate,
  'no false alarm': noFalseAlarm,
  'one home': oneHome,
  replay,
  gapless,
  'loss stated': lossStated,
  'numbers decided once': numbersDecidedOnce,
  'numbers given once': numbersGivenOnce,
  'numbers replied': numbersReplied,
  'surviving numbers once': survivingNumbersOnce,
  'surviving numbers replied': survivingNumbersReplied,
  'surviving replies': survivingReplies,
  'fleet knew': fleetKnew,
  'swapped first': swappedFirst,
  'lost forgotten': lostForgotten,
  'one answer': oneAnswer,
  final,
  'renewed in time': renewedInTime,
  'honest entries': honestEntries,
  expired,
  'dead letters': deadLetters,
  'decided before replied': decidedBeforeReplied,
  'replied before committed': repliedBeforeCommitted,
  'own commits': ownCommits,
  'one append at a time': oneAppendAtATime,
  'marked first': markedFirst,
  'complete copies': completeCopies,
  'honest copies': honestCopies,
  'synced copies': syncedCopies,
  'taken over': takenOver,
  sound,
  ready,
  'handed over': handedOver,
  resumed,
  answered,
  audited,
} as const satisfies Record<string, Check>;

export function checkHistory(history: History): Fault[] {
  return (Object.keys(CHECKS) as CheckName[]).flatMap((check) => {
    const what = CHECKS[check](history);
    return what === undefined ? [] : [{ check, what }];
  });
}

interface Span {
  readonly owner: string;
  readonly first: bigint;
  readonly last: bigint;
}

/** No ID repeats, neither among allocations nor among what replies and HTTP responses have. */
function unique({ issued, replies, overHttp, layout }: History): string | undefined {
  const given = issued.map(({ first, last }, i) => ({ owner: `range ${i}`, first, last }));
  const seen = new Map<string, readonly Span[]>();
  for (const { partition, key, requestId, reply } of replies) {
    // All partitions of a pair have the same decisions.
    const pair = partition < 0 ? partition : pairAt(partition).first;
    const spans = spansOf(`${pair}/${requestId ?? key}`, reply);
    const text = spans.map(({ owner, first, last }) => `${owner} ${first} ${last}`).join();
    if (!seen.has(text)) seen.set(text, spans);
  }
  const called = overHttp.flatMap(({ process, ranges }, i) =>
    spansIn(`HTTP response ${i} of ${process}`, ranges, layout),
  );
  return overlapOf(given, layout) ?? overlapOf([...[...seen.values()].flat(), ...called], layout);
}

function spansOf(owner: string, reply: IdReply): readonly Span[] {
  if (!('batch' in reply)) return [];
  return spansIn(owner, reply.batch.ranges, reply.batch);
}

function spansIn(owner: string, ranges: readonly IdRange[], { step }: Pick<Layout, 'step'>): readonly Span[] {
  return ranges.map(({ first, count }) => ({ owner, first, last: first + BigInt(count - 1) * step }));
}

/** Spans that differ below the step have no ID in common: they are of different workers. */
function overlapOf(spans: readonly Span[], { step }: Pick<Layout, 'step'>): string | undefined {
  for (const same of Map.groupBy(spans, ({ first }) => first % step).values()) {
    const sorted = same.toSorted((a, b) => compare(a.first, b.first));
    for (const [i, span] of sorted.entries()) {
      const next = sorted[i + 1];
      if (next !== undefined && next.first <= span.last)
        return `ID ${next.first} belongs to ${span.owner} and to ${next.owner}`;
    }
  }
  return undefined;
}

/**
 * One partition of a pair decides a correlation ID, wherever its requests arrive: so it has one batch over all of them.
 */
function oneHome({ entries }: History): string | undefined {
  const misplaced = entries.find(
    ({ partition, correlationId }) => partition !== homeOf(correlationId, pairAt(partition)),
  );
  return misplaced && `${misplaced.correlationId} was decided in partition ${misplaced.partition}`;
}

/**
 * Whether what the ledger no longer has may seem older than it was, so that a later record of a request counts as
 * younger: a broker whose clock was far behind stamped a record, and nothing in that shows another time. A first entry
 * of IDs shows when its worker allocated them (docs/internals/reach-by-time.md, what the margin covers).
 */
function mayLookOlder({ isBrokerFarOff, marks, entries }: History, again: Entry, request?: SentRequest): boolean {
  if (!isBrokerFarOff || (request?.origin ?? request?.firstSentMs) === undefined) return false;
  const firsts = new Set(
    decidersOf({ entries, trims: [] })
      .values()
      .flatMap((known) => known.map(({ order }) => order)),
  );
  return marks.some(
    ({ order, partition, appendedAtMs }) =>
      partition === again.partition &&
      order < again.order &&
      appendedAtMs < START_MS - CLOCK_MARGIN_MS &&
      !firsts.has(order),
  );
}

/** Each reply has the batch of the deciding entry, byte for byte; CONFLICT and FORGOTTEN occur only where due. */
function replay(history: History): string | undefined {
  const [deciders, requests] = [decidersOf(history), requestsByPlace(history)];
  const copiesOf = answeredBy(history);
  for (const record of history.replies) {
    const request = requests.get(placeName(record));
    if (request === undefined) return `a reply for ${placeName(record)}, which was never sent`;
    if (request.sequence !== undefined || mayBeLost(history, request, record.landed)) continue;
    const known = deciders.get(nameOf(request)) ?? [];
    const faults = copiesOf(record, request).map((copy) => wrongReply(record, copy, known, history));
    if (!faults.includes(undefined))
      return `request ${placeName(record)} (${request.correlationId}) was answered with ${faults[0]}`;
  }
  const requestOf = requestsOfEntries(history);
  for (const [name, known] of deciders) {
    const again = known.find((entry, i) => {
      const before = known.slice(0, i);
      const isRenewal = before.some((was) => sameRanges(entry.batch, was.batch)); // which decides nothing
      if (isRenewal || mayLookOlder(history, entry, requestOf(entry))) return false;
      return before.some((was) => isOlder(entry, was, requestOf(entry), requests));
    });
    if (again !== undefined && !hadLost(history, again.partition)) {
      return `request ${again.partition}/${again.requestOffset} (${name}) was decided again although its decision was lost`;
    }
  }
  const anew = decidedAgainst(history) ?? decidedThoughKnown(history) ?? decidedThoughRead(history);
  return (
    anew && `request ${anew.partition}/${anew.requestOffset} was decided again by ${anew.process}, which knew its batch`
  );
}

/** Whether the request of an entry existed when another one under its correlation ID was decided. */
function isOlder(
  { requestOffset }: Entry,
  was: Entry,
  request: SentRequest | undefined,
  requests: ReadonlyMap<string, SentRequest>,
): boolean {
  const { origin, firstSentMs } = request ?? {};
  if (firstSentMs !== undefined) return true; // the first record came before every decision
  if (origin === undefined) return was.requestOffset >= requestOffset;
  const first = requests.get(`${origin.partition}/${origin.offset}`);
  return first !== undefined && first.order < was.order;
}

function wrongReply(
  record: ReplyRecord,
  request: SentRequest,
  deciders: readonly Entry[],
  history: History,
): string | undefined {
  const tried = request.triedAs ?? request.correlationId;
  if (record.topic !== request.replyTopic || record.key !== tried) return `by ${record.topic} and key ${record.key}`;
  const requestId = request.triedAs === undefined ? undefined : request.correlationId;
  if (record.requestId !== requestId) return `request ID ${record.requestId}`;
  const { reply } = record;
  const correlationId = Buffer.from(tried);
  if ('batch' in reply) {
    const expected = deciders
      .filter((entry) => isFor(entry, request))
      .map(({ batch }) => encodeIdReply({ correlationId, batch }, 'RANGES'));
    return expected.some((value) => value.equals(record.value)) ? undefined : 'another batch than the ledger decided';
  }
  if (!('error' in reply)) return 'numbers';
  const { code } = reply.error;
  if (code === 'CONFLICT' && deciders.some((entry) => !isFor(entry, request))) return undefined;
  if (code === 'EXPIRED' && request.expiresAtMs !== undefined) return undefined;
  if (code === 'INVALID_COUNT' && isAboveLowest(history, request)) return undefined;
  if (code === 'ANSWERED_BEFORE' && mayBeRefusedAgain(history, request, record.landed)) return undefined;
  if (code === 'QUOTA_EXCEEDED' && LIMITED_TOPICS.includes(request.replyTopic)) return undefined;
  const isForgotten =
    (mayBeForgotten(history, request, record.landed) || hadLost(history, request.partition, record.landed)) &&
    !isNewToAdopted(history, request, record.landed);
  return code === 'FORGOTTEN' && isForgotten ? undefined : `${code} without need`;
}

function isFor({ count, replyTopic }: Entry, request: SentRequest): boolean {
  return count === request.count && replyTopic === request.replyTopic;
}

/** Ledger entries state their writers' knowledge correctly: too high a horizon forgets what was never decided. */
function honestEntries(history: History): string | undefined {
  const claim = falseClaim(history);
  if (claim) return `ledger ${claim.partition}/${claim.offset} claims to know of requests up to ${claim.through}`;
  const beyond = claimBeyondRequests(history);
  return beyond && `${beyond.process} wrote a marker to ledger ${beyond.partition} beyond the end of the requests`;
}

/** EXPIRED is returned after the expiry, by some worker's clock; nothing is decided long after it, only renewed. */
function expired({ requests, entries, replies, aheadMs }: History): string | undefined {
  const byPlace = requestsByPlace({ requests });
  for (const record of replies) {
    const { atMs, reply } = record;
    const { expiresAtMs } = byPlace.get(placeName(record)) ?? {};
    if (!('error' in reply) || reply.error.code !== 'EXPIRED' || expiresAtMs === undefined) continue;
    if (expiresAtMs > atMs + aheadMs) return `${placeName(record)}, which had ${expiresAtMs - atMs} ms left`;
  }
  const first = new Map(entries.toReversed().map((entry) => [entry.batch.ranges[0]?.first, entry]));
  const equal = new Map<string, SentRequest[]>();
  for (const request of requests) {
    const name = nameOf(request);
    equal.set(name, [...(equal.get(name) ?? []), request]);
  }
  for (const entry of first.values()) {
    // An entry has the offset of the last copy in its part; a copy before that may have been in time.
    const copies = (equal.get(nameOf(entry)) ?? []).filter(
      (request) => request.offset <= entry.requestOffset && isFor(entry, request),
    );
    if (copies.length === 0) continue; // the log of requests lost them
    const expiries = copies.map(({ expiresAtMs = Number.POSITIVE_INFINITY }) => expiresAtMs);
    const lateMs = entry.batch.generatedAtMs - Math.max(...expiries);
    if (lateMs > LONGEST_DECISION_MS)
      return `${entry.partition}/${entry.requestOffset} was decided ${lateMs} ms too late`;
  }
  return undefined;
}

/** Some worker allows less. */
function isAboveLowest({ lowestCount = Number.POSITIVE_INFINITY }: History, { count }: SentRequest): boolean {
  return count > lowestCount;
}

/**
 * A request becomes a dead letter when no reply to it is allowed, its topic rejects the reply, or it wants more than a
 * worker allows.
 */
function deadLetters(history: History): string | undefined {
  const { letters } = history;
  const byOffset = Map.groupBy(history.requests, ({ partition, offset }) => `${partition}/${offset}`);
  const isDue = (letter: Letter) => (request: SentRequest) => {
    if (letter.code === 'INVALID_COUNT') return isAboveLowest(history, request);
    return letter.code === (request.replyTopic === FOREIGN_TOPIC ? 'INVALID_REPLY_TOPIC' : 'REPLY_UNDELIVERABLE');
  };
  // A letter that comes late may be for a record that the log has lost since.
  const wrong = letters.find(
    (letter) => byOffset.get(`${letter.partition}/${letter.offset}`)?.some(isDue(letter)) !== true,
  );
  return wrong && `request ${wrong.partition}/${wrong.offset} was dropped for ${wrong.code}`;
}

/** When a reply with a decision is sent, the decision is in the ledger. */
function decidedBeforeReplied(history: History): string | undefined {
  const [deciders, requests] = [decidersOf(history), requestsByPlace(history)];
  for (const record of history.replies) {
    const { reply } = record;
    if ('error' in reply && reply.error.code !== 'CONFLICT') continue;
    const request = requests.get(placeName(record));
    if (request?.sequence !== undefined) continue; // 'numbers replied' checks them
    if (request !== undefined && mayBeLost(history, request, record.landed)) continue;
    const known = (request && deciders.get(nameOf(request))) ?? [];
    const there = known.some(
      ({ order, batch }) => order < record.sent && (!('batch' in reply) || sameRanges(batch, reply.batch)),
    );
    if (!there) return `request ${placeName(record)}`;
  }
  return undefined;
}

/** A request over HTTP that comes while the gate is closed gets no IDs. */
function closedGate({ overHttp }: History): string | undefined {
  const early = overHttp.find(({ isClosed }) => isClosed);
  return early && `${early.process} answered over HTTP though its gate was closed`;
}

/** A worker configured with the ledger or the group of another request topic never serves. */
function refused({ strays }: History): string | undefined {
  return strays[0];
}

function sound({ defects }: History): string | undefined {
  return defects[0];
}

/** A worker that reports ready is a member of the group and has had a recent answer from a broker. */
function ready({ falselyReady }: History): string | undefined {
  return falselyReady[0];
}

/** A worker gives up a partition that it does not reach, while another one does. */
function handedOver({ keptUnreached }: History): string | undefined {
  return keptUnreached[0];
}

/** A worker asks an etcd that refuses writes about once a second, and resumes soon after it takes them again. */
function resumed({ unresumed }: History): string | undefined {
  return unresumed[0];
}

/** Once faults end, everything is answered and committed, and every worker is ready, in bounded time. */
function answered({ healedMs, missing }: History): string | undefined {
  return healedMs === undefined ? `left: ${missing.slice(0, 5).join(', ')}` : undefined;
}
