import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { HOPS, ORIGIN } from '../../src/codec/request-headers.ts';
import type { LedgerEntries } from '../../src/ledger/ledger-ports.ts';
import { BINDING, perTest, toTheEnd } from '../adapters/index/index-directory.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { request } from '../support/memory-records.ts';
import { gist, MemoryWorker } from '../support/memory-worker.ts';

const NOW = 1_700_000_000_000;
const holder = perTest();

function open(machine: string) {
  const index = holder.directory.openOf(machine, BINDING, 16);
  toTheEnd(() => index.load(0));
  return index;
}

/** The request offsets in the entries of the ledger, -1 for a marker. */
const offsetsIn = (topic: MemoryLedger) =>
  topic.read(0, topic.bounds(0).low).map(({ value }) => {
    const entry = decodeLedgerEntry(value as Buffer);
    return 'requestOffset' in entry ? entry.requestOffset : -1;
  });

/** A copy of a record, as a producer's retry writes it: nothing says that it is one. */
describe.each([
  ['in one part', [[16, 17]]],
  ['in two parts', [[16], [17]]],
  ['in two parts, the first with others', [[15, 16], [17]]],
])('a copy of a record, %s,', (_, parts) => {
  async function decided() {
    const topic = new MemoryLedger(1, () => NOW);
    topic.requestEnds.set(0, 18);
    const index = open('old');
    const worker = new MemoryWorker({ topic, index });
    for (let i = 0; i < 15; i += 1) await worker.serve([request(i, `x-${i}`)]);
    for (const part of parts) {
      await worker.serve(part.map((offset) => request(offset, offset === 15 ? 'x-15' : 'order')));
    }
    await worker.ledger.mark(0);
    worker.catchUp();
    holder.directory.close(index);
    return topic;
  }
  const again = async (worker: MemoryWorker) => {
    await worker.serve([request(16, 'order'), request(17, 'order')]);
    return [...new Set(worker.replies().map(gist))];
  };

  it('is not decided again by a worker that kept its index, once the ledger has lost the decision', async () => {
    const topic = await decided();
    const { high } = topic.bounds(0);
    topic.trim(0, high);
    const worker = new MemoryWorker({ topic, index: open('old'), workerId: 1 });
    while (worker.copy.expire(high)) {}
    expect(await again(worker)).toEqual(['FORGOTTEN']);
  });

  it('is not decided again by a worker that restored its index, if later entries are left', async () => {
    const topic = await decided();
    topic.requestEnds.set(0, 30);
    topic.trim(0, topic.bounds(0).high - 1); // the marker is left
    const worker = new MemoryWorker({ topic, index: open('new'), workerId: 1 });
    await worker.serve([request(20, 'new')]);
    expect(worker.replies().map(gist)).not.toContain('FORGOTTEN');
    worker.publisher.records.length = 0;
    expect(await again(worker)).toEqual(['FORGOTTEN']);
  });
});

describe('the entry of a copy', () => {
  it('is the decision once more, for the highest of the copies, and is written once', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a')]);
    await worker.serve([request(1, 'a'), request(2, 'a')]);
    await worker.serve([request(0, 'a'), request(1, 'a'), request(2, 'a')]);
    expect(offsetsIn(topic)).toEqual([0, 2]);
    expect(worker.allocator.asked).toEqual([1]);
    expect(new Set(worker.replies().map(gist))).toEqual(new Set(['0+1']));
  });

  it('is none for a request that differs, nor for a record that says when it was first sent', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a'), request(1, 'a', { count: 2 })]);
    await worker.serve([request(2, 'a', { count: 2 })]);
    await worker.serve([request(3, 'a', { headers: { [ORIGIN]: `1/3/${NOW - 1}`, [HOPS]: '1' } })]);
    expect(offsetsIn(topic)).toEqual([0]);
  });

  it('is written for 63 copies of a request at most, since nobody pays for them', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const worker = new MemoryWorker({ topic });
    for (let offset = 0; offset < 100; offset += 1) await worker.serve([request(offset, 'a')]);
    expect(topic.bounds(0).high).toBe(64);
    expect(worker.replies().map(gist)).toEqual(Array(100).fill('0+1'));
  });

  it('adds nothing to what a look-up reads: the first and the last entry of a request', async () => {
    const topic = new MemoryLedger(1, () => NOW);
    const asked: number[] = [];
    const entries: LedgerEntries = {
      read: (partition, offsets) => {
        asked.push(offsets.length);
        return topic.entries.read(partition, offsets);
      },
    };
    const worker = new MemoryWorker({ topic, entries });
    for (let offset = 0; offset < 100; offset += 1) await worker.serve([request(offset, 'a')]);
    expect(Math.max(...asked)).toBe(2);
  });
});
