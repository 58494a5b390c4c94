import {
  EqualRequests,
  hadLost,
  isLost,
  lossBefore,
  mayBeLost,
  nameOf,
  placeName,
  requestsByPlace,
  requestsOfEntries,
  sameRanges,
} from './decisions.ts';
import type { Entry, History, ReplyRecord, SentRequest } from './history.ts';
import { RENEW_AFTER_MS } from './setting.ts';

/** A reply with a batch, and its request. */
interface Answer {
  readonly record: ReplyRecord;
  readonly request: SentRequest;
  readonly batch: Entry['batch'];
}

/**
 * Replies with batches, in the order in which they were sent. Records that were forwarded more than once are left out,
 * since their replies don't show which copy they answer; so are decisions that the ledger may have lost after
 * acknowledging them.
 */
function answersOf(history: History): readonly Answer[] {
  const copies = new Map<string, SentRequest[]>();
  for (const request of history.requests) {
    const name = `${request.partition}: ${request.tag}`;
    copies.set(name, [...(copies.get(name) ?? []), request]);
  }
  const alone = new Map(
    [...copies.values()].flatMap(([request, ...more]) =>
      request === undefined || more.length > 0 ? [] : [[placeName(request), request]],
    ),
  );
  const inOrder = history.replies.toSorted((one, other) => one.sent - other.sent);
  return inOrder.flatMap((record) => {
    const request = alone.get(placeName(record));
    if (request === undefined || !('batch' in record.reply) || mayBeLost(history, request, record.landed)) return [];
    return [{ record, request, batch: record.reply.batch }];
  });
}

/**
 * The entries that keep a batch for a request for as long as its record can be read again: they reach its offset, or,
 * for a later record, are recent enough not to need a renewal for it.
 */
function keepersOf(known: readonly Entry[], { request, batch, record }: Answer): readonly Entry[] {
  return known.filter((entry) => {
    const isYoung = request.timestampMs - entry.appendedAtMs < RENEW_AFTER_MS;
    const isKept = entry.requestOffset >= request.offset || (isYoung && !isFirstRecord(request));
    return entry.order < record.sent && isKept && sameRanges(entry.batch, batch);
  });
}

function isFirstRecord({ origin, firstSentMs }: SentRequest): boolean {
  return origin === undefined && firstSentMs === undefined;
}

function byKey(entries: readonly Entry[]): ReadonlyMap<string, Entry[]> {
  const known = new Map<string, Entry[]>();
  for (const entry of entries) known.set(nameOf(entry), [...(known.get(nameOf(entry)) ?? []), entry]);
  return known;
}

/**
 * No record of the request topic gets two batches, unless the ledger lost all entries that kept the first one, which
 * retention may not delete while the record can be read. Even then, a record with an entry of its own is not decided
 * again; but another request under its correlation ID may be decided, and the record then gets that batch.
 *
 * If the ledger keeps its retention time, a record that got a batch is not FORGOTTEN later either, while it can be
 * read. Forwarded records are an exception: a worker judges them by their age and by how far back it knows the ledger.
 */
export function oneAnswer(history: History): string | undefined {
  const known = byKey(history.entries);
  const first = new Map<string, Answer>();
  for (const answer of answersOf(history)) {
    const { record, request, batch } = answer;
    const name = placeName(record);
    const before = first.get(name);
    if (before === undefined) first.set(name, answer);
    if (before === undefined || sameRanges(before.batch, batch)) continue;
    const keepers = keepersOf(known.get(nameOf(request)) ?? [], before);
    if (keepers.some((entry) => !isGone(history, entry, record.sent))) {
      return `request ${name} (${request.correlationId}) got two batches, from ${before.record.process} and ${record.process}`;
    }
  }
  return history.keepsItsTime ? forgottenAfter(history, first) : undefined;
}

function isGone({ trims }: History, { partition, offset }: Entry, order: number): boolean {
  return trims.some((trim) => trim.partition === partition && trim.low > offset && trim.order < order);
}

function forgottenAfter(history: History, first: ReadonlyMap<string, Answer>): string | undefined {
  for (const record of history.replies) {
    const { partition, offset, reply, sent, firstSent, landed } = record;
    if (!('error' in reply) || reply.error.code !== 'FORGOTTEN' || hadLost(history, partition, landed)) continue;
    const before = first.get(placeName(record));
    // An owner that was deposed before may have been refusing the request while the next one decided it.
    if (before === undefined || before.record.landed > firstSent || before.request.origin !== undefined) continue;
    const isOver = history.requestTrims.some((at) => at.partition === partition && at.low > offset && at.order < sent);
    if (!isOver) return `request ${partition}/${offset} had a batch: FORGOTTEN`;
  }
  return undefined;
}

/**
 * Each batch in a reply is in an entry that the ledger keeps for as long as the request can be read again; and no
 * decision is renewed for a request that does not need it.
 */
export function renewedInTime(history: History): string | undefined {
  const known = byKey(history.entries);
  for (const answer of answersOf(history)) {
    const { record, request } = answer;
    if (keepersOf(known.get(nameOf(request)) ?? [], answer).length > 0) continue;
    return `request ${placeName(record)} (${request.correlationId}) got a decision that may be forgotten before it`;
  }
  const needless = needlessRenewal(history, known);
  return needless && `ledger ${needless.partition}/${needless.offset} renews a decision for ${needless.requestOffset}`;
}

/**
 * A renewal that was not needed: the newest entry that its writer had read, and that could decide, was recent enough.
 */
function needlessRenewal(history: History, known: ReadonlyMap<string, readonly Entry[]>): Entry | undefined {
  if (history.sharesHashes) return undefined;
  const requestOf = requestsOfEntries(history);
  return history.entries.find((entry) => {
    const { partition, end, order } = entry;
    if (hadLost(history, partition, order)) return false;
    // What was read of a tail that the requests lost is renewed for a request that is gone.
    if (history.requestLosses.some((loss) => loss.partition === partition)) return false;
    const same = (known.get(nameOf(entry)) ?? []).filter((one) => one.order < order);
    const first = same.find((one) => sameRanges(one.batch, entry.batch));
    // An append that seemed to be refused by the leader is sent again; a large request keeps its IDs at the next try.
    const isAgainOf = (one: Entry) => one.end === end || one.requestOffset === entry.requestOffset;
    const isAgain = same.some((one) => isAgainOf(one) && sameRanges(one.batch, entry.batch));
    if (first === undefined || isAgain) return false;
    const newest = same.findLast((one, i) => one.offset < end && one.end > (same[i - 1]?.offset ?? -1)) ?? first;
    const request = requestOf(entry);
    // A read-back may be a moment old: it may return an entry that was trimmed meanwhile.
    if (isGone(history, newest, entry.sent)) return false;
    if (request === undefined) return true;
    // Neither an entry that lost against the decision nor one that the writer had not read covers a copy.
    const covers = (one: Entry) =>
      one.offset < end && one.requestOffset >= entry.requestOffset && sameRanges(one.batch, entry.batch);
    const isCopy = isFirstRecord(request) && !same.some(covers);
    return !isCopy && request.timestampMs - newest.appendedAtMs < RENEW_AFTER_MS;
  });
}

export function renewalsIn({ entries }: Pick<History, 'entries'>): number {
  const renewals = [...byKey(entries).values()].map((known) => {
    return known.filter((entry, i) => {
      const before = known.slice(0, i).filter((one) => sameRanges(one.batch, entry.batch));
      return before.length > 0 && before.every(({ requestOffset }) => requestOffset !== entry.requestOffset);
    }).length;
  });
  return renewals.reduce((sum, count) => sum + count, 0);
}

/**
 * When an offset is committed, all requests below it have replies, dead letters or copies at home, or were lost unread.
 * A request may share the answer to an equal one. After a lost tail that counts for commits by those who have seen the
 * loss, unless a lower offset follows: one was queued before that.
 */
export function repliedBeforeCommitted(history: History): string | undefined {
  const { requests, requestTrims, commits, replies, letters, forwards } = history;
  const landed = new Map<string, number>();
  for (const answer of [...replies, ...letters, ...forwards]) {
    const name = placeName(answer);
    landed.set(name, Math.min(answer.landed, landed.get(name) ?? Number.POSITIVE_INFINITY));
  }
  const byPlace = requestsByPlace({ requests });
  const equals = new EqualRequests();
  for (const answer of [...replies, ...letters]) {
    const request = byPlace.get(placeName(answer));
    if (request === undefined) continue;
    if ('reply' in answer) equals.replied(request, answer);
    else equals.dropped(request, answer);
  }
  for (const request of requests) {
    const { partition, offset, life = 0 } = request;
    const since = life === 0 ? 0 : (lossBefore(history, request)?.seen ?? Number.POSITIVE_INFINITY);
    const own = commits.filter((one) => one.partition === partition && one.sent > since);
    const begin = life === 0 ? 0 : own.findLastIndex((one) => one.offset <= offset) + 1;
    const commit = own.slice(begin).find((one) => one.offset > offset);
    if (commit === undefined || (landed.get(placeName(request)) ?? Number.POSITIVE_INFINITY) <= commit.sent) continue;
    if (equals.answers(request, commit.sent)) continue;
    const isGone = requestTrims.some(
      (trim) => trim.partition === partition && trim.low > offset && trim.order < commit.accepted,
    );
    if (!isGone && !isLost(history, request, commit.accepted)) {
      return `${placeName(request)}, by a commit of ${commit.offset}`;
    }
  }
  return undefined;
}

/** Offsets of a partition are committed only by the member to which the coordinator has assigned it. */
export function ownCommits({ foreignCommits }: History): string | undefined {
  return foreignCommits[0];
}

/** A process has at most one append to a partition in flight. */
export function oneAppendAtATime({ appends }: History): string | undefined {
  const open = new Map<string, number>();
  for (const { process, partition, sent, ended } of appends) {
    const name = `${process} to ledger ${partition}`;
    if (sent < (open.get(name) ?? 0)) return `${name}: an append was sent while another was in flight`;
    open.set(name, ended);
  }
  return undefined;
}

/**
 * A worker that takes over a partition writes a marker before it decides anything there, so that the log always has an
 * anchor. A marker of an index that has read nothing looks like a clock marker.
 */
export function markedFirst(history: History): string | undefined {
  const { appends, marks, damaged } = history;
  const first = new Map<string, History['appends'][number]>();
  for (const append of appends) {
    if (!append.marks && !append.decides) continue;
    if (damaged.includes(append.process)) continue; // its marker may come from an index that is empty by then
    const name = `${append.process} to ledger ${append.partition}`;
    if (!first.has(name)) first.set(name, append);
  }
  for (const [name, { marks: isMarker, partition, started }] of first) {
    const hasRead = marks.some((mark) => mark.partition === partition && mark.order < started);
    if (!isMarker && hasRead && !hadLost(history, partition)) return `${name}: a decision came before the marker`;
  }
  return undefined;
}
