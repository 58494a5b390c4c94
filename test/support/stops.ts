import { expect } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { decodeReply, type Followed } from './followed.ts';
import type { Sent } from './load.ts';
import { type Allocated, faultsOf, refuses, termsOf } from './terms.ts';
import type { LogLine, WorkerProcess } from './worker-process.ts';

/** A step back of the clock by less than this does not end the term. */
const STEP_BACK_MS = 10;

/** Why a worker stops that etcd does not answer. One that the machine paused names that first. */
export const WITHOUT_ETCD: readonly string[] = ['LEASE_SUSPENDED', 'PROCESS_PAUSED'];

/**
 * The next closing of the gate, at line `from` of the log or later; the last one before, if the gate is closed there
 * already: on a busy machine it may close by itself, and does not close again.
 */
export async function closed(worker: WorkerProcess, from: number): Promise<LogLine> {
  const last = worker.lines.slice(0, from).findLast(({ msg }) => msg === 'gate open' || msg === 'gate closed');
  if (last?.msg === 'gate closed') return last;
  return await worker.line(({ msg }) => msg === 'gate closed', from);
}

/** The next opening of the gate, at line `from` of the log or later. */
export function opened(worker: WorkerProcess, from: number): Promise<LogLine> {
  return worker.line(({ msg }) => msg === 'gate open', from);
}

/** All batches in replies so far. */
function batchesOf(replies: Followed): readonly IdBatch[] {
  return replies.seen
    .map((seen) => decodeReply(seen).reply)
    .flatMap((reply) => ('batch' in reply ? [reply.batch] : []));
}

/** Waits for a batch that this worker allocates after this call; returns the monotonic time of its reply. */
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

/** The fences of all terms that a worker has had. */
export function fencesOf(worker: WorkerProcess): ReadonlySet<bigint> {
  const acquired = worker.lines.filter(({ msg }) => msg === 'worker ID acquired');
  return new Set(acquired.map(({ fence }) => BigInt(String(fence))));
}

function stops({ msg, reason }: LogLine): boolean {
  return msg === 'gate closed' && refuses(reason);
}

/**
 * The lines, from `from` on, by which the gate closed for its lease or its clock, but for pauses of the process and
 * what follows them: a busy machine pauses it, and nothing that a test does but SIGSTOP.
 */
export function closings({ lines }: WorkerProcess, from: number): readonly LogLine[] {
  const closed = lines.slice(from).filter(({ msg }) => /^gate closed/.test(msg ?? ''));
  return closed.filter(({ reason, detail }) => refuses(reason) && !/process was paused/.test(String(detail)));
}

/** All batches in replies so far, by their fences. */
function batchesByFence(replies: Followed, sent: readonly Sent[]): ReadonlyMap<bigint, readonly Allocated[]> {
  const sentMs = new Map(sent.map((ask) => [ask.correlationId, ask.sentMs]));
  const batches = replies.seen.flatMap((seen) => {
    const { reply } = decodeReply(seen);
    if (!('batch' in reply)) return [];
    const correlationId = reply.correlationId.toString();
    const { fence, generatedAtMs } = reply.batch;
    const appendedMs = Number(seen.message.timestamp); // a reply has its entry's time
    return [{ fence, correlationId, generatedAtMs, appendedMs, sentMs: sentMs.get(correlationId) }];
  });
  return Map.groupBy(batches, ({ fence }) => fence);
}

/**
 * Stopped means stopped: no worker allocated a batch while its gate was closed for its lease or its clock, or outside
 * the term whose fence the batch has. And the IDs of one worker ID rise from one term to the next.
 *
 * @returns how often the workers stopped
 */
export function checkStops(workers: readonly WorkerProcess[], replies: Followed, sent: readonly Sent[]): number {
  const byFence = batchesByFence(replies, sent);
  for (const { lines, hasFakedClock } of workers) {
    const stepMs = hasFakedClock ? STEP_BACK_MS : 0;
    for (const term of termsOf(lines)) expect(faultsOf(term, byFence.get(term.fence) ?? [], stepMs)).toEqual([]);
  }
  for (const ofOneId of Map.groupBy(batchesOf(replies), ({ workerId }) => workerId).values()) checkRising(ofOneId);
  return workers.reduce((sum, { lines }) => sum + lines.filter(stops).length, 0);
}

/** For each stop of a worker because of its lease: how long etcd had not confirmed it, as the worker's log says. */
export function silencesMs(workers: readonly WorkerProcess[]): readonly number[] {
  const stopped = workers.flatMap(({ lines }) =>
    lines.filter(({ msg, reason }) => msg === 'gate closed' && reason === 'LEASE_SUSPENDED'),
  );
  return stopped.map(({ detail }) => Number(/for (\d+) ms/.exec(String(detail))?.[1]));
}

function checkRising(batches: readonly IdBatch[]): void {
  const terms = [...Map.groupBy(batches, ({ fence }) => fence)].toSorted(([a], [b]) => (a < b ? -1 : 1));
  let highest = -1n;
  for (const [fence, term] of terms) {
    const ids = term.flatMap(expandIds);
    const low = ids.filter((id) => id <= highest);
    expect(low, `IDs of fence ${fence} that are not above those of an earlier term`).toEqual([]);
    for (const id of ids) if (id > highest) highest = id;
  }
}
