import { describe, expect, it } from 'vitest';
import { digestEntry } from '../../../src/codec/ledger-digest.ts';
import { encodeLedgerKey } from '../../../src/codec/ledger-entry.ts';
import { at, bothIndexes, keyOf, marker, perTest } from '../../support/index-directory.ts';
import { entry, offsetOf } from '../../support/memory-records.ts';

describe.each(bothIndexes(perTest()))('an index %s', (_, make) => {
  it('knows nothing at first', () => {
    const index = make();
    expect([index.end(0), index.through(0), index.last(0), index.lookUp(0, keyOf('a'))]).toEqual([
      0,
      -1,
      undefined,
      undefined,
    ]);
  });

  it('gives the first entry of a key, as it was written', () => {
    const index = make();
    const first = entry('a', { first: 1n });
    index.apply(0, [at(0, first), at(1, entry('a', { first: 2n })), at(2, entry('b'))]);
    index.apply(0, [at(3, entry('a', { first: 3n }))]);
    expect(index.lookUp(0, keyOf('a'))).toEqual({ offset: 0, value: first.value, appendedAtMs: 1_700_000_000_000 });
    expect(index.lookUp(0, keyOf('b'))).toMatchObject({ offset: 2 });
    expect(index.end(0)).toBe(4);
  });

  it('tells which entries were the first of their key', () => {
    const index = make();
    const records = [at(0, entry('a')), at(1, entry('a')), at(2, entry('b')), at(3, marker(5))];
    index.apply(0, records);
    expect(index.firsts(0, records)).toEqual(new Set([0, 2]));
    const later = [at(4, entry('b')), at(5, entry('c'))];
    index.apply(0, later);
    expect(index.firsts(0, later)).toEqual(new Set([5]));
  });

  it('does not take an entry for the first of its key when an earlier one may be gone', () => {
    const index = make();
    index.wipe(0, 8);
    const records = [at(8, entry('a', { end: 7 })), at(9, entry('b', { end: 8 }))];
    index.apply(0, records);
    expect(index.firsts(0, records)).toEqual(new Set([9]));
  });

  it('skips entries below its end', () => {
    const index = make();
    index.apply(0, [at(0, entry('a')), at(1, entry('b'))]);
    index.apply(0, [at(0, entry('x')), at(1, entry('y')), at(2, entry('z'))]);
    expect(['x', 'y', 'z'].map((id) => offsetOf(index.lookUp(0, keyOf(id))))).toEqual([undefined, undefined, 2]);
  });

  it('applies nothing of a delivery that has a bad entry, and goes on after it', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 7 }))]);
    const before = [index.end(0), index.through(0), index.last(0)];
    const good = [at(1, entry('b', { requestOffset: 9 })), at(2, entry('c'))];
    for (const bad of [
      { key: keyOf('x'), value: null },
      { key: null, value: entry('x').value },
      { key: keyOf('x'), value: Buffer.from('junk') },
    ]) {
      expect(() => index.apply(0, [...good, at(3, bad)])).toThrow(
        expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
      );
      expect([index.end(0), index.through(0), index.last(0)]).toEqual(before);
      expect(index.lookUp(0, keyOf('b'))).toBeUndefined();
    }
    index.apply(0, good);
    expect([index.end(0), index.through(0), offsetOf(index.lookUp(0, keyOf('b')))]).toEqual([3, 9, 1]);
  });

  it('refuses a hole, before its end and within a delivery, and stays as it was', () => {
    const index = make();
    index.apply(0, [at(0, entry('a'))]);
    for (const records of [[at(2, entry('b'))], [at(1, entry('b')), at(3, entry('c'))]]) {
      expect(() => index.apply(0, records)).toThrow(expect.objectContaining({ code: 'LEDGER_TRUNCATED' }));
      expect([index.end(0), index.lookUp(0, keyOf('b'))]).toEqual([1, undefined]);
    }
  });

  it('remembers the highest request offset, whatever the order, of markers too', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 9 })), at(1, entry('b', { requestOffset: 4 }))]);
    expect(index.through(0)).toBe(9);
    index.apply(0, [at(2, entry('a', { requestOffset: 11 }))]);
    expect(index.through(0)).toBe(11);
    index.apply(0, [at(3, marker(40))]);
    expect(index.through(0)).toBe(40);
  });

  it('recognises its last entry by digest, be it a first, a later one or a marker', () => {
    const index = make();
    const records = [at(0, entry('a')), at(1, entry('a', { first: 2n })), at(2, marker(1))];
    for (const record of records) {
      index.apply(0, [record]);
      expect(index.last(0)).toEqual({ offset: record.offset, digest: digestEntry(record) });
    }
  });

  it('keeps partitions apart', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { first: 1n }))]);
    index.apply(1, [at(0, entry('b')), at(1, entry('a', { first: 2n }))]);
    expect([offsetOf(index.lookUp(0, keyOf('a'))), offsetOf(index.lookUp(1, keyOf('a')))]).toEqual([0, 1]);
    index.wipe(1, 0);
    expect([offsetOf(index.lookUp(0, keyOf('a'))), index.lookUp(1, keyOf('a'))]).toEqual([0, undefined]);
  });

  it('forgets all entries of a partition, and begins where it is told', () => {
    const index = make();
    index.apply(0, [at(0, entry('a')), at(1, entry('b'))]);
    index.wipe(0, 50);
    expect([index.end(0), index.through(0), index.last(0), index.lookUp(0, keyOf('a'))]).toEqual([
      50,
      0,
      undefined,
      undefined,
    ]);
    index.apply(0, [at(50, entry('a', { end: 50 }))]);
    expect(index.lookUp(0, keyOf('a'))).toMatchObject({ offset: 50 });
  });

  it('counts as decided, after a wipe, what it knew to be', () => {
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

  it.each([
    ['an anchor that knows less', 52, 30, 40],
    ['an anchor that knows more', 52, 60, 60],
    ['an entry behind a gap', 55, 30, 40],
  ])('counts it as well where the log has no head, once there is %s', (_, end, through, horizon) => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 40 }))]);
    index.wipe(0, 52);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(52, entry('b', { end, through }))]);
    expect(index.horizon(0)).toBe(horizon);
  });

  it('forgets a key whose first entry may have gone with the head of the log', () => {
    const index = make();
    index.wipe(0, 50);
    index.apply(0, [at(50, entry('a', { end: 49 })), at(51, entry('b', { end: 50 })), at(52, entry('a', { end: 52 }))]);
    expect([index.lookUp(0, keyOf('a')), offsetOf(index.lookUp(0, keyOf('b')))]).toEqual(['forgotten', 51]);
  });

  it('has no horizon over a whole log', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { end: 0, through: 7 }))]);
    expect(index.horizon(0)).toBe(-1);
  });

  it('takes its horizon from the first entry that lies at its own end', () => {
    const index = make();
    index.wipe(0, 50);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(50, entry('a', { end: 48, through: 900 })), at(51, entry('b', { end: 50, through: 901 }))]);
    expect(index.horizon(0)).toBeUndefined();
    index.apply(0, [at(52, entry('c', { end: 52, through: 30 })), at(53, entry('d', { end: 53, through: 31 }))]);
    expect(index.horizon(0)).toBe(30);
  });

  it("counts what an entry's writer knew among the request offsets that it tells of", () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 3, through: 12 }))]);
    expect(index.through(0)).toBe(12);
  });

  it('takes any bytes for a key', () => {
    const index = make();
    const ids = ['\u0000', '\u0000\u0000', '\u00ff\u00fe', "'; DROP TABLE entry_0; --", 'x'.repeat(256)];
    const keys = ids.map((id) => encodeLedgerKey(Buffer.from(id, 'latin1')));
    index.apply(
      0,
      keys.map((key, offset) => at(offset, { key, value: entry('a').value })),
    );
    expect(keys.map((key) => offsetOf(index.lookUp(0, key)))).toEqual([0, 1, 2, 3, 4]);
  });

  it('tells of the last entry whose writer had read a longer log, and of none that is at its place', () => {
    const index = make();
    expect(index.apply(0, [at(0, entry('a', { end: 0 })), at(1, entry('b', { end: 0 }))])).toEqual({});
    const lossy = [at(2, entry('c', { end: 3 })), at(3, entry('d', { end: 9 })), at(4, entry('e', { end: 4 }))];
    expect(index.apply(0, lossy)).toEqual({ lossAt: 3 });
  });

  it.each([
    ['a whole log', 0, 0],
    ['a log without a horizon', 8, 8],
  ])('counts what was lost from %s as decided, as far as the entry behind the gap knew of it', (_, from, offset) => {
    const index = make();
    index.wipe(0, from);
    index.apply(0, [at(offset, entry('a', { end: offset + 5, through: 70 }))]);
    expect(index.horizon(0)).toBe(70);
    index.apply(0, [at(offset + 1, entry('b', { end: offset + 5, through: 60 }))]);
    expect(index.horizon(0)).toBe(70);
  });
});
