import { describe, expect, it } from 'vitest';
import { ADOPTION_HEADER, adoptionHeaders, REPLAY_HEADER, replayRecord } from '../../../src/codec/request-position.ts';
import { entry } from '../../support/memory-records.ts';
import { allIndexes, at, keyOf, marker, perTest, RUN } from './index-directory.ts';

describe.each(allIndexes(perTest()))('after a wipe, an index %s', (_, make) => {
  it('has no entries of the partition, and starts at the given offset', () => {
    const index = make();
    index.apply(0, [at(0, entry('a')), at(1, entry('b'))]);
    index.wipe(0, 50);
    const readings = [index.end(0), index.origin(0), index.through(0), index.last(0), index.placesOf(0, keyOf('a'))];
    expect(readings).toEqual([50, 50, 0, undefined, []]);
    index.apply(0, [at(50, entry('a', { end: 50 }))]);
    expect(index.placesOf(0, keyOf('a'))).toEqual([50]);
  });

  it('does not have the old entries, even if the log has the same offsets again', () => {
    const index = make();
    for (let offset = 0; offset < 40; offset += 1) index.apply(0, [at(offset, entry(`k${offset}`))]);
    index.wipe(0, 0);
    for (let offset = 0; offset < 40; offset += 1) index.apply(0, [at(offset, entry(`n${offset}`))]);
    expect([index.placesOf(0, keyOf('k7')), index.placesOf(0, keyOf('n7'))]).toEqual([[], [7]]);
  });

  it('counts as decided what was decided before', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 7 })), at(1, marker(9))]);
    index.wipe(0, 0);
    expect([index.through(0), index.horizon(0)]).toEqual([9, 9]);
    index.apply(0, [at(0, entry('a', { requestOffset: 7 })), at(1, entry('b', { requestOffset: 12, end: 1 }))]);
    expect([index.through(0), index.horizon(0)]).toEqual([12, 9]);
    index.wipe(0, 0);
    index.wipe(0, 0);
    expect(index.horizon(0)).toBe(12);
  });

  it('counts nothing from before as decided if that was disowned', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 7 })), at(1, marker(9))]);
    index.wipe(0, 0);
    index.apply(0, [at(0, entry('b', { requestOffset: 2 }))]);
    index.disown(0);
    expect(index.horizon(0), 'nothing is decided before the wipe').toBeUndefined();
    index.wipe(0, 0);
    expect([index.through(0), index.horizon(0), index.since(0)]).toEqual([-1, -1, 0]);
    index.apply(0, [at(0, entry('b', { requestOffset: 2 }))]);
    expect([index.through(0), index.horizon(0)]).toEqual([2, -1]);
  });

  it.each([
    ['an anchor that knows less', 52, 30, 40],
    ['an anchor that knows more', 52, 60, 60],
    ['an entry behind a gap', 55, 30, 40],
  ])('also counts it if the log has no head, once there is %s', (_, end, through, horizon) => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 40 }))]);
    index.wipe(0, 52);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(52, entry('b', { end, through }))]);
    expect(index.horizon(0)).toBe(horizon);
  });

  it('knows decisions since the first entry that it then reads, if it had any before', () => {
    const index = make();
    index.wipe(0, 0);
    expect(index.since(0)).toBe(0);
    index.apply(0, [at(0, entry('a', { requestOffset: 4 }))]);
    index.wipe(0, 0);
    expect(index.since(0)).toBeUndefined();
    index.apply(0, [at(0, entry('a', { requestOffset: 4 })), at(1, entry('b'))]);
    expect(index.since(0)).toBe(1_700_000_000_000);
  });
});

describe.each(allIndexes(perTest()))('the horizon of an index %s', (_, make) => {
  it('is -1, below every offset, over a whole log', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { end: 0, through: 7 }))]);
    expect(index.horizon(0)).toBe(-1);
  });

  it('is that of the first entry whose offset is its own `end`', () => {
    const index = make();
    index.wipe(0, 50);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(50, entry('a', { end: 48, through: 900 })), at(51, entry('b', { end: 50, through: 901 }))]);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(52, entry('c', { end: 52, through: 30 })), at(53, entry('d', { end: 53, through: 31 }))]);
    expect(index.horizon(0)).toBe(30);
  });

  it.each([
    ['a whole log', 0, 0],
    ['a log without a horizon', 8, 8],
  ])(
    'counts what was lost from %s as decided, as far as the writer of the entry after the gap knew it',
    (_, from, offset) => {
      const index = make();
      index.wipe(0, from);
      index.apply(0, [at(offset, entry('a', { end: offset + 5, through: 70 }))]);
      expect(index.horizon(0)).toBe(70);
      index.apply(0, [at(offset + 1, entry('b', { end: offset + 5, through: 60 }))]);
      expect(index.horizon(0)).toBe(70);
    },
  );
});

describe.each(allIndexes(perTest()))('behind an adoption, an index %s', (_, make) => {
  const adoption = (offset: number, through: number, place = offset) =>
    at(offset, { ...marker(through, offset + 1), headers: adoptionHeaders(place) });
  /** Entries of requests from 500 on. */
  const others = (count: number) =>
    Array.from({ length: count }, (_, i) => at(i, entry(`k${i}`, { requestOffset: 500 + i, end: i })));
  const knowledge = (index: ReturnType<typeof make>) => [index.through(0), index.horizon(0)];

  it('knows requests of the topic that there is now alone', () => {
    const index = make();
    index.apply(0, [...others(10), at(10, replayRecord(505, 10))]);
    index.apply(0, [adoption(11, 3)]);
    expect([...knowledge(index), index.answeredBelow(0), index.adoptedAt(0)]).toEqual([3, 3, 0, 11]);
    expect(index.placesOf(0, keyOf('k7')), 'what was decided is known').toEqual([7]);
  });

  it.each([
    ['in runs of their own', 11, 28, 12],
    ['in a run with later ones', 11, 60, 32],
    ['in runs that are being merged', 8 * RUN, 60, 8 * RUN],
  ])('goes by later entries when it forgets those from before, %s', (_, adopted, count, low) => {
    const index = make();
    for (const one of others(adopted)) index.apply(0, [one]);
    index.apply(0, [adoption(adopted, 3)]);
    for (let i = adopted + 1; i < count; i += 1)
      index.apply(0, [at(i, entry(`n${i}`, { requestOffset: i - adopted + 3, end: i }))]);
    while (index.expire(0, low)) {}
    expect(index.origin(0)).toBe(low);
    expect(index.horizon(0)).toBe(Math.max(3, low - 1 - adopted + 3));
  });

  it('knows what it did if the marker lies at another place, since something may have been decided before it', () => {
    const index = make();
    index.apply(0, [...others(10), adoption(10, 3, 9)]);
    expect([...knowledge(index), index.adoptedAt(0)]).toEqual([509, 3, -1]);
  });

  it('loses nothing to it when it is read again after a wipe, unless that was disowned', () => {
    const index = make();
    index.apply(0, [adoption(0, 3), at(1, entry('a', { requestOffset: 9, end: 1 }))]);
    index.wipe(0, 0);
    index.apply(0, [adoption(0, 3)]);
    expect(knowledge(index), 'the log may have lost the entry').toEqual([9, 9]);
    index.disown(0);
    index.wipe(0, 0);
    index.apply(0, [adoption(0, 3)]);
    expect(knowledge(index)).toEqual([3, 3]);
  });

  it('reads a malformed one as LEDGER_UNREADABLE, and none in a record with a key', () => {
    const index = make();
    const headers = { [ADOPTION_HEADER]: 'eleven' };
    index.apply(0, [at(0, { ...entry('a'), headers })]);
    const malformed = at(1, { ...marker(3), headers });
    expect(() => index.apply(0, [malformed])).toThrow(expect.objectContaining({ code: 'LEDGER_UNREADABLE' }));
    expect(index.end(0)).toBe(1);
  });
});

describe.each(allIndexes(perTest()))('what was answered before, in an index %s,', (_, make) => {
  const replay = (offset: number, below: number, place = offset) => at(offset, replayRecord(below, place));

  it('is nothing without a statement, and then what the last statement in log order says, even if that is less', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 7 })), at(1, marker(9))]);
    expect(index.answeredBelow(0)).toBe(0);
    index.apply(0, [replay(2, 40), at(3, entry('b', { requestOffset: 90, end: 3 }))]);
    expect([index.answeredBelow(0), index.answeredBelow(1)]).toEqual([40, 0]);
    index.apply(0, [replay(4, 50), replay(5, 0)]);
    expect(index.answeredBelow(0)).toBe(0);
    index.apply(0, [replay(6, 41)]);
    expect(index.answeredBelow(0)).toBe(41);
  });

  it('is not what a statement says that lies behind its place, since its append was made again and came late', () => {
    const index = make();
    index.apply(0, [replay(0, 40), replay(1, 50), replay(2, 40, 0), replay(3, 60, 4)]);
    expect(index.answeredBelow(0)).toBe(50);
  });

  it('stays known through a wipe, for the log may have lost the statement, and not when it was disowned', () => {
    const index = make();
    index.apply(0, [replay(0, 40)]);
    index.wipe(0, 0);
    index.wipe(0, 8);
    expect(index.answeredBelow(0)).toBe(40);
    index.disown(0);
    index.wipe(0, 0);
    expect(index.answeredBelow(0)).toBe(0);
  });

  it('is stated by a record without key alone, and one that is malformed is LEDGER_UNREADABLE', () => {
    const index = make();
    const headers = { [REPLAY_HEADER]: 'forty' };
    index.apply(0, [at(0, { ...entry('a'), headers })]);
    expect(index.answeredBelow(0)).toBe(0);
    const malformed = at(1, { ...marker(3), headers });
    expect(() => index.apply(0, [malformed])).toThrow(expect.objectContaining({ code: 'LEDGER_UNREADABLE' }));
    expect(index.end(0)).toBe(1);
  });
});
