import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { Asked, Entry, History } from './history.ts';

export const nameOf = ({ partition, correlationId }: Pick<Entry, 'partition' | 'correlationId'>) =>
  `${partition}/${correlationId}`;

/**
 * The deciding entries of each correlation ID in its partition. The first decides. A later one can decide only after
 * retention took the first: then a new request under the old correlation ID is a new one. Its writer must have read on
 * past where the first was.
 */
export function decidersOf({ entries, trims }: History): ReadonlyMap<string, readonly Entry[]> {
  const deciders = new Map<string, Entry[]>();
  const gone = ({ partition, offset, order }: Entry, later: Entry): boolean =>
    later.end > offset &&
    trims.some((at) => at.partition === partition && at.low > offset && order < at.order && at.order < later.order);
  for (const entry of entries) {
    const known = deciders.get(nameOf(entry)) ?? [];
    if (known.every((earlier) => gone(earlier, entry))) known.push(entry);
    deciders.set(nameOf(entry), known);
  }
  return deciders;
}

/** Whether the ledger had lost acknowledged entries of a partition by then: what was decided there is not known. */
export function hadLost({ losses }: History, partition: number, order = Number.POSITIVE_INFINITY): boolean {
  return losses.some((loss) => loss.partition === partition && loss.order < order);
}

export const askedBy = ({ requests }: Pick<History, 'requests'>) =>
  new Map(requests.map((asked) => [`${asked.partition}/${asked.offset}`, asked]));

export function sameRanges(a: IdBatch, b: IdBatch): boolean {
  return a.ranges.length === b.ranges.length && a.ranges.every(({ first }, i) => first === b.ranges[i]?.first);
}

/**
 * Whether what was decided under a request's correlation ID may have been in what the ledger had lost by then: of one that
 * was asked for the first time after that nothing is, unless somebody decided it who had not seen the loss. A log that is
 * as long again by then shows nothing to who goes on at its end.
 */
export function mayBeLost(history: History, { partition, correlationId }: Asked, order: number): boolean {
  const { losses, firstAsked, entries } = history;
  const last = losses.findLast((loss) => loss.partition === partition && loss.order < order);
  if (last === undefined) return false;
  if ((firstAsked.get(correlationId) ?? 0) < last.order) return true;
  const own = entries.filter((entry) => entry.partition === partition && entry.correlationId === correlationId);
  return own.some((entry) => !hasSeen(history, entry, last.order));
}

/** Whether the writer of an entry had begun its copy of the log after the loss, or emptied it since. */
function hasSeen({ copies }: History, { process, partition, sent }: Entry, loss: number): boolean {
  return copies.some((event) => {
    const isOwn = event.process === process && event.partition === partition && event.order < sent;
    return isOwn && loss < event.order && (event.what === 'opened' || event.what === 'emptied');
  });
}
