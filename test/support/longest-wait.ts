import type { Followed } from './followed.ts';
import { partitionOf, type Sent } from './load.ts';

/**
 * The longest wait of a request for its first reply, by partition: the effect on users when a worker joins or leaves.
 * In milliseconds from sending, for requests sent since `fromMs`.
 */
export function longestWaits(
  asks: readonly Sent[],
  replies: Followed,
  fromMs = Number.NEGATIVE_INFINITY,
): ReadonlyMap<number, number> {
  const firstMs = new Map<string, number>();
  for (const { message, atMs } of replies.seen) {
    const name = String(message.key);
    if (!firstMs.has(name)) firstMs.set(name, atMs);
  }
  const waits = new Map<number, number>();
  for (const { correlationId, sentMs } of asks) {
    if (sentMs < fromMs) continue;
    const partition = partitionOf(correlationId);
    const waitMs = Math.round((firstMs.get(correlationId) ?? Number.POSITIVE_INFINITY) - sentMs);
    waits.set(partition, Math.max(waitMs, waits.get(partition) ?? 0));
  }
  return waits;
}

/** The longest wait among these partitions. */
export function longestOf(waits: ReadonlyMap<number, number>, partitions: Iterable<number> = waits.keys()): number {
  return Math.max(...[...partitions].map((partition) => waits.get(partition) ?? 0));
}

/**
 * When the first of the requests to these partitions that were sent from then on was answered, by the monotonic clock.
 */
export function firstAnswerMs(
  asks: readonly Sent[],
  replies: Followed,
  { sentFromMs, partitions }: { readonly sentFromMs: number; readonly partitions: ReadonlySet<number> },
): number {
  const sent = asks.filter((ask) => ask.sentMs >= sentFromMs && partitions.has(partitionOf(ask.correlationId)));
  const names = new Set(sent.map(({ correlationId }) => correlationId));
  return replies.seen.find(({ message }) => names.has(String(message.key)))?.atMs ?? Number.POSITIVE_INFINITY;
}
