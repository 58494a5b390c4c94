import type { Finding } from './check.ts';
import type { DecidedRequest, FoundRequest } from './found.ts';
import type { BatchLocation } from './location.ts';
import type { Told } from './told.ts';

/** Why a request can't be judged. */
export type Unjudged = 'reply_topic_not_read' | 'replies_deleted' | 'letters_deleted' | 'copies_deleted';

/** What became of a request. */
export type Outcome =
  /** It has a reply with a batch or numbers, only errors, only a dead letter; or nothing yet, though that is no finding. */
  | { readonly kind: 'served' | 'refused' | 'dead' | 'waiting' }
  | { readonly kind: 'unjudged'; readonly reason: Unjudged }
  | { readonly kind: 'wrong'; readonly finding: Finding };

/** The first decision of a request's ID that counts, in its home partition. */
export interface FirstDecision extends BatchLocation {
  readonly timeMs: number;
  readonly of: DecidedRequest;
  /** An earlier one may have been deleted. */
  readonly isDoubtful: boolean;
}

/** What is known of the topics. Times are those of brokers, whose clocks may be `clockMarginMs` apart. */
export interface RequestFacts {
  readonly clockMarginMs: number;
  /** What was sent or decided before this time must be answered. */
  readonly dueBeforeMs: number;
  /** By request partition: everything below was answered before the replies were read. */
  readonly answeredBelow: ReadonlyMap<number, number>;
  /** From which time on all is there; undefined for a topic that was not read. */
  readonly repliesReachMs: (topic: string) => number | undefined;
  readonly lettersReachMs: number | undefined;
  readonly requestsReachMs: (partition: number) => number;
  readonly ledgerReachesMs: number;
  /** The ledger partition says that something was answered that it does not have: a replay, or a lost tail. */
  readonly isReplayed: (partition: number) => boolean;
  readonly mayBeLost: (request: FoundRequest, timeMs: number) => boolean;
}

/** Longer after the append of its decision, a reply is one that was sent again. */
const MAX_PUBLICATION_MS = 60_000;

/**
 * What became of one record of the request topic, by itself. In the order in which workers answer: who has what it wants, or a dead letter,
 * has an answer, whatever else it was told.
 */
export function outcomeOf(
  request: FoundRequest,
  told: Told,
  decision: FirstDecision | undefined,
  facts: RequestFacts,
): Outcome {
  const given = request.rejected === undefined ? told.given(request) : undefined;
  const { replyPartition } = request;
  if (given !== undefined && (replyPartition === undefined || given.partitions.has(replyPartition)))
    return { kind: 'served' };
  if (told.isDead(request)) return { kind: 'dead' };
  const own = decision?.of.hash.equals(request.hash) ? decision : undefined;
  const isTold = request.rejected === undefined && given === undefined;
  const refused = isTold ? refusalOf(request, told, own, facts) : undefined;
  return refused?.kind === 'refused' ? refused : unanswered(request, told, own, facts, refused);
}

/** What follows for a request that was told errors alone; undefined if none of them is its own. */
function refusalOf(
  request: FoundRequest,
  told: Told,
  decision: FirstDecision | undefined,
  facts: RequestFacts,
): Outcome | undefined {
  const errors = [...told.errors(request)];
  if (errors.length === 0) return undefined;
  if (decision === undefined || decision.isDoubtful || facts.mayBeLost(request, decision.timeMs))
    return { kind: 'refused' };
  // A request that repeats one that was refused was told what came after it.
  const left = errors.filter(
    ([code, { lastMs }]) =>
      lastMs >= request.timeMs - facts.clockMarginMs && (code !== 'CONFLICT' || !told.wantsDiffer(request)),
  );
  if (left.length === 0) return undefined;
  if (left.some(([code, { firstMs }]) => mayBeRight(request, decision, code, firstMs, facts)))
    return { kind: 'refused' };
  const [[code, { location }]] = left as [(typeof left)[number]];
  const message = `a request was told ${code}, though its decision stood`;
  return wrong('WRONG_REFUSAL', message, [request, location, decision]);
}

/** Whether a request may have been told this, though the ledger has a decision for it. */
function mayBeRight(
  request: FoundRequest,
  decision: FirstDecision,
  code: string,
  toldMs: number,
  facts: RequestFacts,
): boolean {
  if (code === 'QUOTA_EXCEEDED') return true; // a reply that is repeated costs something, too
  // Another decision may have stood then, which the ledger has not any more.
  if (code === 'CONFLICT') return toldMs < facts.ledgerReachesMs || facts.mayBeLost(request, toldMs);
  // A later entry may be one that was still on its way when another worker refused the request.
  const isLater = toldMs > decision.timeMs + facts.clockMarginMs + MAX_PUBLICATION_MS;
  if (isLater) return decision.of.isRenewal;
  const isYoung = request.timeMs >= facts.ledgerReachesMs && !request.isResent && request.origin === undefined;
  // What was decided later had no decision then, or none that was left.
  if (code === 'FORGOTTEN')
    return toldMs < decision.timeMs || !isYoung || facts.mayBeLost(request, request.timeMs - facts.clockMarginMs);
  if (code === 'ANSWERED_BEFORE') return replayedIn(request).some(facts.isReplayed);
  return true;
}

/** The partitions by whose statement a request may be refused: what is forwarded from a partition that is read again is marked. */
function replayedIn({ home, partition, origin }: FoundRequest): readonly number[] {
  return [home, partition, ...(origin === undefined ? [] : [origin.partition])];
}

function unanswered(
  request: FoundRequest,
  told: Told,
  decision: FirstDecision | undefined,
  facts: RequestFacts,
  refused: Outcome | undefined,
): Outcome {
  const { partition, offset, timeMs, rejected } = request;
  const isBelow = offset < (facts.answeredBelow.get(partition) ?? 0);
  // Workers that catch up after a long pause have decided what they answer next.
  const isDue = isBelow || (decision?.timeMs ?? timeMs) < facts.dueBeforeMs;
  if (!isDue) return { kind: 'waiting' };
  const reason = unjudgedReason(request, facts);
  if (reason !== undefined) return { kind: 'unjudged', reason };
  if (refused !== undefined) return refused;
  const where = decision === undefined ? [request] : [request, decision];
  const since = isBelow ? "workers have answered it, as the group's offset says" : 'it is older than the grace time';
  if (rejected !== undefined)
    return wrong(
      isBelow ? 'MISSING_REPLY' : 'UNANSWERED',
      `a record that is no valid request (${rejected}) has no dead letter; ${since}`,
      where,
    );
  const given = told.given(request);
  if (given !== undefined) {
    const message = `a reply is not in partition ${request.replyPartition}, which its request names`;
    return wrong('MISMATCH', message, [given.location, ...where]);
  }
  const other = told.other(request);
  if (other !== undefined && !told.wantsDiffer(request)) {
    const message = `a reply has another count than its request, which wants ${request.count}`;
    return wrong('MISMATCH', message, [other, ...where]);
  }
  if (decision !== undefined)
    return wrong('MISSING_REPLY', 'a request was decided, and has neither reply nor dead letter', where);
  const message = `a request has neither decision, reply nor dead letter; ${since}`;
  return wrong(isBelow ? 'MISSING_REPLY' : 'UNANSWERED', message, where);
}

/** Why an answer may have been there. */
function unjudgedReason(request: FoundRequest, facts: RequestFacts): Unjudged | undefined {
  const sinceMs = request.timeMs - facts.clockMarginMs;
  const { lettersReachMs } = facts;
  if (lettersReachMs === undefined || sinceMs < lettersReachMs) return 'letters_deleted';
  if (request.rejected !== undefined) return undefined;
  const repliesReachMs = facts.repliesReachMs(request.replyTopic);
  if (repliesReachMs === undefined) return 'reply_topic_not_read';
  if (sinceMs - MAX_PUBLICATION_MS < repliesReachMs) return 'replies_deleted';
  const isElsewhere = request.partition !== request.home;
  return isElsewhere && sinceMs < facts.requestsReachMs(request.home) ? 'copies_deleted' : undefined;
}

function wrong(code: Finding['code'], message: string, locations: readonly BatchLocation[]): Outcome {
  return { kind: 'wrong', finding: { code, message, locations } };
}
