import { decodeReply, type Followed } from '../support/followed.ts';
import { fencesOf } from '../support/stops.ts';
import type { WorkerProcess } from '../support/worker-process.ts';
import type { Played } from './chaos.ts';

/** How long a worker whose gate was closed at the end of a fault took from then to its first reply. */
export interface Recovery {
  readonly name: string;
  readonly tookMs: number;
}

/** A fault that stops no worker; recoveries ignore it. */
const HARMLESS = 'one etcd member is frozen';

/** The recoveries that no other fault of the worker or of the servers overlapped. */
export function recoveries(
  played: readonly Played[],
  workers: readonly WorkerProcess[],
  replies: Followed,
): readonly Recovery[] {
  const byFence = firstReplies(replies);
  return workers.flatMap((worker) => {
    const own = [...fencesOf(worker)].flatMap((fence) => byFence.get(fence) ?? []);
    const others = played.filter((one) => one.name !== HARMLESS && (one.worker ?? worker) === worker);
    return others.flatMap(({ name, toMs: healedMs }) => {
      if (gateAt(worker, healedMs) !== 'closed') return [];
      const repliedMs = own.find(({ atMs }) => atMs > healedMs)?.atMs;
      const alone = others.every(({ fromMs, toMs }) => toMs <= healedMs || fromMs > (repliedMs ?? healedMs));
      return repliedMs === undefined || !alone ? [] : [{ name, tookMs: Math.round(repliedMs - healedMs) }];
    });
  });
}

function gateAt({ lines }: WorkerProcess, atMs: number): 'open' | 'closed' | undefined {
  const last = lines.findLast(({ msg, seenMs }) => seenMs <= atMs && /^gate (open|closed|still)/.test(msg ?? ''));
  if (last === undefined) return undefined;
  return last.msg === 'gate open' ? 'open' : 'closed';
}

/** Replies that are not replayed, by the fences of their batches. */
function firstReplies(replies: Followed): ReadonlyMap<bigint, readonly { readonly atMs: number }[]> {
  const first = replies.seen.flatMap((seen) => {
    const { reply, replayed } = decodeReply(seen);
    return 'batch' in reply && !replayed ? [{ fence: reply.batch.fence, atMs: seen.atMs }] : [];
  });
  return Map.groupBy(first, ({ fence }) => fence);
}
