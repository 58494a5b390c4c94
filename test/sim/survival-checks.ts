import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { nameOf, placeName, requestsByPlace, requestsOfEntries, sameRanges } from './decisions.ts';
import type { Entry, HeadSeen, History, NumbersEntry, SentRequest } from './history.ts';
import { countingIn, isLostBy, isNumbers, isTrimmedBy } from './sequence-log.ts';

/** What holds of all that the ledger still has, whatever it and etcd have lost. */

/** No number is in two records that count and are both in the ledger. */
export function survivingNumbersOnce(history: History): string | undefined {
  const seen = new Map<string, NumbersEntry>();
  for (const record of countingIn(history).filter(isNumbers)) {
    if (isLostBy(history, record)) continue;
    const { sequence, partition, offset, correlationId, process, first, count, step } = record;
    for (let number = first; number < first + count * step; number += step) {
      const before = seen.get(`${sequence} ${number}`);
      if (before !== undefined && before.correlationId !== correlationId) {
        const has = (one: NumbersEntry) => `${one.offset} (${one.correlationId}, by ${one.process})`;
        return `${sequence} ${number} is in ledger ${partition}/${has(before)} and ${offset} (${correlationId}, by ${process})`;
      }
      seen.set(`${sequence} ${number}`, record);
    }
  }
  return undefined;
}

/**
 * No reply has a batch while the ledger has an earlier entry of the same key with another one, which its writer could
 * read.
 */
export function survivingReplies(history: History): string | undefined {
  const requests = requestsByPlace(history);
  const byName = Map.groupBy(history.entries, nameOf);
  for (const record of history.replies) {
    if (!('batch' in record.reply)) continue;
    const { batch } = record.reply;
    const request = requests.get(placeName(record));
    if (request === undefined || request.sequence !== undefined) continue;
    const known = byName.get(nameOf(request)) ?? [];
    const entry = known.find((one) => {
      return one.order < record.sent && sameRanges(one.batch, batch) && !isLostBy(history, one, record.landed);
    });
    if (entry === undefined) continue;
    const earlier = known.find((one) => decidesBefore(history, one, entry, record));
    if (earlier !== undefined) {
      const has = (one: Entry) => `${one.offset}, by ${one.process}`;
      return `${placeName(record)} (${request.correlationId}) got from ${record.process} the batch of ledger ${has(entry)}, but ${has(earlier)}, was first`;
    }
  }
  return undefined;
}

function decidesBefore(
  history: History,
  one: Entry,
  entry: Entry,
  { sent, landed }: { readonly sent: number; readonly landed: number },
): boolean {
  const isFirst = one.order < entry.order && one.offset < entry.offset && !sameRanges(one.batch, entry.batch);
  const isThere = !isLostBy(history, one, landed) && !isTrimmedBy(history, one, sent);
  return isFirst && isThere && !isTrimmedBy(history, one, entry.order);
}

/** No key gets two replies with different numbers of records that the ledger has. */
export function survivingNumbersReplied(history: History): string | undefined {
  const requests = requestsByPlace(history);
  const counting = Map.groupBy(
    countingIn(history).filter(isNumbers),
    ({ sequence, correlationId }) => `${sequence} ${correlationId}`,
  );
  const given = new Map<string, { readonly text: string; readonly process: string }>();
  for (const record of history.replies) {
    if (!('numbers' in record.reply)) continue;
    const { first, count, sequence } = record.reply.numbers;
    const request = requests.get(placeName(record));
    if (request === undefined) continue;
    const key = `${sequence} ${request.correlationId}`;
    const own = counting.get(key)?.filter((one) => one.first === first && one.count === count) ?? [];
    if (own.length === 0)
      return `request ${placeName(record)} got numbers from ${first} that no record that counts has`;
    if (own.every((one) => isLostBy(history, one) || isTrimmedBy(history, one))) continue;
    const text = `${first}+${count}`;
    const before = given.get(key);
    if (before !== undefined && before.text !== text)
      return `${key} was answered ${before.text} by ${before.process} and ${text} by ${record.process}`;
    given.set(key, { text, process: record.process });
  }
  return undefined;
}

/** No number goes to two requests once a worker has stated in the ledger that it was lost. */
export function fleetKnew(history: History): string | undefined {
  const requests = requestsByPlace(history);
  const losses = history.statements.filter(({ isLoss, at, offset }) => isLoss && at === offset);
  const given = new Map<
    string,
    { readonly correlationId: string; readonly process: string; readonly landed: number }
  >();
  for (const record of history.replies.toSorted((one, other) => one.sent - other.sent)) {
    if (!('numbers' in record.reply)) continue;
    const { sequence, first, count, step } = record.reply.numbers;
    const { correlationId } = requests.get(placeName(record)) ?? {};
    if (correlationId === undefined) continue;
    for (let number = first; number < first + count * step; number += step) {
      const before = given.get(`${sequence} ${number}`);
      if (before !== undefined && before.correlationId !== correlationId) {
        const known = losses.find(
          (one) =>
            one.sequence === sequence && one.next > number && before.landed < one.order && one.order < record.sent,
        );
        if (known !== undefined)
          return `${sequence} ${number} went to ${before.correlationId}, by ${before.process}, and to ${correlationId}, by ${record.process}; ledger ${known.partition}/${known.offset} had stated its loss`;
      }
      given.set(`${sequence} ${number}`, { correlationId, process: record.process, landed: record.landed });
    }
  }
  return undefined;
}

/**
 * A worker appends only numbers that are in etcd: so whatever the ledger loses, etcd knows that they were given out.
 */
export function swappedFirst({ heads, numbers }: History): string | undefined {
  const swapped = new Map<string, number>();
  const nameOf = (one: {
    readonly sequence: string;
    readonly correlationId: string | undefined;
    readonly first: number;
  }) => `${one.sequence} ${one.correlationId}: ${one.first}`;
  for (const head of heads) {
    if (head.what !== 'pending') continue;
    for (const one of head.records) if (!swapped.has(nameOf(one))) swapped.set(nameOf(one), head.order);
  }
  const bare = numbers.find((one) => {
    const isWorkers = one.process !== '' && one.at !== RENEWAL;
    return isWorkers && (swapped.get(nameOf(one)) ?? Number.POSITIVE_INFINITY) > one.sent;
  });
  return (
    bare && `ledger ${bare.partition}/${bare.offset}, by ${bare.process}, has ${nameOf(bare)}, which etcd did not have`
  );
}

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
