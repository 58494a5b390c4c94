import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { readDeadLetterNote } from '../../src/codec/dead-letter.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { PART_MAX_REQUESTS } from '../../src/pipeline/parts.ts';
import type { RequestRecord } from '../../src/pipeline/ports.ts';
import { RECORDS_PER_TURN } from '../../src/pipeline/record-turns.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { record, request } from '../support/memory-records.ts';
import { DEAD_LETTERS, MemoryWorker } from '../support/memory-worker.ts';

function world(burst: number) {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  const worker = new MemoryWorker({ topic, junkRate: { perSecond: 10, burst } });
  return { worker, letters: () => worker.publisher.on(DEAD_LETTERS).map(({ headers }) => readDeadLetterNote(headers)) };
}

const junk = (offset: number) => record(offset, Buffer.from('junk'));
const uncounted = (offset: number) => request(offset, `r${offset}`, { count: 0 });
const many = (count: number, make: (offset: number) => RequestRecord) =>
  Array.from({ length: count }, (_, i) => make(i));

describe('more bad records of one code than the rate', () => {
  it('share one dead letter, which names them exactly and contains none of them', async () => {
    const { worker, letters } = world(2);
    const kinds = [junk, junk, junk, (i: number) => request(i, 'a'), junk, uncounted, junk, junk];
    await worker.serve(kinds.map((make, i) => make(i + 10)));
    expect(letters().map(({ code, isRange, offsets }) => [code, isRange, offsets])).toEqual([
      ['MALFORMED_REQUEST', false, [10]],
      ['MALFORMED_REQUEST', false, [11]],
      ['INVALID_COUNT', false, [15]],
      ['MALFORMED_REQUEST', true, [12, 14, 16, 17]],
    ]);
    const range = worker.publisher.on(DEAD_LETTERS).at(-1);
    expect(range).toMatchObject({
      key: null,
      value: null,
      headers: { 'idalloc-range-offsets': '12,14,16-17', 'idalloc-range-count': '4' },
    });
    expect(worker.replies().filter((reply) => 'batch' in reply)).toHaveLength(1);
  });

  it('are each in exactly one letter, over any number of parts', async () => {
    const { worker, letters } = world(100);
    const records = many(3_000, (i) => (i % 3 === 0 ? uncounted(i) : i % 7 === 0 ? request(i, `good${i}`) : junk(i)));
    await worker.serve(records);
    const covered = letters().flatMap(({ offsets }) => offsets ?? []);
    const bad = records.map(({ offset }) => offset).filter((i) => i % 3 === 0 || i % 7 !== 0);
    expect(covered.toSorted((a, b) => a - b)).toEqual(bad);
    expect(letters().length).toBeLessThan(215);
  });

  it('of which one is above it have letters of their own', async () => {
    const { worker, letters } = world(1);
    await worker.serve([junk(0), junk(1)]);
    expect(letters().map(({ isRange, offsets }) => [isRange, offsets])).toEqual([
      [false, [0]],
      [false, [1]],
    ]);
  });

  it('are not resolved before their letter is acknowledged', async () => {
    const { worker } = world(1);
    const acknowledged = Promise.withResolvers<void>();
    worker.publisher.hold = () => acknowledged.promise;
    const served = worker.serve(many(5, junk));
    for (let turn = 0; turn < 10; turn += 1) await nextTurn();
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([]);
    acknowledged.resolve();
    await served;
    expect(worker.events.at(-1)).toBe('resolved 4');
  });

  it('are in a letter again when it was not acknowledged', async () => {
    const { worker, letters } = world(1);
    worker.publisher.hold = async () => {
      throw new Error('the broker went away');
    };
    await expect(worker.serve(many(5, junk))).rejects.toThrow('went away');
    const before = letters().length;
    worker.publisher.hold = async () => {};
    await worker.serve(many(5, junk));
    expect(
      letters()
        .slice(before)
        .flatMap(({ offsets }) => offsets),
    ).toEqual([0, 1, 2, 3, 4]);
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual(['resolved 4']);
  });

  it('keep their offsets in a letter that the topic takes only without its record', async () => {
    const { worker, letters } = world(1);
    const { publish } = worker.publisher;
    worker.publisher.publish = async (records) => {
      const isBare = records.every(({ headers }) => 'idalloc-record-left-out' in headers);
      if (isBare) return publish.call(worker.publisher, records);
      return records.map(() => ({ ok: false, reason: 'too large', cause: 'record' }));
    };
    await worker.serve(many(5, junk));
    expect(letters().flatMap(({ offsets }) => offsets)).toEqual([0, 1, 2, 3, 4]);
  });

  it('on one reply topic get no more error replies than the rate, and others get theirs', async () => {
    const { worker } = world(3);
    const bad = many(10, uncounted);
    const other = request(10, 'other', { count: 0, replyTopic: 'id.replies.other' });
    await worker.serve([...bad, other]);
    expect(worker.replies()).toHaveLength(3);
    expect(worker.replies('id.replies.other')).toHaveLength(1);
  });
});

describe('a flood of bad records', () => {
  it('is read in steps between which the event loop has its turn, and has one letter for each step', async () => {
    const { worker, letters } = world(1);
    const readIn: number[] = [];
    let turn = 0;
    let isOver = false;
    const spin = async () => {
      for (; !isOver; turn += 1) await nextTurn();
    };
    const spun = spin();
    const records = many(10_000, (offset) => ({
      ...junk(offset),
      get value() {
        readIn[turn] = (readIn[turn] ?? 0) + 1;
        return null;
      },
    }));
    await processBatch(worker.deps, 0, records, { isCurrent: () => true, resolved: () => {} });
    isOver = true;
    await spun;
    expect(Math.max(...readIn.filter((count) => count !== undefined))).toBeLessThanOrEqual(2 * RECORDS_PER_TURN);
    expect(letters()).toHaveLength(10_000 / PART_MAX_REQUESTS + 1);
  });
});
