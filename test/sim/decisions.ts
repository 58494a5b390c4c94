import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { Entry, History, SentRequest } from './history.ts';

export const nameOf = ({ partition, correlationId }: Pick<Entry, 'partition' | 'correlationId'>) =>
  `${partition}/${correlationId}`;

/**
 * The deciding entries of each correlation ID in its partition. The first decides. A later one can decide only after
 * retention deleted the first: then a new request under the old correlation ID counts as new. Its writer must have read
 * past the offset of the first.
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

/** Whether the ledger had lost acknowledged entries of a partition by then, so that its decisions are not known. */
export function hadLost({ losses }: History, partition: number, order = Number.POSITIVE_INFINITY): boolean {
  return losses.some((loss) => loss.partition === partition && loss.order < order);
}

export const requestsByPlace = ({ requests }: Pick<History, 'requests'>) =>
  new Map(requests.map((request) => [`${request.partition}/${request.offset}`, request]));

export function sameRanges(a: IdBatch, b: IdBatch): boolean {
  return a.ranges.length === b.ranges.length && a.ranges.every(({ first }, i) => first === b.ranges[i]?.first);
}

/**
 * Whether a decision for a request's correlation ID may have been in the part that the ledger had lost by then. If the ID was
 * first sent after the loss, it was not.
 */
export function mayBeLost(history: History, { partition, correlationId }: SentRequest, order: number): boolean {
  const { losses, firstSent } = history;
  const last = losses.findLast((loss) => loss.partition === partition && loss.order < order);
  return last !== undefined && (firstSent.get(correlationId) ?? 0) < last.order;
}
