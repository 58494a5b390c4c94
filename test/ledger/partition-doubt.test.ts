import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { IdallocError } from '../../src/errors.ts';
import { Ledger } from '../../src/ledger/ledger.ts';
import { follow, followedWorld, heldAt, indexOf, three } from '../support/memory-copy.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { entry } from '../support/memory-records.ts';
import { WITHOUT_RESTATING } from '../support/memory-worker.ts';

describe('an own entry that was settled before it was read', () => {
  it('is compared when reading passes it: another entry at its offset invalidates the copy', () => {
    const { topic, reader, index, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    index.apply(0, [{ offset: 3, ...entry('mine', { end: 3 }), appendedAtMs: 1 }]);
    topic.land(0, [entry('theirs', { end: 3 })]);
    reader.poll(0);
    expect(causes).toEqual([expect.stringContaining('offset 3')]);
    reader.catchUp(0);
    expect([heldAt(index, 'mine'), heldAt(index, 'theirs')]).toEqual([undefined, 3]);
  });

  it('is compared wherever it lies in a delivery', () => {
    const { topic, reader, index, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    const mine = [entry('d', { end: 3 }), entry('mine', { end: 3 })];
    index.apply(
      0,
      mine.map((drafted, i) => ({ offset: 3 + i, ...drafted, appendedAtMs: 1 })),
    );
    topic.land(0, [entry('d', { end: 3 }), entry('theirs', { end: 3 }), entry('f', { end: 3 })]);
    reader.poll(0);
    expect(causes).toEqual([expect.stringContaining('offset 4')]);
  });

  it('does not decide when reading has found another entry of its key at its offset', async () => {
    const { topic, reader, index, copies } = followedWorld();
    reader.catchUp(0);
    const mine = entry('x', { first: 1n });
    const log = topic.producer();
    const ledger = new Ledger({
      ...WITHOUT_RESTATING,
      log: {
        ...log,
        append: async () => {
          const appended = topic.land(0, [entry('x', { first: 2n })]);
          reader.catchUp(0);
          return appended;
        },
      },
      entries: topic.entries,
      index,
      partitions: copies,
    });
    const drafted = { ...mine, entry: decodeLedgerEntry(mine.value) };
    expect((await ledger.commit(0, { end: 0, life: ledger.life(0), entries: [drafted] })).firsts).toEqual(new Set());
  });
});

describe('a copy whose reading was interrupted', () => {
  const ended = (of: ReturnType<typeof followedWorld>) => {
    of.reader.restart(0);
    of.reader.catchUp(0);
  };

  it('is not queried until its last entry was found in the log again', () => {
    const world = followedWorld({ entries: three });
    world.reader.catchUp(0);
    const changes = world.changes();
    const { life } = world.copy;
    expect(world.copy.doubt()).toBe(true);
    expect(world.copy.life, 'what was looked up before is looked up again').toBeGreaterThan(life);
    expect(world.copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    expect(world.copy.progress).toMatchObject({ isRecognised: false });
    expect(world.changes(), 'nobody has to act on it').toBe(changes);
    ended(world);
    expect([world.copy.refusal, world.causes, heldAt(world.index, 'a')]).toEqual([undefined, [], 0]);
  });

  it('is restored if the log has lost its tail meanwhile and is as long again, though nothing was out of range', () => {
    const world = followedWorld({ entries: three });
    world.reader.catchUp(0);
    const life = world.copy.life;
    world.topic.truncate(0, 1);
    world.topic.land(0, [entry('x', { end: 1 }), entry('y', { end: 2 })]);
    world.copy.doubt();
    ended(world);
    expect(world.causes).toEqual([expect.stringContaining('offset 2 differs')]);
    expect(world.copy.life).toBeGreaterThan(life);
    expect(['a', 'b', 'c', 'x', 'y'].map((key) => heldAt(world.index, key))).toEqual([0, undefined, undefined, 1, 2]);
  });

  /**
   * The worker appends an entry behind others than those that it has read: the log has lost its tail and is as long
   * again.
   */
  function appendedBehindOthers() {
    const world = followedWorld({ entries: three });
    world.reader.catchUp(0);
    world.topic.truncate(0, 2);
    world.topic.land(0, [entry('other', { end: 2 })]);
    const own = entry('own', { end: 3 });
    world.index.apply(0, [{ offset: 3, ...own, appendedAtMs: world.topic.land(0, [own]).appendedAtMs }]);
    return world;
  }

  it('is restored if it has an own entry behind others than those that it has read, though that one is found', () => {
    const world = appendedBehindOthers();
    world.copy.doubt();
    ended(world);
    expect(world.causes).toEqual([expect.stringContaining('offset 2 differs')]);
    expect(['c', 'other', 'own'].map((key) => heldAt(world.index, key))).toEqual([undefined, 2, 3]);
  });

  it('rejects who waits until that entry is read back', async () => {
    const world = appendedBehindOthers();
    world.copy.doubt();
    const back = expect(world.copy.readBack(4)).rejects.toMatchObject({ code: 'LEDGER_TRUNCATED' });
    ended(world);
    await back;
  });

  it('resolves who waits until an own entry is read back once it is, and at once afterwards', async () => {
    const world = followedWorld({ entries: three });
    world.reader.catchUp(0);
    const own = entry('own', { end: 3 });
    world.index.apply(0, [{ offset: 3, ...own, appendedAtMs: world.topic.land(0, [own]).appendedAtMs }]);
    let isBack = false;
    const back = world.copy.readBack(4).then(() => {
      isBack = true;
    });
    await world.copy.reached(4); // it is applied
    expect(isBack).toBe(false);
    world.reader.poll(0);
    await back;
    await world.copy.readBack(4);
  });

  it('is kept if retention has removed everything that it has read', () => {
    const world = followedWorld({ entries: three });
    world.reader.catchUp(0);
    world.topic.trim(0, 3);
    world.copy.doubt();
    ended(world);
    expect([world.copy.refusal, world.causes, world.index.end(0)]).toEqual([undefined, [], 3]);
  });

  it('is not in doubt if it does not exist, or is restored anyway', () => {
    const world = followedWorld({ entries: three });
    world.reader.catchUp(0);
    world.copy.invalidate('for a test');
    expect(world.copy.doubt()).toBe(false);
    world.copy.drop();
    expect(world.copy.doubt()).toBe(false);
  });
});

describe('a log that was longer before', () => {
  const ahead = entry('d', { end: 9, through: 70 });

  it('invalidates the copy when the writer of an entry had read beyond its offset', () => {
    const { topic, reader, causes, copy, index } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [ahead]);
    reader.poll(0);
    expect(causes).toEqual([expect.stringContaining('offset 3')]);
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    reader.catchUp(0);
    expect(causes).toHaveLength(1);
    expect([copy.refusal, heldAt(index, 'a'), heldAt(index, 'd')]).toEqual([undefined, 0, 3]);
  });

  it('is accepted by a restore of an empty copy, and what its writer knew counts as decided', () => {
    const { reader, causes, index } = followedWorld({ entries: [...three, ahead, entry('e', { end: 4 })] });
    reader.catchUp(0);
    expect([causes, index.end(0), index.horizon(0)]).toEqual([[], 5, 70]);
  });

  it('restores an older index again, which may hold what the log lost', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.land(0, [ahead]);
    const { reader, causes } = follow(topic, index);
    reader.catchUp(0);
    expect([causes.length, index.horizon(0), heldAt(index, 'd')]).toEqual([1, 70, 3]);
  });
});

describe('a gap within a delivery', () => {
  const skipping = (topic: MemoryLedger) => topic.read(0, 0).filter(({ offset }) => offset !== 1);

  it('invalidates the copy when it is new', () => {
    const { topic, copy, causes, index } = followedWorld();
    copy.begin(topic.bounds(0));
    topic.land(0, three);
    copy.deliver(skipping(topic));
    expect(causes).toEqual([expect.stringContaining('offset 2, but 1 was expected')]);
    expect([index.end(0), copy.refusal?.code]).toEqual([0, 'INDEX_RESTORING']);
  });

  it('stops the partition in a restore of an empty copy: it will not go away', () => {
    const { topic, copy, causes, index } = followedWorld({ entries: three });
    copy.begin(topic.bounds(0));
    copy.deliver(skipping(topic));
    expect(causes).toEqual([]);
    expect([index.end(0), copy.refusal?.code]).toEqual([0, 'LEDGER_UNREADABLE']);
  });
});

describe('a store that fails', () => {
  /** An index whose next apply is refused as the one on disk does it. */
  function failing(code: 'INDEX_RESTORING' | 'INDEX_UNUSABLE') {
    const index = new MemoryIndex();
    const apply = index.apply.bind(index);
    index.apply = () => {
      index.apply = apply;
      throw new IdallocError(code, 'the disk is full');
    };
    return index;
  }

  it('does not stop the partition, and nothing counts as read', () => {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    topic.land(0, three);
    for (const code of ['INDEX_RESTORING', 'INDEX_UNUSABLE'] as const) {
      const { copy, reader, index } = follow(topic, failing(code));
      reader.poll(0);
      expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
      expect(index.end(0)).toBe(0);
    }
  });

  it('makes every partition restore from nothing, except those that the log has stopped', async () => {
    const topic = new MemoryLedger(2, () => 1_700_000_000_000);
    topic.land(0, three);
    topic.land(1, [{ key: null, value: null }]);
    const { copy, copies, reader, index, causes } = follow(topic, new MemoryIndex(), 2);
    for (const partition of [0, 1]) reader.catchUp(partition);
    const reached = expect(copy.reached(9)).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    for (const one of copies) one.restore('the disk is full');
    await reached;
    expect(causes).toEqual(['the disk is full']);
    expect(copies.map(({ refusal }) => refusal?.code)).toEqual(['INDEX_RESTORING', 'LEDGER_UNREADABLE']);
    reader.catchUp(0);
    expect([copy.refusal, heldAt(index, 'c')]).toEqual([undefined, 2]);
  });
});

describe('a partition that stopped', () => {
  const bad = { key: null, value: Buffer.from('hello') };

  /** Stopped at offset 4, with good entries on both sides in the same delivery. */
  function stopped() {
    const world = followedWorld({ entries: [...three, entry('d'), bad, entry('e', { end: 5 })] });
    world.reader.catchUp(0);
    expect(world.copies.map((one) => one.stopped?.code)).toEqual(['LEDGER_UNREADABLE']);
    return world;
  }

  it('names the offset that it cannot read', () => {
    expect(stopped().copy.refusal?.message).toContain('at offset 4');
  });

  it('stays stopped while the log still holds what it could not read', () => {
    const { topic, copy, reader, causes } = stopped();
    topic.trim(0, 4);
    copy.expire(4, 6);
    reader.catchUp(0);
    expect([causes, copy.refusal?.code]).toEqual([[], 'LEDGER_UNREADABLE']);
  });

  it('is restored, and trusted again, when the log starts after that', () => {
    const { topic, copy, reader, causes, changes, index } = stopped();
    const before = changes();
    topic.trim(0, 5);
    expect(copy.expire(5, 6)).toBe(false);
    expect([copy.stopped, copy.refusal?.code]).toEqual([undefined, 'INDEX_RESTORING']);
    reader.catchUp(0);
    expect(causes).toEqual(['the log now starts at offset 5, after what could not be read']);
    expect([copy.refusal, heldAt(index, 'd'), heldAt(index, 'e')]).toEqual([undefined, undefined, 5]);
    expect(changes()).toBe(before + 2);
  });

  it('is restored when the log was recreated', () => {
    const { topic, copy, reader } = stopped();
    topic.truncate(0, 0);
    copy.expire(0, 0);
    reader.catchUp(0);
    expect(copy.refusal).toBeUndefined();
  });

  it('is also restored when it stopped for an undecodable batch or for a gap', () => {
    for (const stop of ['batch', 'hole'] as const) {
      const { topic, copy, reader } = followedWorld({ entries: [...three, entry('d', { end: 3 })] });
      copy.begin(topic.bounds(0));
      if (stop === 'batch') copy.unreadable({ offset: 2, why: 'a zstd batch is damaged' });
      else copy.deliver(topic.read(0, 0).filter(({ offset }) => offset !== 2));
      expect(copy.stopped).toBeDefined();
      copy.expire(2, 4);
      expect(copy.stopped).toBeDefined();
      topic.trim(0, 3);
      copy.expire(3, 4);
      reader.catchUp(0);
      expect(copy.refusal).toBeUndefined();
    }
  });

  it('stops again at the next unreadable entry', () => {
    const { topic, copy, reader, stopped: stops } = stopped();
    topic.land(0, [bad]);
    topic.trim(0, 5);
    copy.expire(5, 7);
    reader.catchUp(0);
    expect(stops).toHaveLength(2);
    expect(copy.refusal?.message).toContain('at offset 6');
  });
});

describe('expiry', () => {
  it('forgets what the log no longer has, but not while the index is not known to be of this log', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    const { copy, reader } = follow(topic, index);
    copy.begin(topic.bounds(0));
    copy.expire(2);
    expect(heldAt(index, 'a')).toBe(0);
    reader.catchUp(0);
    copy.expire(2);
    expect(heldAt(index, 'a')).toBeUndefined();
  });

  it('restarts a restore when retention removed everything left to read, since nothing is delivered then', () => {
    const { topic, copy, reader, causes } = followedWorld({ entries: three });
    reader.poll(0, 1);
    topic.trim(0, 3);
    reader.catchUp(0);
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    expect(copy.expire(3)).toBe(false);
    reader.catchUp(0);
    expect(causes).toEqual(['the log now starts at offset 3, but 1 was expected']);
    expect(copy.refusal).toBeUndefined();
  });

  it('also restarts when it removed the last entry of an older index, which then cannot be recognised', () => {
    const { topic } = followedWorld({ entries: three });
    const { copy, reader, causes, index } = follow(topic, indexOf(topic));
    copy.begin(topic.bounds(0));
    topic.trim(0, 3);
    copy.expire(3);
    reader.catchUp(0);
    expect(causes).toHaveLength(1);
    expect([copy.refusal, heldAt(index, 'c'), index.horizon(0)]).toEqual([undefined, undefined, undefined]);
  });

  it('restarts a restore when the log lost its tail, which is never delivered', () => {
    const { topic, copy, reader, causes } = followedWorld({ entries: three });
    reader.poll(0, 1);
    topic.truncate(0, 1);
    reader.catchUp(0);
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    expect(copy.expire(0, 1)).toBe(false);
    reader.catchUp(0);
    expect(causes).toEqual(['the log now ends at offset 1, but ended at 3 before']);
    expect(copy.refusal).toBeUndefined();
  });

  it('continues a restore when retention removed only what was read', () => {
    const { topic, copy, reader, causes } = followedWorld({ entries: three });
    reader.poll(0, 2);
    topic.trim(0, 2);
    copy.expire(2);
    reader.catchUp(0);
    expect([causes, copy.refusal]).toEqual([[], undefined]);
  });

  it('restores a following partition when retention removed what it had not read yet', () => {
    const { topic, copy, reader, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [entry('d', { end: 3 }), entry('e', { end: 3 })]);
    topic.trim(0, 5);
    copy.expire(5);
    expect(causes).toEqual(['the log now starts at offset 5, but 3 was expected']);
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
  });

  it('keeps the copy when retention removed own entries that were settled, but not read', () => {
    const { topic, copy, reader, causes, index } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [entry('d', { end: 3 })]);
    index.apply(0, topic.read(0, 3));
    topic.trim(0, 4);
    copy.expire(4);
    expect([causes, copy.refusal, index.horizon(0)]).toEqual([[], undefined, 0]);
  });

  it('requests one restart, however often it runs', () => {
    const { topic, copy, reader, causes } = followedWorld({ entries: three });
    reader.poll(0, 1);
    topic.trim(0, 3);
    copy.expire(3);
    copy.expire(3);
    expect(causes).toHaveLength(1);
  });
});
