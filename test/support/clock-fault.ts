import { expect } from 'vitest';
import { toTicks } from '../../src/core/layout.ts';
import { wallMs } from '../../src/core/units.ts';
import { poolIds } from '../../src/identity/namespace.ts';
import { decodeReply, type Followed } from './followed.ts';
import { LAYOUT, type Realm, STEADY_LEASE } from './realm.ts';
import type { WorkerProcess } from './worker-process.ts';

/** Half of the lease's TTL: an owner key that is gone by then was released, and did not expire. */
const RELEASED_WITHIN_MS = 500 * Number(STEADY_LEASE.LEASE_TTL_SECONDS);

/** A worker under load, and what the test observes of it. */
export interface Watched {
  readonly realm: Realm;
  readonly worker: WorkerProcess;
  readonly replies: Followed;
}

/**
 * Waits until the log, from line `from` on, has this state of the gate ('open' or a reason); returns its monotonic
 * time.
 */
export async function gateSays(worker: WorkerProcess, said: string, from: number): Promise<number> {
  await worker.line(({ msg, reason }) => (said === 'open' ? msg === 'gate open' : reason === said), from);
  return performance.now();
}

/**
 * The states of the gate since a line of the log at which it was open, in order, but for pauses of the process: a busy
 * machine pauses it as SIGSTOP does.
 */
export function gateSince(worker: WorkerProcess, from: number): readonly unknown[] {
  const states = worker.lines.slice(from).flatMap(({ msg, reason }) => {
    if (msg === 'gate open') return ['open'];
    return typeof msg === 'string' && /^gate (closed|still)/.test(msg) ? [reason] : [];
  });
  const others = states.filter((state) => state !== 'PROCESS_PAUSED');
  return others.filter((state, i) => state !== 'open' || (others[i - 1] ?? 'open') !== 'open');
}

/**
 * Expects that health check and metrics agree with the log, and that the worker holds no worker ID. Use it only for a
 * fault that lasts: the worker returns 1.5 s after the end of one, and a delayed test would miss that it was gone.
 */
export async function expectEjected({ realm, worker }: Watched, reason: string): Promise<void> {
  const readyz = await worker.ops('/readyz');
  expect([readyz.status, await readyz.json()]).toEqual([
    503,
    { status: 'not ready', reason, detail: expect.stringMatching(/clock/) },
  ]);
  expect(await worker.metric(`idalloc_gate{reason="${reason}"}`)).toBe(1);
  expect(await gateChanges(worker, reason)).toBeGreaterThan(0);
  await expect.poll(() => termsOf(realm), { timeout: RELEASED_WITHIN_MS }).toEqual([]);
}

/** How often the gate has had this reason, by the metrics. */
export function gateChanges(worker: WorkerProcess, reason: string): Promise<number> {
  return worker.metric(`idalloc_gate_changes_total{reason="${reason}"}`);
}

/** The current holders of worker IDs, each identified by its key and create revision. */
export async function termsOf(realm: Realm): Promise<readonly string[]> {
  const owners = await realm.etcd.get(poolOf(realm).map((workerId) => realm.keys.owner(workerId)));
  return [...owners.values()].map(({ key, createRevision }) => `${key} of revision ${createRevision}`);
}

/** Expects that none of these holders has its worker ID any longer. */
export async function expectReleased(realm: Realm, terms: readonly string[]): Promise<void> {
  const left = async () => (await termsOf(realm)).filter((term) => terms.includes(term));
  await expect.poll(left, { timeout: RELEASED_WITHIN_MS }).toEqual([]);
}

/** The fence of the last reply. */
export function lastFence(replies: Followed): bigint {
  const last = replies.seen.at(-1);
  return last === undefined ? 0n : fenceOf(last);
}

/** Resolves with the time of the first reply under another fence. */
export async function firstReplyAfter(fence: bigint, replies: Followed, from: number): Promise<number> {
  let at = from;
  let atMs = Number.NaN;
  await replies.until('a reply of another term', (seen) => {
    for (; at < seen.length; at += 1) {
      const one = seen[at];
      if (one === undefined || fenceOf(one) === fence) continue;
      atMs = one.atMs;
      return true;
    }
    return false;
  });
  return atMs;
}

/** Expects that replies continue and the gate stays open for two heartbeats: each raises the ceiling. */
export async function expectUndisturbed({ realm, worker, replies }: Watched, from: number): Promise<void> {
  const fence = lastFence(replies);
  for (let heartbeats = 0; heartbeats < 2; heartbeats += 1) {
    const before = await highestCeiling(realm);
    await expect.poll(() => highestCeiling(realm)).toBeGreaterThan(before);
  }
  const count = replies.seen.length;
  await replies.until('more replies', (seen) => seen.length > count);
  expect(gateSince(worker, from)).toEqual([]);
  expect(lastFence(replies)).toBe(fence);
}

async function highestCeiling(realm: Realm): Promise<number> {
  const ceilings = await Promise.all(poolOf(realm).map((workerId) => realm.ceiling(workerId)));
  return Math.max(...ceilings.map(({ ticks }) => ticks));
}

/** Expects that no ceiling is further ahead of the true time than one reservation. */
export async function expectNoCeilingInTheFuture(realm: Realm): Promise<void> {
  const ceilings = await Promise.all(poolOf(realm).map((workerId) => realm.ceiling(workerId)));
  // Taken afterwards: ceilings rise while they are read.
  const limit = toTicks(LAYOUT, wallMs(Date.now() + Number(STEADY_LEASE.RESERVATION_MS) + 1_000));
  expect(Math.max(...ceilings.map(({ ticks }) => ticks))).toBeLessThan(limit);
}

/** The pool of a realm's workers; the default one if the realm doesn't set it. */
function poolOf({ env }: Realm): readonly number[] {
  return poolIds({ first: Number(env.POOL_FIRST ?? 0), last: Number(env.POOL_LAST ?? 31) });
}

function fenceOf(seen: Followed['seen'][number]): bigint {
  const { reply } = decodeReply(seen);
  return 'batch' in reply ? reply.batch.fence : 0n;
}
