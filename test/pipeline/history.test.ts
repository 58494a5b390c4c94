import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { expandIds } from '../../src/codec/id-batch.ts';
import { examples } from '../support/examples.ts';
import { type Fate, MemoryLedger } from '../support/memory-ledger.ts';
import { request } from '../support/memory-records.ts';
import { MemoryWorker } from '../support/memory-worker.ts';

const FATES: readonly Fate[] = ['pass', 'pass', 'pass', 'entries lost', 'answer lost', 'late', 'sent again', 'echoed'];
/** Few correlation IDs, so that requests repeat; each has always the same count. */
const IDS = 6;

/** Steps of two workers that both believe to own the partition, over a faulty network. */
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ serve: fc.nat(1), from: fc.nat(20), size: fc.integer({ min: 1, max: 4 }) }) },
  { weight: 2, arbitrary: fc.record({ answer: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ deliverLate: fc.nat(2) }) },
  { weight: 1, arbitrary: fc.record({ read: fc.nat(1), records: fc.integer({ min: 1, max: 3 }) }) },
);
const history = fc.record({
  steps: fc.array(step, { minLength: 5, maxLength: 40 }),
  fates: fc.array(fc.constantFrom(...FATES), { maxLength: 40 }),
});

type History = typeof history extends fc.Arbitrary<infer T> ? T : never;

async function play({ steps, fates }: History): Promise<MemoryWorker[]> {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  const held: Array<() => void> = [];
  const link = async () => {
    const back = new Promise<void>((resolve) => held.push(resolve));
    return { fate: fates.shift() ?? 'pass', back };
  };
  const workers = [0, 1].map((workerId) => new MemoryWorker({ topic, link, workerId }));
  const serving: Promise<unknown>[] = [];
  const turn = () => new Promise((resolve) => setImmediate(resolve));
  for (const next of steps) {
    if ('serve' in next) {
      const batch = Array.from({ length: next.size }, (_, i) => {
        const offset = next.from + i;
        return request(offset, `id ${offset % IDS}`, { count: 1 + (offset % IDS) });
      });
      serving.push((workers[next.serve] as MemoryWorker).serve(batch).catch(() => undefined)); // it would come again
    } else if ('answer' in next) held.splice(next.answer, 1)[0]?.();
    else if ('deliverLate' in next) topic.deliverLate(next.deliverLate);
    else workers[next.read]?.reader.poll(0, next.records);
    await turn();
  }
  let over = false;
  const all = Promise.all(serving).then(() => {
    over = true;
  });
  for (let rest = 0; rest < 200 && !over; rest += 1) {
    for (const answer of held.splice(0)) answer();
    while (topic.lateCount > 0) topic.deliverLate();
    await turn();
  }
  await all;
  return workers;
}

const RUNS = examples(200);

describe('whatever the network does to two workers on one partition', () => {
  it('a correlation ID has one batch, byte for byte, and no ID is in two', async () => {
    let answered = 0;
    let met = 0;
    await fc.assert(
      fc.asyncProperty(history, async (its) => {
        const workers = await play({ ...its, fates: [...its.fates] });
        const replies = workers.flatMap((worker) => worker.replies());
        const batches = new Map<string, Buffer>();
        const owners = new Map<bigint, string>();
        for (const reply of replies) {
          if (!('batch' in reply)) throw new Error(`an error for a good request: ${reply.id}`);
          const before = batches.get(reply.id);
          if (before !== undefined) met += 1;
          expect(reply.bytes).toEqual(before ?? reply.bytes);
          batches.set(reply.id, reply.bytes);
          for (const id of expandIds(reply.batch)) {
            expect(owners.get(id) ?? reply.id).toBe(reply.id);
            owners.set(id, reply.id);
          }
          answered += 1;
        }
      }),
      { numRuns: RUNS },
    );
    expect([answered > RUNS, met > RUNS / 2]).toEqual([true, true]);
  });
});
