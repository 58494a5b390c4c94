import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { Ledger } from '../../src/ledger/ledger.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { entry } from '../support/memory-records.ts';
import { MemoryWorker, WITHOUT_RESTATING } from '../support/memory-worker.ts';

/** A worker about to write a marker: its query for the request topic's end was executed, but the answer is pending. */
function asked(topic: MemoryLedger): { worker: MemoryWorker; ledger: Ledger; answer: () => void } {
  const worker = new MemoryWorker({ topic });
  const held = Promise.withResolvers<void>();
  const log = topic.producer();
  const slow = {
    append: log.append,
    endOffset: log.endOffset,
    requestEnd: async (partition: number, known: number) => {
      const end = await log.requestEnd(partition, known);
      await held.promise;
      return end;
    },
  };
  const { index, partitions } = worker;
  const ledger = new Ledger({ ...WITHOUT_RESTATING, log: slow, entries: topic.entries, index, partitions });
  return { worker, ledger, answer: held.resolve };
}

const lastOf = (topic: MemoryLedger) => decodeLedgerEntry(topic.read(0, topic.bounds(0).high - 1)[0]?.value as Buffer);

describe('a marker with a late answer about the request topic', () => {
  it('does not mistake requests decided meanwhile for those of another request topic', async () => {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    topic.requestEnds.set(0, 0);
    const { worker, ledger, answer } = asked(topic);
    const marked = ledger.mark(0);
    await new Promise((resolve) => setImmediate(resolve));
    topic.land(0, [entry('a', { requestOffset: 0 })]);
    worker.catchUp();
    answer();
    await marked;
    expect(lastOf(topic)).toEqual({ kind: 'marker', end: 1, through: 0 });
  });

  it('includes what the index learned meanwhile if the horizon is unknown', async () => {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    topic.land(0, [entry('gone'), entry('kept', { requestOffset: 1 })]);
    topic.trim(0, 1);
    topic.requestEnds.set(0, 2);
    const { worker, ledger, answer } = asked(topic);
    const marked = ledger.mark(0);
    await new Promise((resolve) => setImmediate(resolve));
    topic.land(0, [entry('zombie', { requestOffset: 7, end: 1, through: 1 })]);
    worker.catchUp();
    expect(worker.index.horizon(0)).toBeUndefined();
    answer();
    await marked;
    expect(lastOf(topic)).toEqual({ kind: 'marker', end: 3, through: 7 });
  });
});

describe('a marker by a worker that knows the request at offset 4', () => {
  /** Writes a marker while the request topic ends at an offset; returns its `through`. */
  async function markedAt(requestEnd: number): Promise<number> {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    topic.land(0, [entry('a', { requestOffset: 4 })]);
    topic.requestEnds.set(0, requestEnd);
    const { worker, ledger, answer } = asked(topic);
    worker.catchUp();
    answer();
    await ledger.mark(0);
    return (lastOf(topic) as { readonly through: number }).through;
  }

  it.each([4, 3, 0])('is not written while requests end at %d: it would cover requests to come', async (requestEnd) => {
    await expect(markedAt(requestEnd)).rejects.toMatchObject({ code: 'REQUESTS_RECREATED' });
  });

  it('is written when that request is the last one', async () => {
    expect(await markedAt(5)).toBe(4);
  });
});
