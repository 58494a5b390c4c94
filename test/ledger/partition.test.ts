import { describe, expect, it } from 'vitest';
import { encodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { follow, followedWorld, heldAt, indexOf, three } from '../support/memory-copy.ts';
import { type LedgerDraft, MemoryLedger } from '../support/memory-ledger.ts';
import { entry } from '../support/memory-records.ts';

describe('restoring', () => {
  it('refuses with INDEX_RESTORING before it has started, and up to the end that the log had then', () => {
    const { topic, copy, reader, index } = followedWorld({ entries: three });
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    reader.poll(0, 2);
    topic.land(0, [entry('d')]);
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    expect(copy.progress).toEqual({ state: 'restoring', isRecognised: true, low: 0, end: 2, logEnd: 3 });
    reader.poll(0, 1);
    expect(index.end(0)).toBe(3);
    expect(copy.refusal).toBeUndefined();
    expect(copy.progress).toEqual({ state: 'following', isRecognised: true, low: 0, end: 3, logEnd: 3 });
  });

  it('completes immediately for an empty partition', () => {
    const { copy, reader } = followedWorld();
    reader.poll(0);
    expect(copy.refusal).toBeUndefined();
  });

  it('starts at the first entry that retention left when nothing is known', () => {
    const { topic, copy, reader, index } = followedWorld({
      entries: [entry('a'), entry('b'), entry('c', { end: 2 })],
    });
    topic.trim(0, 2);
    reader.catchUp(0);
    expect(copy.refusal).toBeUndefined();
    expect([heldAt(index, 'b'), heldAt(index, 'c')]).toEqual([undefined, 2]);
  });

  it('reports once that a partition has caught up', () => {
    const { topic, reader, changes } = followedWorld({ entries: three });
    reader.poll(0, 2);
    expect(changes()).toBe(0);
    reader.poll(0, 1);
    expect(changes()).toBeGreaterThan(0);
    topic.land(0, [entry('d')]);
    reader.catchUp(0);
    expect(changes()).toBeGreaterThan(0);
  });
});

describe('a reader that takes over from another', () => {
  it('must find the last entry again, and reports when it has', () => {
    const { topic, copy, reader, changes } = followedWorld({ entries: three });
    reader.catchUp(0);
    const before = changes();
    reader.restart(0);
    copy.begin(topic.bounds(0));
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    reader.catchUp(0);
    expect(copy.refusal).toBeUndefined();
    expect(changes()).toBeGreaterThan(before);
  });
});

describe('an existing index', () => {
  it('continues at its last entry and applies only what is new', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.land(0, [entry('d'), entry('a', { first: 5n })]);
    const { copy, reader, causes } = follow(topic, index);
    expect(copy.begin(topic.bounds(0))).toBe(2);
    reader.catchUp(0);
    expect(causes).toEqual([]);
    expect([heldAt(index, 'a'), heldAt(index, 'd'), index.end(0)]).toEqual([0, 3, 5]);
  });

  it('is not queried before its last entry was recognised, even if the log ends where it does', () => {
    const { topic } = followedWorld({ entries: three });
    const { copy, reader, changes } = follow(topic, indexOf(topic));
    copy.begin(topic.bounds(0));
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    expect(changes()).toBe(0);
    reader.catchUp(0);
    expect(copy.refusal).toBeUndefined();
    expect(changes()).toBeGreaterThan(0);
  });

  it('is invalidated, and the reason reported, when the log ends below its end', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.truncate(0, 1);
    const { copy, reader, causes } = follow(topic, index);
    const life = copy.life;
    reader.catchUp(0);
    expect(causes).toEqual(['the log spans 0 to 1 now, but was read up to 3']);
    expect(copy.life).toBeGreaterThan(life);
    expect([copy.refusal, index.end(0)]).toEqual([undefined, 1]);
  });

  it('is invalidated when the log was recreated and ends in the same marker', () => {
    let nowMs = 1_700_000_000_000;
    const topic = new MemoryLedger(1, () => nowMs++);
    const clockMarker = { key: null, value: encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 }) };
    topic.land(0, [...three, clockMarker]);
    const index = indexOf(topic);
    topic.truncate(0, 0);
    topic.land(0, [entry('x'), entry('y'), entry('z'), clockMarker]);
    const { reader, causes } = follow(topic, index);
    reader.catchUp(0);
    expect([causes.length, heldAt(index, 'a'), heldAt(index, 'x')]).toEqual([1, undefined, 0]);
  });

  it('is invalidated and restored when another entry is at the offset of its last one', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.truncate(0, 0);
    topic.land(0, [entry('x'), entry('b'), entry('c', { first: 1n }), entry('y')]);
    const { copy, reader, causes } = follow(topic, index);
    reader.poll(0);
    expect(causes).toEqual([expect.stringContaining('offset 2')]);
    expect(copy.refusal).toMatchObject({ code: 'INDEX_RESTORING' });
    reader.catchUp(0);
    expect(copy.refusal).toBeUndefined();
    expect([heldAt(index, 'a'), heldAt(index, 'x'), index.end(0)]).toEqual([undefined, 0, 4]);
  });

  it('is restored when the log ends before it', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.truncate(0, 1);
    const { reader } = follow(topic, index);
    reader.catchUp(0);
    expect([heldAt(index, 'a'), heldAt(index, 'b'), index.end(0)]).toEqual([0, undefined, 1]);
  });

  it('is restored when retention has overtaken it', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.land(0, [entry('d', { end: 3 }), entry('e', { end: 4 }), entry('f', { end: 4 })]);
    topic.trim(0, 4);
    const { reader } = follow(topic, index);
    reader.catchUp(0);
    expect([heldAt(index, 'c'), heldAt(index, 'e'), index.end(0)]).toEqual([undefined, 4, 6]);
  });

  it('is kept when retention removed everything that it has read, since it lacks nothing', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.land(0, [entry('d', { end: 3 })]);
    topic.trim(0, 3);
    const { reader, copy } = follow(topic, index);
    reader.catchUp(0);
    expect([heldAt(index, 'c'), heldAt(index, 'd'), copy.refusal]).toEqual([2, 3, undefined]);
  });

  it('is kept when retention left nothing at all', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.trim(0, 3);
    const { reader, copy } = follow(topic, index);
    reader.poll(0);
    expect([heldAt(index, 'c'), copy.refusal]).toEqual([2, undefined]);
  });

  it('is restored when retention removed more than it has read', () => {
    const { topic } = followedWorld({ entries: three });
    const index = indexOf(topic);
    topic.land(0, [entry('d'), entry('e', { end: 4 })]);
    topic.trim(0, 4);
    const { reader } = follow(topic, index);
    reader.catchUp(0);
    expect([heldAt(index, 'c'), heldAt(index, 'e')]).toEqual([undefined, 4]);
  });
});

describe('following', () => {
  it('skips what was settled before it was read', () => {
    const { topic, reader, index, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [entry('d')]);
    index.apply(0, topic.read(0, 3));
    topic.land(0, [entry('e')]);
    reader.catchUp(0);
    expect([heldAt(index, 'd'), heldAt(index, 'e'), causes]).toEqual([3, 4, []]);
  });

  it('needs nothing below the entry that was settled last, and recognises the log by that one', async () => {
    const { topic, copy, reader, index, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [entry('d'), entry('e')]);
    index.apply(0, topic.read(0, 3));
    expect(await copy.neededFrom()).toBe(4);
    topic.land(0, [entry('f')]);
    copy.deliver(topic.read(0, 4), 4);
    expect([heldAt(index, 'f'), causes]).toEqual([5, []]);
    topic.land(0, [entry('g'), entry('h')]);
    index.apply(0, topic.read(0, 6));
    topic.truncate(0, 7);
    topic.land(0, [entry('z')]);
    copy.deliver(topic.read(0, 7), 7);
    expect(causes).toEqual([expect.stringContaining('offset 7 differs from the one that was applied')]);
  });

  it('invalidates a log in which reading skips an entry', () => {
    const { topic, copy, reader, causes, index } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [entry('d'), entry('e')]);
    copy.deliver(topic.read(0, 4));
    expect(causes).toEqual([expect.stringContaining('offset 4, but 3 was expected')]);
    expect(index.end(0)).toBe(3);
    reader.catchUp(0);
    expect(index.end(0)).toBe(5);
  });

  it('invalidates a log in which reading falls back to the start', () => {
    const { topic, reader, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.truncate(0, 1);
    reader.poll(0);
    expect(causes).toEqual([expect.stringContaining('offset 0, but 3 was expected')]);
  });

  it('accepts nothing while it waits for its restart', () => {
    const { topic, copy, reader, index, causes } = followedWorld({ entries: three });
    reader.catchUp(0);
    copy.invalidate('for a test');
    topic.land(0, [entry('d')]);
    copy.deliver(topic.read(0, 3));
    expect(index.end(0)).toBe(3);
    copy.invalidate('again');
    expect(causes).toEqual(['for a test']);
  });

  it('reads its last entry again after a restart, and recognises it', () => {
    const { topic, copy, reader, causes, index } = followedWorld({ entries: three });
    reader.catchUp(0);
    topic.land(0, [entry('d')]);
    reader.restart(0);
    reader.catchUp(0);
    expect([causes, index.end(0), copy.refusal]).toEqual([[], 4, undefined]);
    topic.truncate(0, 3);
    topic.land(0, [entry('z')]);
    reader.restart(0);
    reader.poll(0);
    expect(causes).toHaveLength(1);
  });
});

describe('an unreadable entry', () => {
  const foreign: readonly (readonly [string, LedgerDraft])[] = [
    ['no value', { key: entry('x').key, value: null }],
    ['bytes of another program', { key: entry('x').key, value: Buffer.from('hello') }],
    ['a later format', { key: entry('x').key, value: Buffer.concat([entry('x').value, Buffer.from([0])]) }],
    ['a batch without a key', { key: null, value: entry('x').value }],
  ];

  it.each(foreign)('stops the partition: %s', (_, bad) => {
    const { topic, copy, reader, index, stopped } = followedWorld({ entries: [...three, bad, entry('d')] });
    reader.catchUp(0);
    expect(copy.refusal).toMatchObject({ code: 'LEDGER_UNREADABLE' });
    topic.land(0, [entry('e')]);
    reader.catchUp(0);
    expect(copy.refusal).toMatchObject({ code: 'LEDGER_UNREADABLE' });
    expect(stopped).toEqual([[0, 'LEDGER_UNREADABLE']]);
    expect(heldAt(index, 'd')).toBeUndefined();
  });

  it('that the reader could not decode stops the partition with the reason', async () => {
    const { topic, copy, reader, index, changes } = followedWorld({ entries: three });
    reader.catchUp(0);
    const reached = expect(copy.reached(4)).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
    const before = changes();
    copy.unreadable({ offset: 3, why: 'a zstd batch is damaged' });
    await reached;
    const message = expect.stringContaining('a zstd batch is damaged');
    expect(copy.refusal).toMatchObject({ code: 'LEDGER_UNREADABLE', message });
    expect(changes()).toBeGreaterThan(before);
    topic.land(0, [entry('d')]);
    reader.catchUp(0);
    expect(heldAt(index, 'd')).toBeUndefined();
  });

  it('is ignored in a partition that must be restored', () => {
    const { copy, reader } = followedWorld({ entries: three });
    reader.catchUp(0);
    copy.invalidate('it was another log');
    copy.unreadable({ offset: 3, why: 'a zstd batch is damaged' });
    reader.catchUp(0);
    expect(copy.refusal).toBeUndefined();
  });

  it('rejects callers that wait for the entries after it', async () => {
    const { topic, copy, reader } = followedWorld({ entries: three });
    reader.catchUp(0);
    const reached = expect(copy.reached(5)).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
    topic.land(0, [{ key: null, value: null }, entry('d')]);
    reader.catchUp(0);
    await reached;
    await expect(copy.reached(5)).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
  });
});

describe('a marker', () => {
  it('needs no key, decides nothing, and raises the highest request offset', () => {
    const marker = { key: null, value: encodeLedgerEntry({ kind: 'marker', end: 3, through: 500 }) };
    const { index, reader, copy } = followedWorld({ entries: [...three, marker] });
    reader.catchUp(0);
    expect([index.end(0), index.through(0), copy.refusal]).toEqual([4, 500, undefined]);
  });
});

describe('reached', () => {
  it('resolves when the offset is applied, immediately if it already is', async () => {
    const { topic, copy, reader, timers } = followedWorld({ entries: three });
    reader.catchUp(0);
    await copy.reached(3);
    const seen: string[] = [];
    const reached = copy.reached(5).then(() => seen.push('reached'));
    topic.land(0, [entry('d')]);
    reader.catchUp(0);
    await Promise.resolve();
    expect(seen).toEqual([]);
    topic.land(0, [entry('e')]);
    reader.catchUp(0);
    await reached;
    expect(timers.pending).toBe(0);
  });

  it('times out, and leaves nothing behind', async () => {
    const { copy, reader, timers } = followedWorld({ entries: three });
    reader.catchUp(0);
    const reached = expect(copy.reached(9)).rejects.toMatchObject({
      code: 'INDEX_RESTORING',
      message: expect.stringContaining('only up to offset 3, not 9'),
    });
    timers.fire();
    await reached;
    expect(timers.pending).toBe(0);
  });

  it('rejects with LEDGER_TRUNCATED when the log is found to have lost entries', async () => {
    const { copy, reader } = followedWorld({ entries: three });
    reader.catchUp(0);
    const reached = expect(copy.reached(9)).rejects.toMatchObject({ code: 'LEDGER_TRUNCATED' });
    copy.invalidate('for a test');
    await reached;
  });
});
