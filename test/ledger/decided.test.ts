import { describe, expect, it, vi } from 'vitest';
import { encodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { EntryKey } from '../../src/codec/ledger-key.ts';
import { adoptionHeaders } from '../../src/codec/request-position.ts';
import { IdallocError } from '../../src/errors.ts';
import { type DecidedDeps, FORGOTTEN, readAhead, readDecided } from '../../src/ledger/decided.ts';
import type { LedgerEntries } from '../../src/ledger/ledger-ports.ts';
import { followedWorld } from '../support/memory-copy.ts';
import { MemoryLedger } from '../support/memory-ledger.ts';
import { entry, request } from '../support/memory-records.ts';
import { gist, MemoryWorker } from '../support/memory-worker.ts';

const key = (id: string) => entry(id).key;
const named = (id: string) => ({ key: EntryKey.of(key(id)) });
const nameOf = (id: string) => named(id).key.name;

/** A partition that was read to its end. */
function world(ids: readonly string[]) {
  const at = followedWorld({ entries: ids.map((id, i) => entry(id, { first: BigInt(100 * i), end: i })) });
  at.reader.catchUp(0);
  const deps: DecidedDeps = { index: at.index, copy: at.copy, entries: at.topic.entries, monotonicMs: () => 0 };
  const decided = async (id: string, over: Partial<typeof deps> = {}) => {
    const found = (await readDecided({ ...deps, ...over }, [named(id)])).get(nameOf(id));
    if (found === undefined || found === FORGOTTEN) return found;
    return Number(found.entry.kind === 'batch' ? found.entry.batch.ranges[0]?.first : found.entry.first);
  };
  return { ...at, deps, decided };
}

describe('what is decided for a key', () => {
  it('is the batch of its first entry', async () => {
    const { decided } = world(['a', 'b', 'a']);
    expect([await decided('a'), await decided('b')]).toEqual([0, 100]);
  });

  it('is nothing, without reading the ledger, when the index has no entry with its hash', async () => {
    const entries: LedgerEntries = { read: () => Promise.reject(new Error('read')) };
    expect(await world(['a']).decided('b', { entries })).toBeUndefined();
  });

  it('is read once for equal keys', async () => {
    const { topic, deps } = world(['a', 'b']);
    const read = vi.fn<LedgerEntries['read']>((...asked) => topic.entries.read(...asked));
    const found = await readDecided({ ...deps, entries: { read } }, ['a', 'b', 'a', 'a'].map(named));
    expect([read.mock.calls, [...found.keys()]]).toEqual([[[0, [0, 1]]], [nameOf('a'), nameOf('b')]]);
  });

  it('is read from the first and the last entry of its key alone, if both count', async () => {
    const { topic, deps, decided } = world(['a', 'a', 'a', 'b', 'a']);
    const read = vi.fn<LedgerEntries['read']>((...asked) => topic.entries.read(...asked));
    const entries = { read };
    expect(await decided('a', { entries })).toBe(0);
    expect(read.mock.calls).toEqual([[0, [0, 4]]]);
    const found = await readDecided(deps, [named('a')]);
    expect(found.get(nameOf('a'))).toMatchObject({ offset: 0, entries: 4 });
  });

  it('is read from all entries of its key when the first one is gone or the last one lost', async () => {
    const { topic, reader, deps, decided } = world(['a', 'a', 'a']);
    topic.land(0, [entry('a', { end: 1, requestOffset: 9 })]);
    reader.catchUp(0);
    const before = (await readDecided(deps, [named('a')])).get(nameOf('a'));
    expect(before).toMatchObject({ offset: 0, through: 0 });
    topic.trim(0, 1);
    expect(await decided('a')).toBe(100);
    const three = world(['a', 'a', 'a']);
    three.topic.trim(0, 1);
    expect(await three.decided('a')).toBe(100);
  });

  it('covers no more requests than the horizon if it lies before an adoption, which begins request offsets anew', async () => {
    const { topic, reader, deps } = world(['a', 'b']);
    topic.land(0, [{ ...entry('a', { end: 2, requestOffset: 900 }) }]);
    reader.catchUp(0);
    const through = async () => (await readDecided(deps, [named('a')])).get(nameOf('a'));
    expect(await through()).toMatchObject({ through: 900 });
    const value = encodeLedgerEntry({ kind: 'marker', end: 4, through: 5 });
    topic.land(0, [{ key: null, value, headers: adoptionHeaders(3) }]);
    reader.catchUp(0);
    expect(await through()).toMatchObject({ through: 5 });
    topic.land(0, [entry('a', { end: 4, requestOffset: 12 })]);
    reader.catchUp(0);
    expect(await through()).toMatchObject({ through: 12 });
  });

  it('is not mixed up with that of another key with the same hash', async () => {
    const { index, decided } = world(['a', 'b']);
    vi.spyOn(index, 'placesAt').mockReturnValue([0, 1]);
    expect([await decided('b'), await decided('c')]).toEqual([100, undefined]);
  });

  it('is FORGOTTEN once retention has removed the entry', async () => {
    const { topic, decided } = world(['a', 'b']);
    topic.trim(0, 1);
    expect([await decided('a'), await decided('b')]).toEqual([FORGOTTEN, 100]);
  });

  it('is FORGOTTEN when its writer had not read up to the origin of the index', async () => {
    const { topic, reader, index, decided } = world(['a', 'b']);
    topic.land(0, [entry('c', { end: 1 })]);
    reader.catchUp(0);
    vi.spyOn(index, 'origin').mockReturnValue(2);
    expect(await decided('c')).toBe(FORGOTTEN);
  });

  it('is unknown, and the partition is restored, when the log ends before the entry', async () => {
    const at = world(['a', 'b']);
    const shorter = new IdallocError('LEDGER_TRUNCATED', 'the log lacks offset 0');
    const entries: LedgerEntries = { read: () => Promise.reject(shorter) };
    await expect(at.decided('a', { entries })).rejects.toBe(shorter);
    expect(at.causes).toEqual(['the log lacks offset 0']);
  });

  it('is unknown, and the partition is restored, when the log has an entry of another hash at its offset', async () => {
    const at = world(['a', 'b']);
    at.topic.truncate(0, 0);
    at.topic.land(0, [entry('x'), entry('y')]);
    await expect(at.decided('a')).rejects.toMatchObject({ code: 'LEDGER_TRUNCATED' });
    expect(at.causes).toEqual([expect.stringContaining('offset 0')]);
  });

  it.each([
    ['is to be restored still', () => {}, /being restored/],
    ['is restored', ({ reader }: ReturnType<typeof world>) => reader.catchUp(0), /while it was read/],
  ])('is unknown when the partition is invalidated meanwhile and %s', async (_, then, message) => {
    const at = world(['a', 'b']);
    const read: LedgerEntries['read'] = async (partition, offsets) => {
      at.copy.invalidate('it is another log');
      then(at);
      return at.topic.entries.read(partition, offsets);
    };
    await expect(at.decided('a', { entries: { read } })).rejects.toMatchObject({
      code: 'INDEX_RESTORING',
      message: expect.stringMatching(message),
    });
  });

  it('stops the partition when a marker has a key', async () => {
    const at = world(['a']);
    const found = { ...(at.topic.read(0, 0)[0] as object), value: null } as never;
    const entries: LedgerEntries = { read: async () => new Map([[0, found]]) };
    await expect(at.decided('a', { entries })).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
  });
});

describe('what is read before the turn', () => {
  /** Reads ahead for some keys; what is read afterwards shows in `read`. */
  async function aheadOf(ids: readonly string[], keyed: readonly string[]) {
    const at = world(ids);
    let nowMs = 0;
    const read = vi.fn<LedgerEntries['read']>((...asked) => at.topic.entries.read(...asked));
    const deps = { ...at.deps, entries: { read }, monotonicMs: () => nowMs };
    const ahead = await readAhead(deps, keyed.map(named));
    read.mockClear();
    const pass = (ms: number) => {
      nowMs += ms;
    };
    const offsets = async () => {
      const found = await readDecided(deps, keyed.map(named), [], ahead);
      return [...found.values()].map((one) => (one === FORGOTTEN ? one : one.offset));
    };
    return { ...at, deps, ahead, read, offsets, pass };
  }

  it('is not read again in it, if the index names the same places', async () => {
    const { offsets, read } = await aheadOf(['a', 'b', 'a', 'c'], ['a', 'c', 'd']);
    expect([await offsets(), read.mock.calls]).toEqual([[0, 3], []]);
  });

  it('is nothing when no key is known, or the copy is being restored', async () => {
    expect((await aheadOf(['a'], ['b'])).ahead.found.size).toBe(0);
    const { copy, deps } = world(['a']);
    copy.invalidate('it is another log');
    expect((await readAhead(deps, [named('a')])).found.size).toBe(0);
  });

  it('is completed in it by what was decided meanwhile', async () => {
    const { topic, reader, offsets, read } = await aheadOf(['a'], ['a', 'b']);
    topic.land(0, [entry('b', { end: 1 })]);
    reader.catchUp(0);
    expect([await offsets(), read.mock.calls]).toEqual([[0, 1], [[0, [1]]]]);
  });

  it('is used for less than a second, since retention may delete it', async () => {
    const { topic, pass, offsets } = await aheadOf(['a', 'b'], ['a']);
    topic.trim(0, 1);
    pass(999);
    expect(await offsets()).toEqual([0]);
    pass(1);
    expect(await offsets()).toEqual([FORGOTTEN]);
  });

  it('is not used once the copy was restored', async () => {
    const { copy, reader, topic, offsets, read } = await aheadOf(['a'], ['a']);
    topic.truncate(0, 0);
    topic.land(0, [entry('a', { first: 900n })]);
    copy.invalidate('it is another log');
    reader.catchUp(0);
    expect([await offsets(), read.mock.calls]).toEqual([[0], [[0, [0]]]]);
  });

  it('does not restore the copy again when the log ends before an entry of its last life', async () => {
    const at = world(['a']);
    const read: LedgerEntries['read'] = async () => {
      at.copy.invalidate('it is another log');
      throw new IdallocError('LEDGER_TRUNCATED', 'the log lacks offset 0');
    };
    await expect(readAhead({ ...at.deps, entries: { read } }, [named('a')])).rejects.toThrow('the log lacks offset 0');
    expect(at.causes).toEqual(['it is another log']);
  });

  it('holds up no other part of the partition', async () => {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    const before = new MemoryWorker({ topic });
    await before.serve([request(0, 'a')]);
    const [asked, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const read: LedgerEntries['read'] = async (...its) => {
      asked.resolve();
      await answer.promise;
      return topic.entries.read(...its);
    };
    const worker = new MemoryWorker({ topic, workerId: 1, entries: { read } });
    await worker.serve([request(1, 'b')]); // so that its marker is written
    const known = worker.serve([request(2, 'a')]);
    await asked.promise;
    await worker.serve([request(3, 'c')]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['b', 'c']);
    answer.resolve();
    await known;
    expect(gist(worker.replies()[2] as never)).toBe(gist(before.replies()[0] as never));
  });
});

describe('requests while the ledger does not answer', () => {
  it('are not served, known or unknown, until it does', async () => {
    const topic = new MemoryLedger(1, () => 1_700_000_000_000);
    const worker = new MemoryWorker({ topic });
    await worker.serve([request(0, 'a')]);
    const fault = new IdallocError('LEDGER_UNANSWERED', 'no answer');
    let isAway = true;
    const away = new MemoryWorker({
      topic,
      workerId: 1,
      entries: { read: (...asked) => (isAway ? Promise.reject(fault) : topic.entries.read(...asked)) },
    });
    await expect(away.serve([request(1, 'a'), request(2, 'b')])).rejects.toBe(fault);
    expect(away.allocator.asked).toEqual([]);
    isAway = false;
    await away.serve([request(1, 'a'), request(2, 'b')]);
    expect(away.replies().map(gist)).toEqual([gist(worker.replies()[0] as never), expect.stringMatching(/^\d+\+1$/)]);
  });
});
