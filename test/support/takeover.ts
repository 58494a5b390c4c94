import { decodeReply, type Followed } from './followed.ts';
import { partitionOf } from './load.ts';
import type { WorkerProcess } from './worker-process.ts';

/** The awaited event: replies with IDs of the successor to requests of these partitions. */
export interface Takeover {
  readonly partitions: ReadonlySet<number>;
  readonly successor: WorkerProcess;
  readonly replies: Followed;
  /** The number of replies; 1 by default. */
  readonly atLeast?: number;
}

/** Waits until the successor serves the partitions; returns the time from the call to its first reply. */
export async function takenOver({ partitions, successor, replies, atLeast = 1 }: Takeover): Promise<number> {
  const begunMs = performance.now();
  const { workerId } = await successor.ready();
  let at = replies.seen.length;
  let count = 0;
  let firstMs = Number.NaN;
  await replies.until('replies by the successor', (seen) => {
    for (; at < seen.length; at += 1) {
      const one = seen[at];
      if (one === undefined || !partitions.has(partitionOf(String(one.message.key)))) continue;
      const { reply } = decodeReply(one);
      if (!('batch' in reply) || reply.batch.workerId !== workerId) continue;
      if (count === 0) firstMs = one.atMs;
      count += 1;
    }
    return count >= atLeast;
  });
  return Math.round(firstMs - begunMs);
}
