import { hadLost, mayBeLost, nameOf, sameRanges } from './decisions.ts';
import type { Asked, Entry, History, Told } from './history.ts';
import { RENEW_AFTER_MS } from './setting.ts';

/** A reply with a batch, and its request. */
interface Answer {
  readonly told: Told;
  readonly asked: Asked;
  readonly batch: Entry['batch'];
}

/**
 * Replies with batches, as they were sent. Where a record was forwarded more than once, its copies can't be told apart by what they were told:
 * these are left out, and so is what the ledger may have lost though it was acknowledged.
 */
function answersOf(history: History): readonly Answer[] {
  const copies = new Map<string, Asked[]>();
  for (const asked of history.requests) {
    const name = `${asked.partition}: ${asked.tag}`;
    copies.set(name, [...(copies.get(name) ?? []), asked]);
  }
  const alone = new Map(
    [...copies.values()].flatMap(([asked, ...more]) =>
      asked === undefined || more.length > 0 ? [] : [[`${asked.partition}/${asked.offset}`, asked]],
    ),
  );
  const inOrder = history.told.toSorted((one, other) => one.sent - other.sent);
  return inOrder.flatMap((told) => {
    const asked = alone.get(`${told.partition}/${told.offset}`);
    if (asked === undefined || 'error' in told.reply || mayBeLost(history, asked, told.landed)) return [];
    return [{ told, asked, batch: told.reply.batch }];
  });
}

/**
 * The entries that keep a batch for a request, as long as its record can be read again: that of the request itself, and
 * those that are not so much older than the request that they had to be renewed for it.
 */
function keepersOf(known: readonly Entry[], { asked, batch, told }: Answer): readonly Entry[] {
  return known.filter((entry) => {
    const isYoung = asked.timestampMs - entry.appendedAtMs < RENEW_AFTER_MS;
    const isOwn = entry.requestOffset === asked.offset;
    return entry.order < told.sent && (isYoung || isOwn) && sameRanges(entry.batch, batch);
  });
}

function byKey(entries: readonly Entry[]): ReadonlyMap<string, Entry[]> {
  const known = new Map<string, Entry[]>();
  for (const entry of entries) known.set(nameOf(entry), [...(known.get(nameOf(entry)) ?? []), entry]);
  return known;
}

/**
 * No record of the request topic is told two batches, unless the ledger lost all that kept the first one, which retention
 * may not take while the record can be read. Even then it is not decided anew, if an entry was its own: but another request
 * under its correlation ID may be, and the record is told that decision.
 *
 * Where the ledger keeps its time, who was told a batch is not told later that it is forgotten either, while its record can
 * be read. That of a record that was forwarded is told by its age, as far back as whoever has it knows the ledger.
 */
export function oneAnswer(history: History): string | undefined {
  const known = byKey(history.entries);
  const first = new Map<string, Answer>();
  for (const answer of answersOf(history)) {
    const { told, asked, batch } = answer;
    const name = `${told.partition}/${told.offset}`;
    const before = first.get(name);
    if (before === undefined) first.set(name, answer);
    if (before === undefined || sameRanges(before.batch, batch)) continue;
    const keepers = keepersOf(known.get(nameOf(asked)) ?? [], before);
    if (keepers.some((entry) => !isGone(history, entry, told.sent))) {
      return `request ${name} (${asked.correlationId}) got two batches, from ${before.told.process} and ${told.process}`;
    }
  }
  return history.keepsItsTime ? forgottenAfter(history, first) : undefined;
}

function isGone({ trims }: History, { partition, offset }: Entry, order: number): boolean {
  return trims.some((trim) => trim.partition === partition && trim.low > offset && trim.order < order);
}

function forgottenAfter(history: History, first: ReadonlyMap<string, Answer>): string | undefined {
  for (const { partition, offset, reply, sent, landed } of history.told) {
    if (!('error' in reply) || reply.error.code !== 'FORGOTTEN' || hadLost(history, partition, landed)) continue;
    const before = first.get(`${partition}/${offset}`);
    if (before === undefined || before.told.landed > sent || before.asked.origin !== undefined) continue;
    const isOver = history.requestTrims.some((at) => at.partition === partition && at.low > offset && at.order < sent);
    if (!isOver) return `request ${partition}/${offset} had a batch: FORGOTTEN`;
  }
  return undefined;
}

/**
 * Whoever is told a batch has it in an entry that the ledger keeps for as long as the request can be read again; and a
 * decision is renewed for no request that does not need it.
 */
export function renewedInTime(history: History): string | undefined {
  const known = byKey(history.entries);
  for (const answer of answersOf(history)) {
    const { told, asked } = answer;
    if (keepersOf(known.get(nameOf(asked)) ?? [], answer).length > 0) continue;
    return `request ${told.partition}/${told.offset} (${asked.correlationId}) got a decision that may be forgotten before it`;
  }
  const needless = needlessRenewal(history, known);
  return needless && `ledger ${needless.partition}/${needless.offset} renews a decision for ${needless.requestOffset}`;
}

/** By the newest entry of the key that its writer had read, of those that would decide if all before them were gone. */
function needlessRenewal(history: History, known: ReadonlyMap<string, readonly Entry[]>): Entry | undefined {
  if (history.sharesHashes) return undefined;
  const requests = new Map(history.requests.map((asked) => [`${asked.partition}/${asked.offset}`, asked]));
  return history.entries.find((entry) => {
    const { partition, requestOffset, end, order } = entry;
    if (hadLost(history, partition, order)) return false;
    const same = (known.get(nameOf(entry)) ?? []).filter((one) => one.order < order);
    const first = same.find((one) => sameRanges(one.batch, entry.batch));
    // What a leader refused, as it seemed, is sent once more.
    const isCopy = same.some((one) => one.end === end && sameRanges(one.batch, entry.batch));
    if (first === undefined || isCopy) return false;
    const newest = same.findLast((one, i) => one.offset < end && one.end > (same[i - 1]?.offset ?? -1)) ?? first;
    const asked = requests.get(`${partition}/${requestOffset}`);
    // What is read back may be a moment old: an entry that is gone, before one that is gone as well.
    if (isGone(history, newest, entry.sent)) return false;
    return asked === undefined || asked.timestampMs - newest.appendedAtMs < RENEW_AFTER_MS;
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
