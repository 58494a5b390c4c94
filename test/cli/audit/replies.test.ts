import { describe, expect, test } from 'vitest';
import { batchAt, check, entry, reply } from './batches.ts';

describe('replies compared with the ledger', () => {
  test('agree with the first entry of their key, which decides', () => {
    const { findings, counts } = check([
      entry('a', batchAt(20), { offset: 9 }),
      entry('a', batchAt(10), { offset: 3 }),
      reply('a', batchAt(10), { offset: 1 }),
      reply('a', batchAt(10), { offset: 5 }),
      entry('b', batchAt(30), { offset: 4 }),
    ]);
    expect(findings).toEqual([]);
    expect(counts).toMatchObject({ decisions: 2, losers: 1, doubled: 0, replies: 2 });
  });

  test('diverge with the batch of a loser or one without an entry, and both places are named', () => {
    const { findings } = check([
      entry('a', batchAt(10), { offset: 3 }),
      entry('a', batchAt(20), { offset: 9 }),
      reply('a', batchAt(20), { offset: 1 }),
      reply('a', batchAt(40), { offset: 2 }),
    ]);
    expect(findings.map(({ code, message }) => `${code} ${message}`).sort()).toEqual([
      expect.stringMatching(/^DIVERGENT .*a batch that no entry has/),
      expect.stringMatching(/^DIVERGENT .*the batch of a loser/),
    ]);
    for (const { locations } of findings) {
      expect(locations.map(({ source, offset }) => [source, offset])).toContainEqual(['ledger', 3]);
    }
  });

  test('may have either batch of a correlation ID that was decided in two partitions, which is a finding', () => {
    const { findings, counts } = check([
      entry('a', batchAt(10), { partition: 1 }),
      entry('a', batchAt(20), { partition: 2 }),
      reply('a', batchAt(20)),
      reply('a', batchAt(10)),
    ]);
    expect(findings).toMatchObject([
      { code: 'SPLIT', message: expect.stringContaining('partitions ledger/1, ledger/2') },
    ]);
    expect(findings[0]?.locations.map(({ partition }) => partition)).toEqual([1, 2]);
    expect(counts).toMatchObject({ decisions: 2, losers: 0, replies: 2 });
  });

  test('may have either batch of a correlation ID that was decided in two ledgers, which is a finding', () => {
    const { findings, counts } = check([
      entry('a', batchAt(10), { offset: 5 }),
      entry('a', batchAt(20), { topic: 'ledger.2', offset: 1 }),
      reply('a', batchAt(20)),
      reply('a', batchAt(10)),
    ]);
    expect(findings).toMatchObject([{ code: 'SPLIT', message: expect.stringMatching('ledger/0, ledger.2/0') }]);
    expect(counts).toMatchObject({ decisions: 2, losers: 0, replies: 2 });
  });

  test('on another topic than the request named are a finding', () => {
    const { findings } = check([entry('a', batchAt(10)), reply('a', batchAt(10), { topic: 'elsewhere' })]);
    expect(findings).toMatchObject([{ code: 'MISDIRECTED', message: expect.stringContaining('elsewhere') }]);
  });

  test('without an entry are a finding only if the ledger reaches back that far', () => {
    const at = batchAt(10).generatedAtMs;
    const lonely = [reply('a', batchAt(10))];
    expect(check(lonely, at + 1)).toMatchObject({ findings: [], counts: { forgotten: 1 } });
    expect(check(lonely, at).findings).toMatchObject([{ code: 'UNDECIDED' }]);
  });

  test('from before an entry of a correlation ID that was used again are forgotten, or lost with the tail of the ledger', () => {
    const [old, anew] = [reply('a', batchAt(10)), entry('a', batchAt(20))];
    expect(check([anew, old]).findings).toMatchObject([{ code: 'DIVERGENT' }]);
    expect(check([anew, old], anew.timeMs)).toMatchObject({ findings: [], counts: { forgotten: 1 } });
    const lost = { mayHave: () => true };
    expect(check([anew, old], Number.NEGATIVE_INFINITY, lost)).toMatchObject({ findings: [], counts: { lost: 1 } });
    const later = { ...old, timeMs: anew.timeMs };
    expect(check([anew, later], anew.timeMs + 1).findings).toMatchObject([{ code: 'DIVERGENT' }]);
  });

  test('are not compared with an entry that may not be the first', () => {
    const { findings, counts } = check([entry('a', batchAt(20), { doubtful: true }), reply('a', batchAt(10))]);
    expect(findings).toEqual([]);
    expect(counts).toMatchObject({ undecidable: 1 });
  });

  test('of a replay are counted by whether there was an earlier one', () => {
    const { counts } = check([
      entry('a', batchAt(10)),
      reply('a', batchAt(10)),
      reply('a', batchAt(10), { offset: 7, again: true }),
      entry('b', batchAt(20)),
      reply('b', batchAt(20), { offset: 8, again: true }),
    ]);
    expect(counts).toMatchObject({ repeated: 1, repeatedWithoutFirst: 1 });
  });

  test('an append that was sent twice is one batch', () => {
    const { findings, counts } = check([entry('a', batchAt(10)), entry('a', batchAt(10), { offset: 1 })]);
    expect({ findings, doubled: counts.doubled }).toEqual({ findings: [], doubled: 1 });
  });
});

describe('overlaps', () => {
  test.each([
    ['two entries', [entry('a', batchAt(10)), entry('b', batchAt(10, 4, 3), { offset: 1 })], 1],
    ['neighbours', [entry('a', batchAt(10)), entry('b', batchAt(10, 4, 4), { offset: 1 })], 0],
    ['a decision and its loser', [entry('a', batchAt(10)), entry('a', batchAt(10, 2, 1), { offset: 1 })], 1],
    ['a batch and its reply', [entry('a', batchAt(10)), reply('a', batchAt(10))], 0],
    ['the same batch in two partitions', [entry('a', batchAt(10)), entry('a', batchAt(10), { partition: 1 })], 1],
    [
      'a forged reply under another correlation ID',
      [entry('a', batchAt(10)), reply('b', batchAt(10, 2, 1), { timeMs: 0 })],
      1,
    ],
    [
      'one in the middle of another',
      [entry('a', batchAt(10, 100)), entry('b', batchAt(10, 1, 50)), entry('c', batchAt(10, 1, 90))],
      2,
    ],
  ])('of %s', (_, batches, overlaps) => {
    const { findings } = check(batches, Number.POSITIVE_INFINITY);
    expect(findings.filter(({ code }) => code === 'OVERLAP')).toHaveLength(overlaps);
  });
});
