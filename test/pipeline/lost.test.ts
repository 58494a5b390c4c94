import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { request } from '../support/memory-records.ts';
import { gist, MemoryWorker } from '../support/memory-worker.ts';

/** A worker that has decided four requests, each in a separate append, and its topic. */
async function knowing() {
  const topic = new MemoryLedger(1, () => 1_700_000_000_000);
  const worker = new MemoryWorker({ topic });
  for (const [offset, id] of ['a', 'b', 'c', 'd'].entries()) await worker.serve([request(offset, id)]);
  return { topic, worker, firstReplies: worker.replies().map(gist) };
}

type Knowing = Awaited<ReturnType<typeof knowing>>;

/** The worker after its reader has found a log that is shorter than what it had read. */
function noticing(worker: MemoryWorker): MemoryWorker {
  worker.copy.invalidate('the log is shorter');
  worker.catchUp();
  return worker;
}

/** The worker after it was assigned the partition. */
function taking(worker: MemoryWorker): MemoryWorker {
  worker.ledger.requireMarker(0);
  return worker;
}

/** The worker's replies to the first five requests when they are sent again. */
async function again(worker: MemoryWorker): Promise<readonly string[]> {
  const before = worker.replies().length;
  worker.catchUp();
  await worker.serve(['a', 'b', 'c', 'd', 'new'].map((id, offset) => request(offset, id)));
  return worker.replies().slice(before).map(gist);
}

const FRESH = expect.stringMatching(/^\d/);

describe.each([
  ['runs', ({ worker }: Knowing) => noticing(worker)],
  ['was away', ({ worker, topic }) => taking(new MemoryWorker({ topic, index: worker.index, workerId: 1 }))],
])('what a worker that %s knew, and the ledger lost', (_, later: (world: Knowing) => MemoryWorker) => {
  it('is FORGOTTEN when the ledger was recreated, and stays so', async () => {
    const world = await knowing();
    world.topic.truncate(0, 0);
    const worker = later(world);
    expect(await again(worker)).toEqual(['FORGOTTEN', 'FORGOTTEN', 'FORGOTTEN', 'FORGOTTEN', FRESH]);
    const restarted = new MemoryWorker({ topic: world.topic, index: worker.index });
    expect((await again(restarted)).slice(0, 4)).toEqual(['FORGOTTEN', 'FORGOTTEN', 'FORGOTTEN', 'FORGOTTEN']);
  });

  it('is FORGOTTEN except for what another worker decided in the new one', async () => {
    const world = await knowing();
    world.topic.truncate(0, 0);
    const other = new MemoryWorker({ topic: world.topic, workerId: 9 });
    await other.serve([request(1, 'b')]);
    const replies = await again(later(world));
    expect(replies).toEqual(['FORGOTTEN', ...other.replies().map(gist), 'FORGOTTEN', 'FORGOTTEN', FRESH]);
  });

  it('is FORGOTTEN when its tail is gone; the rest is known', async () => {
    const world = await knowing();
    world.topic.truncate(0, 2);
    expect(await again(later(world))).toEqual([...world.firstReplies.slice(0, 2), 'FORGOTTEN', 'FORGOTTEN', FRESH]);
  });

  it('is FORGOTTEN when its tail and its head are gone', async () => {
    const world = await knowing();
    world.topic.truncate(0, 3);
    world.topic.trim(0, 2);
    const replies = await again(later(world));
    expect(replies).toEqual(['FORGOTTEN', 'FORGOTTEN', world.firstReplies[2], 'FORGOTTEN', FRESH]);
  });

  it('is refused when the request topic was recreated too, until the index is empty: REQUESTS_RECREATED', async () => {
    const world = await knowing();
    world.topic.truncate(0, 0);
    world.topic.requestEnds.set(0, 2);
    const worker = later(world);
    await expect(again(worker)).rejects.toMatchObject({
      code: 'REQUESTS_RECREATED',
      message: expect.stringMatching(/request offset 3 .* ends at 2, .*adopt-cluster/),
    });
    expect(world.topic.bounds(0).high).toBe(0);
    const empty = new MemoryWorker({ topic: world.topic });
    await empty.serve([request(0, 'x'), request(1, 'y')]);
    expect(empty.replies().map(gist)).toEqual([FRESH, FRESH]);
  });
});

describe('the knowledge of an index that was replaced', () => {
  it('is restored, since the ledger has lost nothing', async () => {
    const { topic, firstReplies } = await knowing();
    const later = new MemoryWorker({ topic, index: new MemoryIndex(), workerId: 1 });
    expect(await again(later)).toEqual([...firstReplies, FRESH]);
  });
});

describe('a partition that is restored', () => {
  it('is marked before anything else is decided', async () => {
    const { topic, worker } = await knowing();
    topic.truncate(0, 0);
    noticing(worker);
    await worker.serve([request(4, 'new')]);
    const entries = topic.read(0, 0).map(({ value }) => decodeLedgerEntry(value as Buffer));
    expect(entries).toMatchObject([{ kind: 'marker', end: 0, through: 3 }, { kind: 'batch' }]);
  });
});
