import { expect } from 'vitest';
import { expandIds, type IdBatch } from '../../src/codec/id-batch.ts';
import { decompose } from '../../src/core/layout.ts';
import type { Followed } from './followed.ts';
import { LAYOUT, type Realm, SHORT_LEASE } from './realm.ts';

/** The only worker ID of a pool for which workers compete. */
export const WORKER_ID = 7;
export const ONE_ID = { ...SHORT_LEASE, POOL_FIRST: String(WORKER_ID), POOL_LAST: String(WORKER_ID) };

/** Requests a batch and returns it. */
export async function ask(realm: Realm, replies: Followed, correlationId: string, count = 100): Promise<IdBatch> {
  await realm.send([{ correlationId, count }]);
  return await replies.batch(correlationId);
}

/** The ticks of a batch, lowest first. */
function ticksOf(batch: IdBatch): readonly number[] {
  return expandIds(batch).map((id) => decompose(LAYOUT, id).ticks);
}

/** Expects that a successor's IDs are above all earlier ones, and that the ceiling between them is too. */
export function checkSuccession(before: IdBatch, after: IdBatch, ceilingBetween: number): void {
  expect(after.workerId).toBe(before.workerId);
  expect((expandIds(after)[0] ?? 0n) > (expandIds(before).at(-1) ?? 0n)).toBe(true);
  expect(after.fence).toBeGreaterThan(before.fence);
  expect(ticksOf(before).at(-1)).toBeLessThan(ceilingBetween);
  expect(ticksOf(after)[0]).toBeGreaterThanOrEqual(ceilingBetween);
}
