import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Finding, IdRun } from '../../../src/cli/audit/found.ts';
import { OverlapSearch, sharesId } from '../../../src/cli/audit/ids.ts';

const PLACE = { source: 'ledger', topic: 't', partition: 0, offset: 0, requestId: Buffer.from('c') } as const;

const runs = fc
  .array(
    fc.record({
      first: fc.bigInt({ min: 0n, max: 60n }),
      count: fc.integer({ min: 1, max: 8 }),
      step: fc.bigInt({ min: 1n, max: 12n }),
      unit: fc.integer({ min: 0, max: 20 }),
    }),
    { maxLength: 12 },
  )
  .map((drafts) =>
    drafts.map(({ first, count, step, unit }): IdRun => {
      return { ...PLACE, first, last: first + BigInt(count - 1) * step, step, unit };
    }),
  );

function idsOf({ first, last, step }: IdRun): bigint[] {
  const ids: bigint[] = [];
  for (let id = first; id <= last; id += step) ids.push(id);
  return ids;
}

function haveCommon(a: IdRun, b: IdRun): boolean {
  const ids = new Set(idsOf(a));
  return idsOf(b).some((id) => ids.has(id));
}

test('two runs share an ID exactly when one of their IDs is the same', () => {
  fc.assert(
    fc.property(runs, (some) => {
      const [a, b] = some.toSorted((one, two) => Number(one.first - two.first));
      if (a !== undefined && b !== undefined) expect(sharesId(a, b)).toBe(haveCommon(a, b));
    }),
    { numRuns: 2_000 },
  );
});

test('names each batch that shares an ID with another, and no other batch', () => {
  fc.assert(
    fc.property(runs, (some) => {
      const named = new Set<number>();
      const search = new OverlapSearch(({ locations }: Finding) => {
        for (const place of locations) named.add((place as IdRun).unit);
      });
      for (const run of some.toSorted((a, b) => Number(a.first - b.first))) search.take(run);
      const guilty = some.filter((a) => some.some((b) => a.unit !== b.unit && haveCommon(a, b)));
      expect(named).toEqual(new Set(guilty.map(({ unit }) => unit)));
    }),
    { numRuns: 2_000 },
  );
});

test('runs that are complete are dropped: memory holds only the open ones of sixty thousand classes', () => {
  const findings: Finding[] = [];
  const search = new OverlapSearch((finding) => findings.push(finding));
  for (let i = 0n; i < 60_000n; i++)
    search.take({ ...PLACE, first: i * 3n, last: i * 3n + 2n, step: 1_000_003n, unit: Number(i) });
  expect(findings).toEqual([]);
  expect(search.kept).toBeLessThanOrEqual(10_000);
});
