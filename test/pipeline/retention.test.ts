import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, request } from '../support/memory-records.ts';
import { MemoryWorker } from '../support/memory-worker.ts';

/** A topic in which one worker has served these, each in an append of its own. */
async function served(...ids: string[]): Promise<MemoryLedger> {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  const worker = new MemoryWorker({ topic });
  for (const [offset, id] of ids.entries()) await worker.serve([request(offset, id)]);
  return topic;
}

/** What became of each request, in order: its first ID, or the code of its refusal. */
function outcomes(worker: MemoryWorker): (bigint | string | undefined)[] {
  return worker.replies().map((reply) => ('batch' in reply ? reply.batch.ranges[0]?.first : reply.error.code));
}

const markersOf = (topic: MemoryLedger) =>
  topic.read(0, topic.bounds(0).low).flatMap(({ value }) => {
    const decoded = decodeLedgerEntry(value as Buffer);
    return decoded.kind === 'marker' ? [decoded] : [];
  });

describe('a ledger whose head was trimmed', () => {
  it('never gives a second batch to a request that it decided: FORGOTTEN', async () => {
    const topic = await served('a', 'b', 'c');
    topic.trim(0, 2);
    const later = new MemoryWorker({ topic });
    await later.serve([request(0, 'a'), request(1, 'b')]);
    expect(outcomes(later)).toEqual(['FORGOTTEN', 'FORGOTTEN']);
    expect(later.allocator.asked).toEqual([]);
  });

  it('still gives the batches that it has, and new ones to requests above the horizon', async () => {
    const topic = await served('a', 'b', 'c');
    topic.trim(0, 2);
    const later = new MemoryWorker({ topic, workerId: 7 });
    await later.serve([request(2, 'c'), request(3, 'd')]);
    const [kept, fresh] = later.replies();
    expect([kept?.replayed, fresh?.replayed]).toEqual([true, false]);
  });

  it('forgets a key whose winner was trimmed while its loser stayed', async () => {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    topic.land(0, [entry('x', { first: 1_000n, requestOffset: 5 })]);
    topic.land(0, [entry('x', { first: 2_000n, requestOffset: 5, end: 0 })]);
    topic.land(0, [entry('y', { requestOffset: 6, end: 2, through: 5 })]);
    topic.trim(0, 1);
    const later = new MemoryWorker({ topic });
    await later.serve([request(5, 'x')]);
    expect(outcomes(later)).toEqual(['FORGOTTEN']);
  });

  it('that has nothing left counts all requests that exist as decided, and serves what comes after', async () => {
    const topic = await served('a', 'b');
    topic.trim(0, 2);
    topic.requestEnds.set(0, 2);
    const later = new MemoryWorker({ topic });
    await later.serve([request(0, 'a'), request(1, 'z')]);
    expect(outcomes(later)).toEqual(['FORGOTTEN', 'FORGOTTEN']);
    expect(markersOf(topic)).toEqual([{ kind: 'marker', end: 2, through: 1 }]);
    await later.serve([request(2, 'new')]);
    expect(outcomes(later).at(-1)).toEqual(expect.any(BigInt));
  });
});

describe('a marker', () => {
  it('is written before anything else is decided on a partition that was taken over', async () => {
    const topic = await served('a');
    const later = new MemoryWorker({ topic, link: linkOf('entries lost') });
    await expect(later.ledger.mark(0)).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    await later.serve([request(1, 'b')]);
    expect(topic.read(0, 1).map(({ value }) => decodeLedgerEntry(value as Buffer).kind)).toEqual(['marker', 'batch']);
  });

  it('tells how far the requests were decided', async () => {
    const topic = await served('a', 'b');
    const later = new MemoryWorker({ topic });
    await later.ledger.mark(0);
    expect(markersOf(topic)).toEqual([{ kind: 'marker', end: 2, through: 1 }]);
  });

  it('keeps the requests that wait from being forgotten when everything before it was trimmed', async () => {
    const topic = await served('a', 'b');
    await new MemoryWorker({ topic }).ledger.mark(0);
    topic.trim(0, 2);
    const later = new MemoryWorker({ topic });
    await later.serve([request(2, 'waiting')]);
    expect(outcomes(later)).toEqual([expect.any(BigInt)]);
  });

  it('is refused when the request topic was made anew: REQUESTS_RECREATED, and nothing is decided', async () => {
    const topic = await served('a', 'b', 'c');
    topic.requestEnds.set(0, 1);
    const later = new MemoryWorker({ topic });
    await expect(later.ledger.mark(0)).rejects.toMatchObject({ code: 'REQUESTS_RECREATED' });
    await expect(later.serve([request(0, 'other')])).rejects.toMatchObject({ code: 'REQUESTS_RECREATED' });
    expect(later.replies()).toEqual([]);
  });
});
