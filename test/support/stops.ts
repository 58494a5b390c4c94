import { expect } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { decodeReply, type Followed } from './followed.ts';
import type { LogLine, WorkerProcess } from './worker-process.ts';

/** Reasons under which nothing may be allocated; the others only keep the worker from taking requests. */
const REFUSES =
  /^(LEASE_|CLOCK_|PROCESS_PAUSED|RESTORED|RESERVATION_EXHAUSTED|NO_IDENTITY|POOL_EXHAUSTED|ALL_CEILINGS_AHEAD|LAYOUT_EXHAUSTED)/;

/** The next closing of the gate, at line `from` of the log or later. */
export function closed(worker: WorkerProcess, from: number): Promise<LogLine> {
  return worker.line(({ msg }) => msg === 'gate closed', from);
}

/** The next opening of the gate, at line `from` of the log or later. */
export function opened(worker: WorkerProcess, from: number): Promise<LogLine> {
  return worker.line(({ msg }) => msg === 'gate open', from);
}

/** All batches told so far. */
function batchesOf(replies: Followed): readonly IdBatch[] {
  return replies.seen
    .map((seen) => decodeReply(seen).reply)
    .flatMap((reply) => ('batch' in reply ? [reply.batch] : []));
}

/** Waits for a batch that this worker makes after this call; tells when its reply came, by the monotonic clock. */
export async function nextReplyBy(worker: WorkerProcess, replies: Followed): Promise<number> {
  let at = replies.seen.length;
  let atMs = Number.NaN;
  await replies.until('a reply by the worker', (seen) => {
    const own = fencesOf(worker);
    for (; at < seen.length; at += 1) {
      const one = seen[at];
      if (one === undefined) continue;
      const { reply } = decodeReply(one);
      if (!('batch' in reply) || !own.has(reply.batch.fence)) continue;
      atMs = one.atMs;
      return true;
    }
    return false;
  });
  return atMs;
}

/** The fences of all reigns that a worker has had. */
function fencesOf(worker: WorkerProcess): ReadonlySet<bigint> {
  const acquired = worker.lines.filter(({ msg }) => msg === 'worker ID acquired');
  return new Set(acquired.map(({ fence }) => BigInt(String(fence))));
}

function stops({ msg, reason }: LogLine): boolean {
  return msg === 'gate closed' && REFUSES.test(String(reason));
}

/** From when to when a worker refused to allocate, by its own wall clock, as its log tells. */
function refusals({ lines }: WorkerProcess): readonly { readonly fromMs: number; readonly toMs: number }[] {
  const spans: { fromMs: number; toMs: number }[] = [];
  let fromMs: number | undefined;
  for (const { msg, reason, time } of lines) {
    if (msg === 'gate open' && fromMs !== undefined) {
      spans.push({ fromMs, toMs: Number(time) });
      fromMs = undefined;
    } else if (/^gate (closed|still closed)$/.test(msg ?? '') && REFUSES.test(String(reason))) {
      fromMs ??= Number(time);
    }
  }
  return fromMs === undefined ? spans : [...spans, { fromMs, toMs: Number.POSITIVE_INFINITY }];
}

/**
 * Stopped means stopped: no worker has made a batch while its gate was closed for want of an authority or a clock. And
 * the IDs of one worker ID rise from one reign to the next. Tells how often the workers stopped.
 */
export function checkStops(workers: readonly WorkerProcess[], replies: Followed): number {
  const batches = batchesOf(replies);
  for (const worker of workers) {
    const own = fencesOf(worker);
    const made = batches.filter(({ fence }) => own.has(fence)).map(({ generatedAtMs }) => generatedAtMs);
    for (const { fromMs, toMs } of refusals(worker)) {
      const meanwhile = made.filter((ms) => ms > fromMs && ms < toMs);
      expect(meanwhile, `made while the gate was closed, from ${fromMs} to ${toMs}`).toEqual([]);
    }
  }
  for (const ofOneId of Map.groupBy(batches, ({ workerId }) => workerId).values()) checkRising(ofOneId);
  return workers.reduce((sum, { lines }) => sum + lines.filter(stops).length, 0);
}

function checkRising(batches: readonly IdBatch[]): void {
  const reigns = [...Map.groupBy(batches, ({ fence }) => fence)].toSorted(([a], [b]) => (a < b ? -1 : 1));
  let highest = -1n;
  for (const [fence, reign] of reigns) {
    const ids = reign.flatMap(expandIds);
    const low = ids.filter((id) => id <= highest);
    expect(low, `IDs of fence ${fence} that are not above those of an earlier reign`).toEqual([]);
    for (const id of ids) if (id > highest) highest = id;
  }
}
