import { describe, expect, it } from 'vitest';
import { digestEntry, encodeLedgerKey } from '../../../src/codec/ledger-key.ts';
import { RENEWAL } from '../../../src/codec/sequence-entry.ts';
import { UNSTATED } from '../../../src/core/sequence-row.ts';
import type { LedgerIndex, LedgerRecord } from '../../../src/ledger/ledger-ports.ts';
import { entry, numbers, statement } from '../../support/memory-records.ts';
import { allIndexes, at, keyOf, marker, perTest } from './index-directory.ts';

/** Applies them; returns which are the first of their keys. */
function firstsOf(index: LedgerIndex, records: readonly LedgerRecord[]): ReadonlySet<number> {
  const firsts = new Set<number>();
  index.apply(0, records, firsts);
  return firsts;
}

describe.each(allIndexes(perTest()))('an index %s', (_, make) => {
  it('is empty at first', () => {
    const index = make();
    const readings = [index.end(0), index.origin(0), index.through(0), index.horizon(0), index.since(0), index.last(0)];
    expect(readings).toEqual([0, 0, -1, -1, 0, undefined]);
    expect(index.placesOf(0, keyOf('a'))).toEqual([]);
  });

  it('returns the offsets of all entries of a key, in log order', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { first: 1n })), at(1, entry('a', { first: 2n })), at(2, entry('b'))]);
    index.apply(0, [at(3, entry('a', { first: 3n }))]);
    expect([index.placesOf(0, keyOf('a')), index.placesOf(0, keyOf('b'))]).toEqual([[0, 1, 3], [2]]);
    expect(index.end(0)).toBe(4);
  });

  it('returns which entries were the first of their key', () => {
    const index = make();
    const records = [at(0, entry('a')), at(1, entry('a')), at(2, entry('b')), at(3, marker(5))];
    expect(firstsOf(index, records)).toEqual(new Set([0, 2]));
    expect(firstsOf(index, [at(4, entry('b')), at(5, entry('c'))])).toEqual(new Set([5]));
  });

  it('does not count an entry as the first of its key when an earlier one may be gone', () => {
    const index = make();
    index.wipe(0, 8);
    const records = [at(8, entry('a', { end: 7 })), at(9, entry('b', { end: 8 }))];
    expect(firstsOf(index, records)).toEqual(new Set([9]));
    expect(index.placesOf(0, keyOf('a'))).toEqual([8]);
  });

  it('skips entries below its end', () => {
    const index = make();
    index.apply(0, [at(0, entry('a')), at(1, entry('b'))]);
    index.apply(0, [at(0, entry('x')), at(1, entry('y')), at(2, entry('z'))]);
    expect(['x', 'y', 'z'].map((id) => index.placesOf(0, keyOf(id)))).toEqual([[], [], [2]]);
  });

  it('applies nothing of a delivery with a bad entry, and can continue after it', () => {
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
      expect(index.placesOf(0, keyOf('b'))).toEqual([]);
    }
    index.apply(0, good);
    expect([index.end(0), index.through(0), index.placesOf(0, keyOf('b'))]).toEqual([3, 9, [1]]);
  });

  it('rejects a gap, after its end and within a delivery, and stays unchanged', () => {
    const index = make();
    index.apply(0, [at(0, entry('a'))]);
    for (const records of [[at(2, entry('b'))], [at(1, entry('b')), at(3, entry('c'))]]) {
      expect(() => index.apply(0, records)).toThrow(expect.objectContaining({ code: 'LEDGER_TRUNCATED' }));
      expect([index.end(0), index.placesOf(0, keyOf('b'))]).toEqual([1, []]);
    }
  });

  it('remembers the highest request offset in any order, including that of markers', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 9 })), at(1, entry('b', { requestOffset: 4 }))]);
    expect(index.through(0)).toBe(9);
    index.apply(0, [at(2, entry('a', { requestOffset: 11 }))]);
    expect(index.through(0)).toBe(11);
    index.apply(0, [at(3, marker(40))]);
    expect(index.through(0)).toBe(40);
  });

  it('recognises its last entry by digest, whether it is a winner, a loser or a marker', () => {
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
    expect([index.placesOf(0, keyOf('a')), index.placesOf(1, keyOf('a'))]).toEqual([[0], [1]]);
    index.wipe(1, 0);
    expect([index.placesOf(0, keyOf('a')), index.placesOf(1, keyOf('a'))]).toEqual([[0], []]);
  });

  it('includes the `through` of an entry in the request offsets that it covers', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { requestOffset: 3, through: 12 }))]);
    expect(index.through(0)).toBe(12);
  });

  it('accepts any bytes as a key', () => {
    const index = make();
    const ids = ['\u0000', '\u0000\u0000', '\u00ff\u00fe', "'; DROP TABLE state; --", 'x'.repeat(256)];
    const keys = ids.map((id) => encodeLedgerKey(Buffer.from(id, 'latin1')));
    index.apply(
      0,
      keys.map((key, offset) => at(offset, { key, value: entry('a').value })),
    );
    expect(keys.map((key) => index.placesOf(0, key))).toEqual([[0], [1], [2], [3], [4]]);
  });

  it('reports the last entry whose writer had read a longer log, and none that is at its own offset', () => {
    const index = make();
    expect(index.apply(0, [at(0, entry('a', { end: 0 })), at(1, entry('b', { end: 0 }))])).toEqual({});
    const lossy = [at(2, entry('c', { end: 3 })), at(3, entry('d', { end: 9 })), at(4, entry('e', { end: 4 }))];
    expect(index.apply(0, lossy)).toEqual({ lossAt: 3 });
  });

  it('has a place for numbers that count and for renewals, and none for void ones and statements', () => {
    const index = make();
    const records = [
      at(0, statement(0)),
      at(1, numbers('a', { at: 1 })),
      at(2, entry('a')),
      at(3, statement(9, { through: 5 })),
      at(4, numbers('void', { at: 3 })),
      at(5, numbers('a', { at: RENEWAL })),
    ];
    expect(firstsOf(index, records)).toEqual(new Set([1, 2]));
    expect([index.end(0), index.through(0)]).toEqual([6, 5]);
    expect(records.map(({ key }) => index.placesOf(0, key as Buffer))).toEqual([[], [1, 5], [2], [], [], [1, 5]]);
    expect(index.apply(0, [at(6, numbers('b', { at: 6, end: 9 }))])).toEqual({ lossAt: 6 });
  });

  it('knows of a sequence what its statements and numbers that count say', () => {
    const index = make();
    const known = () => index.sequence(0, 'invoices');
    index.apply(0, [at(0, marker(0)), at(1, statement(1, { next: 7, step: 2, format: 'INV-{number:6}' }))]);
    const definition = { step: 2, max: 1_000, format: 'INV-{number:6}', closed: false, edition: 1 };
    expect(known()?.known).toEqual({ next: 7, ...definition });
    expect(known()?.stated).toEqual({ offset: 1, appendedAtMs: expect.any(Number) });
    index.apply(0, [
      at(2, numbers('a', { at: 2, first: 7, count: 3, step: 2 })),
      at(3, numbers('b', { at: 2, first: 7, count: 5, step: 2 })),
      at(4, numbers('a', { at: RENEWAL, first: 7, count: 3, step: 2 })),
      at(5, statement(4, { next: 500 })),
    ]);
    expect(known()).toMatchObject({ known: { next: 13 }, stated: { offset: 1 }, gap: 0 });
    expect([...index.sequences(0)].map(([name]) => name)).toEqual(['invoices']);
  });

  it('forgets all sequences in a wipe, and knows them again from the log that is left', () => {
    const index = make();
    index.apply(0, [at(0, statement(0)), at(1, numbers('a', { at: 1, count: 30 }))]);
    index.wipe(0, 0);
    expect([...index.sequences(0)]).toEqual([]);
    index.apply(0, [at(0, statement(0))]);
    expect(index.sequence(0, 'invoices')).toMatchObject({ known: { next: 1 }, gap: 0 });
  });

  it('knows only the next number behind numbers without a statement, and forgets what was sent before them', () => {
    const index = make();
    const first = at(0, numbers('a', { at: 0, first: 40, count: 2, through: 90 }));
    index.apply(0, [first]);
    expect(index.sequence(0, 'invoices')).toMatchObject({ known: { next: 42, edition: UNSTATED }, gap: 0 });
    expect([index.horizon(0), index.since(0)]).toEqual([90, first.appendedAtMs]);
    index.apply(0, [at(1, statement(1, { next: 50, first: 42, through: 95 }))]);
    expect(index.sequence(0, 'invoices')).toMatchObject({ known: { next: 50, edition: 1 }, gap: 0 });
    expect([index.horizon(0), index.since(0)]).toEqual([90, first.appendedAtMs]);
  });

  it('forgets what was sent before a statement that begins a row, unless an operator wrote it', () => {
    const index = make();
    index.apply(0, [at(0, statement(0))]);
    expect([index.horizon(0), index.since(0)]).toEqual([-1, 0]);
    index.wipe(0, 0);
    const again = at(0, statement(0, { through: 60 }));
    index.apply(0, [again]);
    expect([index.horizon(0), index.since(0)]).toEqual([60, again.appendedAtMs]);
  });

  it('forgets, from a loss that counts on, what was sent before it; a loss elsewhere changes nothing', () => {
    const index = make();
    index.apply(0, [at(0, statement(0)), at(1, numbers('a', { at: 1, count: 30, requestOffset: 5 }))]);
    const loss = { next: 40, first: 40, isLoss: true };
    const applied = index.apply(0, [at(2, statement(3, { ...loss, end: 1, through: 90 }))]);
    expect([applied, index.horizon(0), index.since(0)]).toEqual([{}, -1, 0]);
    const counting = at(3, statement(3, { ...loss, end: 3, through: 70 }));
    expect(index.apply(0, [counting])).toEqual({});
    expect([index.horizon(0), index.since(0)]).toEqual([70, counting.appendedAtMs]);
    expect(index.sequence(0, 'invoices')).toMatchObject({ known: { next: 40 }, gap: 0 });
    expect([index.placesOf(0, numbers('a').key), index.end(0)]).toEqual([[1], 4]);
    index.apply(0, [at(4, statement(4, { next: 40, first: 40, end: 4, through: 80 }))]);
    expect([index.horizon(0), index.since(0)]).toEqual([70, counting.appendedAtMs]);
  });

  it('keeps what it knows of sequences when their records expire', () => {
    const index = make();
    index.apply(0, [at(0, statement(0)), ...[1, 2, 3, 4].map((place) => at(place, marker(place)))]);
    while (index.expire(0, 4));
    expect([index.origin(0), index.sequence(0, 'invoices')?.known?.next]).toEqual([4, 1]);
  });

  it('refuses a record of a sequence under a key of another kind', () => {
    const index = make();
    for (const wrong of [
      { ...numbers('a'), key: encodeLedgerKey(Buffer.from('a')) },
      { ...statement(0), key: numbers('a').key },
    ]) {
      expect(() => index.apply(0, [at(0, wrong)])).toThrow(expect.objectContaining({ code: 'LEDGER_UNREADABLE' }));
    }
    expect([index.end(0), [...index.sequences(0)]]).toEqual([0, []]);
  });

  it('counts the requests of numbers that count or are renewed as decided, and not those of void ones', () => {
    const index = make();
    index.apply(0, [at(0, numbers('a', { at: 0, requestOffset: 3 }))]);
    expect(index.through(0)).toBe(3);
    index.apply(0, [at(1, numbers('b', { at: 0, requestOffset: 9 }))]);
    expect(index.through(0)).toBe(3);
    index.apply(0, [at(2, numbers('a', { at: -1, requestOffset: 5 }))]);
    expect(index.through(0)).toBe(5);
    index.apply(0, [at(3, numbers('c', { at: 7, requestOffset: 9, through: 6 }))]);
    expect(index.through(0)).toBe(6);
  });

  it('forgets with numbers, when they are trimmed, that their requests were not decided', () => {
    const index = make();
    index.apply(0, [
      at(0, numbers('a', { at: 0, requestOffset: 8 })),
      ...[1, 2, 3, 4].map((place) => at(place, marker(0))),
    ]);
    while (index.expire(0, 4));
    expect([index.origin(0), index.horizon(0)]).toEqual([4, 8]);
  });

  it('is shown the horizon by a record of a sequence whose writer had read everything that was trimmed', () => {
    const index = make();
    index.wipe(0, 8);
    index.apply(0, [at(8, numbers('a', { at: 7, end: 8, through: 20 }))]);
    expect(index.horizon(0)).toBe(20);
  });

  it('refuses numbers without a key', () => {
    const index = make();
    expect(() => index.apply(0, [at(0, { ...numbers('a'), key: null })])).toThrow(
      expect.objectContaining({ code: 'LEDGER_UNREADABLE' }),
    );
  });

  it('knows decisions since the entry after a gap, or else for all time', () => {
    const index = make();
    index.apply(0, [at(0, entry('a', { end: 0 }))]);
    expect(index.since(0)).toBe(0);
    index.apply(0, [at(1, entry('b', { end: 5 }))]);
    expect(index.since(0)).toBe(1_700_000_000_001);
  });

  describe('that is restored from a log without its head knows decisions since', () => {
    const T = 1_700_000_000_000;
    const stamped = (offset: number, appendedAtMs: number, drafted: Parameters<typeof at>[1]) => ({
      ...at(offset, drafted),
      appendedAtMs,
    });

    it.each([
      [T - 600_000, T],
      [T, T - 600_000],
    ])("the later of the broker's time and the writer's, of the first entry: %d or %d", (stampMs, generatedAtMs) => {
      const index = make();
      index.wipe(0, 8);
      index.apply(0, [stamped(8, stampMs, entry('a', { end: 3, generatedAtMs }))]);
      expect(index.since(0)).toBe(T);
    });

    it('the time of a later entry whose writer had read the log up to there, if that is earlier', () => {
      const index = make();
      index.wipe(0, 8);
      const later = { generatedAtMs: T + 1_000 };
      const records = [stamped(8, 2 * T, entry('a', { end: 8 })), stamped(9, T + 5, entry('b', { end: 9, ...later }))];
      index.apply(0, records);
      expect(index.since(0)).toBe(T + 1_000);
      index.apply(0, [stamped(10, T + 10, entry('c', { end: 9 })), stamped(11, T + 20, marker(9, 11))]);
      expect(index.since(0)).toBe(T + 1_000);
    });

    it.each([
      ["the broker's", 5_000, T],
      ["the writer's", T, 5_000],
    ])('not the time of a later entry of which %s is much earlier', (_whose, stampMs, generatedAtMs) => {
      const index = make();
      index.wipe(0, 8);
      const oldest = stamped(8, T, entry('a', { end: 3, generatedAtMs: T }));
      index.apply(0, [
        oldest,
        stamped(9, stampMs - 4_000, entry('b', { end: 9, generatedAtMs: generatedAtMs - 4_000 })),
      ]);
      expect(index.since(0)).toBe(T);
    });

    it('nothing earlier than the last entry that it had before', () => {
      const index = make();
      index.apply(0, [stamped(0, T + 9_000, entry('lost', { requestOffset: 4 }))]);
      index.wipe(0, 8);
      index.apply(0, [stamped(8, T + 1_000, entry('a', { end: 8 })), stamped(9, T + 2_000, entry('b', { end: 9 }))]);
      expect(index.since(0)).toBe(T + 9_000);
    });

    it('no later than the time before which all that it does not know was appended', () => {
      const index = make();
      index.missedBefore(0, T);
      expect(index.since(0)).toBe(0);
      index.wipe(0, 8);
      index.apply(0, [stamped(8, 2 * T, marker(7, 8))]);
      index.missedBefore(0, T + 100);
      expect(index.since(0)).toBe(T + 100);
      index.missedBefore(0, T + 200);
      expect(index.since(0)).toBe(T + 100);
      index.missedBefore(0, T - 200); // all clocks are wrong for a while
      expect(index.since(0)).toBe(T + 100);
    });
  });
});
