import { hadLost, isLost, lossBefore, placeName, requestsByPlace } from './decisions.ts';
import { EqualRequests } from './equal-requests.ts';
import type { History } from './history.ts';

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
