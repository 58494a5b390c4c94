import { describe, expect, it } from 'vitest';
import type { EndHead } from '../../src/codec/head-values.ts';
import { decodeLedgerEntry, EMPTY_MARKER, encodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { digestEntry } from '../../src/codec/ledger-key.ts';
import { IdallocError } from '../../src/errors.ts';
import type { LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import { MemoryEndHeads } from '../support/memory-ends.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { entry, request } from '../support/memory-records.ts';
import { gist, MemoryWorker, type MemoryWorkerOptions, WITHOUT_RESTATING } from '../support/memory-worker.ts';

const NOW_MS = 1_700_000_000_000;
const silent = () => {
  throw new IdallocError('ETCD_UNAVAILABLE', 'etcd does not answer');
};

/** A ledger partition with its head, and an owner of it that has decided requests for these. */
async function owned(...ids: readonly string[]) {
  const topic = new MemoryLedger(1, () => NOW_MS);
  const heads = new MemoryEndHeads();
  const outcomes: string[] = [];
  const losses: unknown[] = [];
  const endEvents = {
    raised: (outcome: string) => outcomes.push(outcome),
    lost: (partition: number, loss: unknown) => losses.push([partition, loss]),
  };
  const ledger = { ...WITHOUT_RESTATING, heads, endEvents };
  let workers = 0;
  const worker = (options: Partial<MemoryWorkerOptions> = {}) => {
    workers += 1;
    return new MemoryWorker({ topic, heads, ledger, workerId: workers, ...options });
  };
  const owner = worker();
  await owner.ledger.mark(0);
  for (const [i, id] of ids.entries()) await owner.serve([request(i, id)]);
  owner.catchUp();
  await owner.ledger.raise([0]);
  return { topic, heads, outcomes, losses, worker, owner };
}

/** Takes the partition over, as an owner does. */
async function takenOver(worker: MemoryWorker): Promise<MemoryWorker> {
  await worker.ledger.mark(0);
  return worker;
}

const shown = (topic: MemoryLedger) =>
  topic.read(0, topic.bounds(0).low).map(({ offset, value }) => {
    const { kind, end, through } = decodeLedgerEntry(value as Buffer);
    return `${offset}: ${kind} ${end} ${through}`;
  });
/** What the last requests got: a batch, or the code of a refusal. */
const last = (worker: MemoryWorker, count = 1) =>
  worker
    .replies()
    .slice(-count)
    .map((reply) => ('error' in reply ? reply.error.code : 'batch'));

const bytesOf = ({ key, value }: LedgerRecord) => ({ key, value });

describe('how far a partition has gone', () => {
  it('is what its owner has read back, with the digest of the last entry', async () => {
    const { topic, heads } = await owned('a', 'b');
    const [entryBefore] = topic.read(0, 2);
    const head = { end: 3, through: 1, time: NOW_MS, life: 0, digest: digestEntry(entryBefore as LedgerRecord) };
    expect(heads.of(0)).toEqual(head);
  });

  it('does not include what is settled and was not read back', async () => {
    const { heads, owner } = await owned('a');
    await owner.serve([request(1, 'b')]);
    await owner.ledger.raise([0]);
    expect(heads.of(0)?.end).toBe(2);
  });

  it('is not written again while nothing changes', async () => {
    const { heads, owner, outcomes } = await owned('a');
    heads.onSwap = silent;
    await owner.ledger.raise([0]);
    expect(outcomes).toEqual(['done']);
  });

  it('is not written by a worker that has not compared its copy yet', async () => {
    const { heads, worker } = await owned('a');
    heads.put(0, undefined);
    const other = worker();
    await other.ledger.raise([0]);
    expect(heads.of(0)).toBeUndefined();
  });

  it('is written once etcd answers again, and requests are served meanwhile', async () => {
    const { heads, owner, outcomes } = await owned('a');
    heads.onSwap = silent;
    await owner.serve([request(1, 'b')]);
    owner.catchUp();
    await owner.ledger.raise([0]);
    await owner.serve([request(2, 'c')]);
    owner.catchUp();
    expect(heads.of(0)?.end).toBe(2);
    heads.onSwap = () => {};
    await owner.ledger.raise([0]);
    expect([heads.of(0)?.end, outcomes]).toEqual([4, ['done', 'failed', 'done']]);
    expect(owner.replies()).toHaveLength(3);
  });

  it.each([
    ['the write that was not answered had taken effect', () => undefined],
    ['another worker owns the partition', () => []],
  ])('is not reported as unconfirmed for ever if nothing is due any more: %s', async (_, owns) => {
    const { heads, owner, outcomes } = await owned('a');
    await owner.serve([request(1, 'b')]);
    owner.catchUp();
    heads.onSwapped = silent;
    await owner.ledger.raise([0]);
    await owner.ledger.raise(owns() ?? [0]);
    await owner.ledger.raise(owns() ?? [0]);
    expect(outcomes).toEqual(['done', 'failed', 'done']);
  });

  it.each([
    ['was not answered', () => silent()],
    ['was sent twice, and the second copy refused', () => undefined],
  ])('is known to its writer if the write %s', async (_, answer) => {
    const { topic, heads, owner } = await owned('a');
    await owner.serve([request(1, 'b')]);
    owner.catchUp();
    heads.onSwapped = answer;
    await owner.ledger.raise([0]);
    heads.onSwapped = (revision) => revision;
    await owner.serve([request(2, 'c')]);
    owner.catchUp();
    await owner.ledger.raise([0]);
    expect(heads.of(0)?.end).toBe(4);
    expect(shown(topic), 'no second marker').toHaveLength(4);
  });
});

describe('a copy that is taken over', () => {
  it('serves if the log has what etcd knows, also what an owner that tells etcd nothing has appended', async () => {
    const { topic, worker, losses } = await owned('a');
    topic.land(0, [entry('x')]);
    const other = await takenOver(worker());
    await other.serve([request(0, 'a'), request(1, 'b')]);
    expect([last(other, 2), losses]).toEqual([['batch', 'batch'], []]);
  });

  it('serves if retention has removed what etcd knows', async () => {
    const { topic, worker, losses, owner } = await owned('a', 'b');
    await owner.ledger.mark(0);
    topic.trim(0, 3);
    const other = await takenOver(worker());
    await other.serve([request(2, 'c')]);
    expect([last(other), losses]).toEqual([['batch'], []]);
  });

  it('decides nothing while etcd does not answer', async () => {
    const { topic, heads, worker } = await owned('a');
    const other = worker();
    heads.onRead = silent;
    await expect(other.ledger.mark(0)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    await expect(other.serve([request(1, 'b')])).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    expect(shown(topic)).toHaveLength(2);
    heads.onRead = () => {};
    await other.serve([request(1, 'b')]);
    expect(last(other)).toEqual(['batch']);
  });

  it('states the loss of entries that its worker never saw, and every worker refuses what they may have decided', async () => {
    const { topic, heads, worker, losses } = await owned('a', 'b', 'c');
    topic.truncate(0, 2);
    const other = await takenOver(worker());
    await other.serve([request(0, 'a'), request(1, 'b')]);
    expect(shown(topic)).toEqual(['0: marker 0 -1', '1: batch 1 -1', '2: marker 4 2']);
    expect([last(other, 2), losses]).toEqual([['batch', 'FORGOTTEN'], [[0, { end: 4, through: 2 }]]]);
    expect(heads.of(0)).toMatchObject({ end: 3, through: 2, life: 1 });
    const third = await takenOver(worker());
    await third.serve([request(2, 'c')]);
    expect([last(third), losses.length]).toEqual([['FORGOTTEN'], 1]);
  });

  it('states the loss of a log that is as long again', async () => {
    const { topic, worker } = await owned('a', 'b');
    topic.truncate(0, 1);
    topic.land(0, [entry('x'), entry('y'), entry('z')]);
    const other = await takenOver(worker());
    await other.serve([request(0, 'a')]);
    expect([shown(topic).at(-1), last(other)]).toEqual(['4: marker 5 1', ['FORGOTTEN']]);
  });

  it('states it again if another append comes first, behind which a marker says nothing', async () => {
    const { topic, heads, worker } = await owned('a', 'b');
    topic.truncate(0, 1);
    const link: MemoryWorkerOptions['link'] = async () => {
      if (topic.bounds(0).high === 1) topic.land(0, [entry('x'), entry('y'), entry('z')]);
      return { fate: 'pass' };
    };
    const other = worker({ link });
    await expect(other.ledger.mark(0)).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    expect(heads.of(0)).toMatchObject({ end: 3, life: 0 });
    await other.serve([request(0, 'a')]);
    expect([shown(topic).at(-1), last(other)]).toEqual(['5: marker 6 1', ['FORGOTTEN']]);
  });

  it('decides nothing before etcd has the new end', async () => {
    const { topic, heads, worker } = await owned('a', 'b');
    topic.truncate(0, 2);
    const other = worker();
    heads.onSwap = silent;
    await expect(other.ledger.mark(0)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    await expect(other.serve([request(5, 'e')])).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    expect(other.replies()).toEqual([]);
    heads.onSwap = () => {};
    await other.serve([request(5, 'e')]);
    expect(heads.of(0)?.life).toBe(1);
  });

  it('is refused if etcd knows requests beyond the end of the request topic', async () => {
    const { topic, worker } = await owned('a', 'b', 'c');
    topic.truncate(0, 0);
    topic.requestEnds.set(0, 2);
    const message = expect.stringMatching(/request offset 2 .* ends at 2.*adopt-cluster/);
    await expect(worker().ledger.mark(0)).rejects.toMatchObject({ code: 'REQUESTS_RECREATED', message });
  });
});

describe('a ledger and request topic that were created again', () => {
  /** Of five requests the new topic has two, and an operator adopts that. */
  async function recreated() {
    const world = await owned('a', 'b', 'c', 'd', 'e');
    const { topic, heads } = world;
    topic.truncate(0, 0);
    topic.requestEnds.set(0, 2);
    const adopts = () => {
      const marker = { key: null, value: encodeLedgerEntry({ kind: 'marker', end: 6, through: 1 }) };
      topic.land(0, [marker]);
      const [found] = topic.read(0, topic.bounds(0).high - 1);
      const digest = digestEntry(found as LedgerRecord);
      heads.put(0, { end: topic.bounds(0).high, digest, through: 1, time: NOW_MS, life: 1 });
    };
    return { ...world, adopts };
  }

  /** New requests are decided, and those that the topic had before are not. */
  async function expectServed(worker: MemoryWorker, topic: MemoryLedger) {
    worker.catchUp();
    topic.requestEnds.set(0, 3);
    await worker.serve([request(0, 'f'), request(2, 'new')]);
    expect(last(worker, 2)).toEqual(['FORGOTTEN', 'batch']);
    topic.requestEnds.set(0, 2);
    worker.ledger.requireMarker(0);
    await expect(worker.ledger.mark(0), 'once, for each adoption').rejects.toMatchObject({
      code: 'REQUESTS_RECREATED',
    });
  }

  it('are refused until they are adopted; then the worker that ran goes on', async () => {
    const { topic, owner, adopts } = await recreated();
    owner.copy.invalidate('the log is shorter');
    owner.catchUp();
    await expect(owner.ledger.mark(0)).rejects.toMatchObject({ code: 'REQUESTS_RECREATED' });
    adopts();
    owner.catchUp();
    await expect(owner.ledger.mark(0)).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    await expectServed(owner, topic);
  });

  it('do not block a worker that comes back with its index of the old ones', async () => {
    const { topic, owner, worker, adopts } = await recreated();
    adopts();
    const back = worker({ index: owner.index });
    back.catchUp();
    await expect(back.ledger.mark(0)).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    await expectServed(back, topic);
  });

  it('serve the first request although what was pending is appended for an empty request topic', async () => {
    const { topic, worker } = await owned();
    topic.requestEnds.set(0, 0);
    topic.land(0, [entry('pending', { requestOffset: 0 })]);
    const other = await takenOver(worker());
    await other.serve([request(0, 'first')]);
    expect(last(other)).toEqual(['batch']);
  });
});

describe('a loss that the owner notices', () => {
  it('is stated with what etcd had not been told yet', async () => {
    const { topic, worker, owner } = await owned('a');
    await owner.serve([request(1, 'b'), request(2, 'c')]);
    topic.truncate(0, 2);
    owner.copy.invalidate('the log is shorter');
    owner.catchUp();
    await owner.serve([request(1, 'b')]);
    expect([shown(topic).at(-1), last(owner)]).toEqual(['2: marker 4 2', ['FORGOTTEN']]);
    const other = await takenOver(worker());
    await other.serve([request(2, 'c')]);
    expect(last(other)).toEqual(['FORGOTTEN']);
  });

  it('is not stated again by one that notices it after another owner has', async () => {
    const { topic, worker, owner, losses } = await owned('a', 'b');
    topic.truncate(0, 2);
    const other = await takenOver(worker());
    await other.serve([request(3, 'd')]);
    owner.copy.invalidate('the log is shorter');
    owner.catchUp();
    await owner.ledger.mark(0);
    expect(losses).toHaveLength(1);
  });

  it('is not what another owner decides after the copy was restored', async () => {
    const { worker, owner, losses } = await owned('a', 'b');
    owner.copy.restore('its index is damaged');
    owner.catchUp();
    const other = await takenOver(worker());
    await other.serve([request(3, 'd'), request(4, 'e')]);
    other.catchUp();
    await other.ledger.raise([0]);
    await owner.ledger.mark(0);
    await owner.serve([request(2, 'c')]);
    expect([losses, last(owner)]).toEqual([[], ['batch']]);
  });

  it('is nothing if retention has removed what the copy lacks', async () => {
    const { topic, owner, losses } = await owned('a', 'b');
    topic.trim(0, 3);
    topic.land(0, [entry('x')]);
    topic.trim(0, 4);
    owner.copy.invalidate('the log starts later');
    owner.catchUp();
    await owner.ledger.mark(0);
    expect(losses).toEqual([]);
  });
});

describe('two owners', () => {
  it('one that has not noticed a loss writes nothing over the end that the other has stated, and compares its copy', async () => {
    const { topic, heads, worker, owner, outcomes } = await owned('a', 'b', 'c');
    await owner.serve([request(3, 'd')]);
    owner.catchUp();
    topic.truncate(0, 2);
    await takenOver(worker());
    const head = heads.of(0);
    await owner.ledger.raise([0]);
    expect([heads.of(0), outcomes.at(-1)]).toEqual([head, 'refused']);
    const served = owner.serve([request(4, 'e')]);
    await expect(served).rejects.toMatchObject({ code: 'LEDGER_TRUNCATED' });
    owner.catchUp();
    await owner.serve([request(3, 'd')]);
    expect(last(owner)).toEqual(['FORGOTTEN']);
  });

  it('that both raise compare and go on, and the end never falls', async () => {
    const { heads, worker, owner } = await owned('a');
    const other = await takenOver(worker());
    const ends: (number | undefined)[] = [];
    for (const [i, one] of [owner, other, owner, other].entries()) {
      await one.serve([request(10 + i, `k${i}`)]);
      for (const both of [owner, other]) both.catchUp();
      await one.ledger.raise([0]);
      ends.push(heads.of(0)?.end);
    }
    expect(ends).toEqual([...ends].sort());
    expect(new Set(owner.replies().map(gist)).size).toBeGreaterThan(1);
  });
});

describe('an interrupted copy', () => {
  it('is compared again before anything is decided, without a marker if etcd has the same head', async () => {
    const { topic, heads, owner } = await owned('a');
    let reads = 0;
    heads.onRead = () => {
      reads += 1;
    };
    await owner.serve([request(1, 'b')]);
    expect(reads).toBe(0);
    owner.copy.doubt();
    owner.reader.restart(0);
    owner.catchUp();
    await owner.serve([request(2, 'c')]);
    expect([reads, shown(topic).filter((text) => text.includes('marker')).length]).toEqual([1, 1]);
  });

  it('decides nothing if another owner has written the head, before its marker is read back', async () => {
    const { topic, heads, owner } = await owned('a');
    heads.put(0, { ...(heads.of(0) as EndHead), end: 9, through: 7 });
    owner.copy.doubt();
    owner.reader.restart(0);
    owner.catchUp();
    await owner.serve([request(7, 'x')]);
    expect([shown(topic).at(-1), last(owner)]).toEqual(['2: marker 9 7', ['FORGOTTEN']]);
  });
});

describe('a ledger that was copied to other offsets', () => {
  /** The entries of a ledger in another one: without its first ones, or with some of them twice. */
  function copyOf(topic: MemoryLedger, [lacks, twice]: readonly [number, number]): MemoryLedger {
    const records = topic.read(0, 0);
    const copy = new MemoryLedger(1, () => NOW_MS + 5);
    const copied = [...records.slice(0, twice), ...records.slice(lacks)];
    copy.land(0, copied.map(bytesOf));
    return copy;
  }

  it.each([
    ['its head was trimmed before', [2, 0], -2],
    ['it has entries twice', [0, 1], 1],
  ] as const)('is LEDGER_COPIED: %s', async (_, how, shift) => {
    const { topic, heads } = await owned('a', 'b', 'c', 'd');
    const copy = copyOf(topic, how);
    copy.land(0, [{ key: null, value: EMPTY_MARKER }]);
    const elsewhere = new MemoryWorker({ topic: copy, heads });
    const message = expect.stringMatching(new RegExp(`offset 4 at offset ${4 + shift}.*adopt-cluster`));
    for (const _again of [1, 2])
      await expect(elsewhere.ledger.mark(0)).rejects.toMatchObject({ code: 'LEDGER_COPIED', message });
    expect(elsewhere.ledger.ends.copied(0)).toMatchObject({ code: 'LEDGER_COPIED' });
    const [found] = copy.read(0, copy.bounds(0).high - 1);
    const { high: end } = copy.bounds(0);
    heads.put(0, { end, digest: digestEntry(found as LedgerRecord), through: 3, time: NOW_MS + 5, life: 1 });
    await elsewhere.ledger.mark(0);
    expect(elsewhere.ledger.ends.copied(0)).toBeUndefined();
  });

  it('is LEDGER_COPIED although its last entry is an empty marker, as a worker that starts writes it', async () => {
    const { topic, heads } = await owned('a', 'b', 'c', 'd');
    const empty = { key: null, value: EMPTY_MARKER };
    const records = topic.read(0, 0).map(bytesOf);
    const copy = new MemoryLedger(1, () => NOW_MS + 5);
    copy.land(0, [...records.slice(2), empty]);
    const last = { ...empty, headers: {}, offset: records.length, appendedAtMs: NOW_MS };
    heads.put(0, { ...(heads.of(0) as EndHead), end: records.length + 1, time: NOW_MS, digest: digestEntry(last) });
    const elsewhere = new MemoryWorker({ topic: copy, heads });
    await expect(elsewhere.ledger.mark(0)).rejects.toMatchObject({ code: 'LEDGER_COPIED' });
  });

  it('is not one that lost everything, and then got the last append again', async () => {
    const { topic, worker, losses } = await owned('a', 'b', 'c');
    const [again] = topic.read(0, 3);
    topic.truncate(0, 0);
    topic.land(0, [{ key: null, value: EMPTY_MARKER }, bytesOf(again as LedgerRecord)]);
    await takenOver(worker());
    expect(losses).toHaveLength(1);
  });

  it('is not one that lost its tail and has the last entry twice, as a late retry of a producer leaves it', async () => {
    const { topic, worker, losses } = await owned('a', 'b', 'c');
    const [again] = topic.read(0, 3);
    topic.truncate(0, 2);
    topic.land(0, [bytesOf(again as LedgerRecord)]);
    await takenOver(worker());
    expect(losses).toHaveLength(1);
  });

  it('is not one that lost everything, got the last entry late, and a marker whose writer then died', async () => {
    const { topic, heads, worker, losses } = await owned('a', 'b', 'c');
    const [again] = topic.read(0, 3);
    topic.truncate(0, 0);
    topic.land(0, [bytesOf(again as LedgerRecord)]);
    heads.onSwap = silent;
    await expect(worker().ledger.mark(0)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
    heads.onSwap = () => {};
    await takenOver(worker());
    expect(losses).toHaveLength(1);
  });
});

it('what etcd has and no worker wrote blocks its partition, and no other', async () => {
  const { heads, worker } = await owned('a');
  const damage = new IdallocError('NAMESPACE_DAMAGED', 'damaged');
  const read = heads.read.bind(heads);
  heads.read = async (partitions) => {
    const found = await read(partitions);
    return new Map([...found].map(([partition, stored]) => [partition, { ...stored, damage }]));
  };
  await expect(worker().ledger.mark(0)).rejects.toBe(damage);
});
