import { expect, test } from 'vitest';
import { IdRuns } from './id-runs.ts';
import { seeded } from './seeded.ts';

test('each ID that comes again is counted, whatever the order of the runs', () => {
  const runs = new IdRuns();
  runs.add(100n, 10, 'a');
  runs.add(10n, 10, 'a');
  runs.add(20n, 5, 'b');
  expect([runs.ids, runs.duplicates]).toEqual([25, 0]);
  runs.add(15n, 8, 'c'); // 15 to 19 of a, 20 to 22 of b
  runs.add(100n, 10, 'a');
  expect([runs.ids, runs.duplicates]).toEqual([43, 18]);
  expect(runs.examples[0]).toMatch(/^15 to 19 from [ac] and from [ac]$/);
});

test('it counts as a set of single IDs does', () => {
  const rng = seeded('id-runs');
  const runs = new IdRuns();
  const seen = new Set<bigint>();
  let added = 0;
  for (let nth = 0; nth < 500; nth += 1) {
    const [first, count] = [BigInt(rng.below(5_000)), 1 + rng.below(20)];
    runs.add(first, count, `service ${rng.below(3)}`);
    for (let i = 0; i < count; i += 1) seen.add(first + BigInt(i));
    added += count;
    if (nth % 50 === 0) expect(runs.duplicates).toBe(added - seen.size);
  }
  expect([runs.ids, runs.duplicates]).toEqual([added, added - seen.size]);
});
