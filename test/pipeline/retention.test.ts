import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { FIRST_SENT } from '../../src/codec/request-headers.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { entry, request } from '../support/memory-records.ts';
import { gist, MemoryWorker, RENEW_AFTER_MS } from '../support/memory-worker.ts';

/** A topic in which one worker has served these requests, each in a separate append. */
async function served(...ids: string[]): Promise<MemoryLedger> {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  const worker = new MemoryWorker({ topic });
  for (const [offset, id] of ids.entries()) await worker.serve([request(offset, id)]);
  return topic;
}

/** The outcome of each request, in order: its first ID, or the code of its error. */
function outcomes(worker: MemoryWorker): (bigint | string | undefined)[] {
  return worker.replies().map((reply) => ('batch' in reply ? reply.batch.ranges[0]?.first : gist(reply)));
}

const markersOf = (topic: MemoryLedger) =>
  topic.read(0, topic.bounds(0).low).flatMap(({ value }) => {
    const decoded = decodeLedgerEntry(value as Buffer);
    return decoded.kind === 'marker' ? [decoded] : [];
  });

describe('a ledger whose head was trimmed', () => {
  it('never allocates a second batch for a request that it decided: FORGOTTEN', async () => {
    const topic = await served('a', 'b', 'c');
    topic.trim(0, 2);
    const later = new MemoryWorker({ topic });
    await later.serve([request(0, 'a'), request(1, 'b')]);
    expect(outcomes(later)).toEqual(['FORGOTTEN', 'FORGOTTEN']);
    expect(later.allocator.asked).toEqual([]);
  });

  it('still returns the batches that it has, and allocates new ones for requests above the horizon', async () => {
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

  it('that is empty counts all existing requests as decided, and serves later ones', async () => {
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

  it('records how far the requests were decided', async () => {
    const topic = await served('a', 'b');
    const later = new MemoryWorker({ topic });
    await later.ledger.mark(0);
    expect(markersOf(topic)).toEqual([{ kind: 'marker', end: 2, through: 1 }]);
  });

  it('keeps waiting requests from being forgotten when everything before it was trimmed', async () => {
    const topic = await served('a', 'b');
    await new MemoryWorker({ topic }).ledger.mark(0);
    topic.trim(0, 2);
    const later = new MemoryWorker({ topic });
    await later.serve([request(2, 'waiting')]);
    expect(outcomes(later)).toEqual([expect.any(BigInt)]);
  });

  it('is refused when the request topic was recreated: REQUESTS_RECREATED, and nothing is decided', async () => {
    const topic = await served('a', 'b', 'c');
    topic.requestEnds.set(0, 1);
    const later = new MemoryWorker({ topic });
    await expect(later.ledger.mark(0)).rejects.toMatchObject({ code: 'REQUESTS_RECREATED' });
    await expect(later.serve([request(0, 'other')])).rejects.toMatchObject({ code: 'REQUESTS_RECREATED' });
    expect(later.replies()).toEqual([]);
  });
});

describe('a request that is answered with an old decision', () => {
  const NOW = 1_700_000_000_000;
  const later = (offset: number, ms: number, fields = {}) => ({
    ...request(offset, 'a', fields),
    timestampMs: NOW + ms,
  });

  /** As a requester says it, so that its age alone counts: it is no copy of which nothing shows the age. */
  const resent = (offset: number, ms: number) => later(offset, ms, { headers: { [FIRST_SENT]: `${NOW}` } });

  it('has it renewed in the ledger: the same batch once more, for the later request', async () => {
    const topic = await served('a');
    const worker = new MemoryWorker({ topic, workerId: 7 });
    await worker.serve([later(9, RENEW_AFTER_MS)]);
    const [first, renewal] = topic.read(0, 0).map(({ value }) => decodeLedgerEntry(value as Buffer));
    expect(renewal).toEqual({ ...first, requestOffset: 9, end: 1, through: 0 });
    expect(worker.allocator.asked).toEqual([]);
    expect(worker.replies()).toMatchObject([{ replayed: true }]);
  });

  it('has it renewed once, however often it comes, and not when the decision is young', async () => {
    let now = NOW;
    const topic = new MemoryLedger(1, () => now);
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a'), resent(1, RENEW_AFTER_MS - 1)]);
    expect(topic.bounds(0).high).toBe(1);
    now += RENEW_AFTER_MS;
    await worker.serve([resent(2, RENEW_AFTER_MS), resent(3, RENEW_AFTER_MS)]);
    await worker.serve([resent(4, RENEW_AFTER_MS + 1)]);
    expect(topic.bounds(0).high).toBe(2);
  });

  it('has it renewed even if a loser is younger than the decision', async () => {
    let now = NOW;
    const topic = new MemoryLedger(1, () => now);
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a')]);
    now += RENEW_AFTER_MS;
    topic.land(0, [entry('a', { first: 2_000n, requestOffset: 0, end: 0 })]);
    worker.catchUp();
    await worker.serve([resent(9, RENEW_AFTER_MS)]);
    topic.trim(0, 1);
    const newcomer = new MemoryWorker({ topic, workerId: 8 });
    for (const one of [worker, newcomer]) await one.serve([resent(9, RENEW_AFTER_MS)]);
    expect(outcomes(worker)[1]).toEqual(expect.any(BigInt));
    expect([...outcomes(worker), ...outcomes(newcomer)]).toEqual(Array(4).fill(outcomes(worker)[0]));
  });

  it('has it renewed even if the decision became readable only after the look-up', async () => {
    let now = NOW;
    const topic = new MemoryLedger(1, () => now);
    const worker = new MemoryWorker({ topic });
    topic.land(0, [entry('a', { first: 1_000n, requestOffset: 5 })]);
    now += RENEW_AFTER_MS;
    await worker.serve([resent(9, RENEW_AFTER_MS)]);
    topic.trim(0, 1);
    const newcomer = new MemoryWorker({ topic, workerId: 8 });
    await newcomer.serve([resent(9, RENEW_AFTER_MS)]);
    expect([...outcomes(worker), ...outcomes(newcomer)]).toEqual([1_000n, 1_000n]);
  });

  it('does not have it renewed when it is another request under the same correlation ID', async () => {
    const topic = await served('a');
    const worker = new MemoryWorker({ topic, workerId: 7 });
    await worker.serve([later(9, RENEW_AFTER_MS, { count: 2 })]);
    expect([outcomes(worker), topic.bounds(0).high]).toEqual([['CONFLICT'], 1]);
  });

  it('gets its batch again after retention removed the first entry, from a worker that knew that entry and from one that did not', async () => {
    const topic = await served('a');
    const worker = new MemoryWorker({ topic, workerId: 7 });
    await worker.serve([later(9, RENEW_AFTER_MS)]);
    topic.trim(0, 1);
    const newcomer = new MemoryWorker({ topic, workerId: 8 });
    for (const one of [worker, newcomer]) await one.serve([later(9, RENEW_AFTER_MS)]);
    expect(outcomes(newcomer)).toEqual([outcomes(worker)[0]]);
    expect(outcomes(worker)).toEqual([outcomes(newcomer)[0], outcomes(newcomer)[0]]);
  });

  it('is FORGOTTEN when retention has left a loser alone', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    topic.land(0, [entry('a', { first: 1_000n, requestOffset: 5 })]);
    const worker = new MemoryWorker({ topic });
    topic.land(0, [entry('a', { first: 2_000n, requestOffset: 5, end: 0 })]);
    worker.catchUp();
    topic.trim(0, 1);
    await worker.serve([request(5, 'a')]);
    expect(outcomes(worker)).toEqual(['FORGOTTEN']);
  });
});
