import { nameOf, requestsOfEntries, sameRanges } from './decisions.ts';
import type { Entry, HeadSeen, History, SentRequest } from './history.ts';
import { isLostBy, isTrimmedBy } from './sequence-log.ts';

type EndSeen = Extract<HeadSeen, { what: 'end' }>;

/**
 * A request is not decided again after the ledger lost its decision, if etcd knew by then that the ledger had gone as
 * far: all that the head covers is FORGOTTEN. What is younger than that may be decided again, and so may a request that
 * was sent again without a date.
 */
export function lostForgotten(history: History): string | undefined {
  const requestOf = requestsOfEntries(history);
  for (const known of Map.groupBy(history.entries, nameOf).values()) {
    for (const [i, again] of known.entries()) {
      const request = requestOf(again);
      if (request === undefined || again.order > (history.losesBoth ?? Number.POSITIVE_INFINITY)) continue;
      const before = known.slice(0, i);
      if (before.some((one) => sameRanges(one.batch, again.batch) || !isLostBy(history, one, again.order))) continue;
      const lost = before.find((one) => isCovered(history, one, request));
      if (lost !== undefined) {
        return `${request.correlationId} was decided at ledger ${lost.partition}/${lost.offset}, and again at ${again.offset}, by ${again.process}, though etcd knew that the first one was lost`;
      }
    }
  }
  return undefined;
}

/**
 * Whether the head of the partition covered an entry when the ledger lost it, and the request was among those that it
 * knew.
 */
function isCovered(history: History, entry: Entry, request: SentRequest): boolean {
  const { partition, offset, order } = entry;
  if (isTrimmedBy(history, entry)) return false;
  const loss = history.losses.find((one) => one.partition === partition && one.from <= offset && order < one.order);
  if (loss === undefined) return false;
  const since = Math.max(order, ...history.setBacks.filter((at) => at < loss.order));
  const heads = history.heads.filter((one): one is EndSeen => {
    return one.what === 'end' && one.partition === partition && since < one.order && one.order < loss.order;
  });
  const head = heads.findLast(({ end }) => end > offset);
  if (head === undefined) return false;
  const firstMs = request.origin?.appendedAtMs ?? request.firstSentMs;
  if (firstMs === undefined) return request.offset <= head.through && request.order < loss.order;
  return firstMs <= entry.appendedAtMs && !history.isBrokerFarOff;
}
