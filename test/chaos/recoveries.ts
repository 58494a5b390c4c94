import { decodeReply, type Followed } from '../support/followed.ts';
import { fencesOf } from '../support/stops.ts';
import type { WorkerProcess } from '../support/worker-process.ts';
import type { Played } from './chaos.ts';

/** How long a worker took from the end of a fault, at which its gate was closed, to its first reply. */
export interface Recovery {
  readonly name: string;
  readonly tookMs: number;
}

/** A fault that stops nobody has no part in a recovery. */
const BORNE = 'one etcd member is frozen';

/** The recoveries that no further fault of the worker, and none of the servers, has had a part in. */
export function recoveries(
  played: readonly Played[],
  workers: readonly WorkerProcess[],
  replies: Followed,
): readonly Recovery[] {
  const told = firstTold(replies);
  return workers.flatMap((worker) => {
    const own = [...fencesOf(worker)].flatMap((fence) => told.get(fence) ?? []);
    const others = played.filter((one) => one.name !== BORNE && (one.worker ?? worker) === worker);
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

/** Replies that were not given again, by the fences of their batches. */
function firstTold(replies: Followed): ReadonlyMap<bigint, readonly { readonly atMs: number }[]> {
  const told = replies.seen.flatMap((seen) => {
    const { reply, replayed } = decodeReply(seen);
    return 'batch' in reply && !replayed ? [{ fence: reply.batch.fence, atMs: seen.atMs }] : [];
  });
  return Map.groupBy(told, ({ fence }) => fence);
}
