import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type CapacityData, CRASH, readData, type Served } from '../../ops/capacity/data.ts';
import { contradictionsOf, noiseOf } from '../../ops/capacity/odd.ts';
import { GOALS, pageOf, partsOf } from '../../ops/capacity/page.ts';
import { planOf } from '../../ops/capacity/plan.ts';
import { plotsOf, svgOf } from '../../ops/capacity/plots.ts';
import { PAGE_FILE, PICTURES } from '../../ops/capacity/write.ts';
import { linksOf } from '../support/docs.ts';

const DATA = readData();
const PAGE = readFileSync(PAGE_FILE, 'utf8');

describe('the page on capacity', () => {
  test('has the figures of the kept run; else run `npm run bench:report -- --redraw`', () => {
    expect(PAGE).toBe(pageOf(PAGE, DATA));
  });

  test.for(plotsOf(DATA))('its plot $name is drawn from the kept run', async (plot) => {
    expect(readFileSync(join(PICTURES, `${plot.name}.svg`), 'utf8')).toBe(await svgOf(plot));
    expect(linksOf(PAGE)).toContain(`../pictures/${plot.name}.svg`);
  });

  test('shows every part, and only parts that exist', () => {
    expect(() => pageOf('<!-- figures: plan -->\n<!-- end -->', DATA)).toThrow(/does not show the figures headline, /);
    expect(() => pageOf('<!-- figures: other -->\n<!-- end -->', DATA)).toThrow(/'other', which do not exist/);
  });

  test('says of each way what a crash loses', () => {
    const names = [...DATA.doors, ...DATA.inProcess].map(({ name }) => name);
    expect(names.filter((name) => CRASH[name] === undefined)).toEqual([]);
    expect(Object.keys(CRASH).filter((name) => !names.includes(name))).toEqual([]);
  });

  test('marks the parts that others disturbed, and says when nobody watched', () => {
    const { disturbed: _, ...unwatched } = DATA;
    expect(partsOf(unwatched).machine).toContain('was not watched');
    expect(partsOf({ ...DATA, disturbed: [] }).machine).toContain('Other programs took at most 5 %');
    const marked = partsOf({ ...DATA, disturbed: [{ part: 'latency', othersPercent: 23 }] }).machine;
    expect(marked).toMatch(/\*\*Other programs took more than 5 % .*: latency \(23 %\)\.\*\*/);
  });

  test('says how far the same case was apart, and of what can not be that it is noise', () => {
    expect(noiseOf(DATA).times).toBe(3);
    const { trust = '' } = partsOf(DATA);
    expect(trust).toMatch(/One case was measured 3 times/);
    expect(contradictionsOf(DATA)).toEqual([]);
  });

  test('refuses a run that contradicts itself: more IDs than the layout has, or a detour that costs nothing', () => {
    const [one, ...counts] = DATA.counts;
    const [own, forwarded, ...ways] = DATA.ways;
    if (!one || !own || !forwarded) throw new Error('the kept run lacks these figures');
    const tooMany = { ...DATA, counts: [one, ...counts, { ...one, count: 1_000, requestsPerS: 8_000 }] };
    expect(contradictionsOf(tooMany)).toEqual([expect.stringContaining('8,000,000 IDs/s')]);
    const tooCheap = { ...DATA, ways: [own, { ...forwarded, workerUs: own.workerUs / 3 }, ...ways] };
    expect(contradictionsOf(tooCheap)).toEqual([expect.stringContaining('A forwarded request')]);
  });

  test('shows the range of the rounds where the run kept it', () => {
    const [one, ...counts] = DATA.counts;
    if (one === undefined) throw new Error('the kept run lacks counts');
    const ranged = { ...one, range: { least: 70_000, most: 90_000 } };
    expect(partsOf({ ...DATA, counts: [ranged, ...counts] }).counts).toContain('(70,000 to 90,000)');
  });

  test('plans up to 3,000,000 IDs/s and 100,000 requests/s', () => {
    expect(GOALS.at(-1)).toEqual({ requestsPerS: 100_000, count: 30 });
    expect(partsOf(DATA).plan).toContain('| 3,000,000 |');
  });

  test('every figure is a positive number', () => {
    const wrong: string[] = [];
    const check = (value: unknown, path: string) => {
      if (typeof value === 'number' ? !(value > 0) : value === null) wrong.push(`${path} is ${value}`);
      if (typeof value === 'object' && value !== null)
        for (const [key, one] of Object.entries(value)) check(one, `${path}.${key}`);
    };
    check(DATA, 'data');
    expect(wrong).toEqual([]);
  });
});

describe('the plan', () => {
  const served = (more: Partial<Served>): Served => ({
    count: 1,
    requestsPerS: 50_000,
    workerUs: 10,
    brokerUs: 20,
    bytes: { requests: 100, ledger: 200, replies: 300 },
    memoryMib: 100,
    ...more,
  });
  const data: CapacityData = {
    ...DATA,
    counts: [
      served({}),
      served({ count: 101, workerUs: 20, brokerUs: 40, bytes: { requests: 1, ledger: 400, replies: 1 } }),
    ],
    partitions: [{ partitions: 1, ...served({ requestsPerS: 10_000 }) }],
    // 2,000 bytes of memory without entries, and 2 for each.
    index: [
      { entries: 1_000, diskBytesPerEntry: 10, memoryBytesPerEntry: 4, restorePerS: 200_000 },
      { entries: 2_000, diskBytesPerEntry: 10, memoryBytesPerEntry: 3, restorePerS: 100_000 },
    ],
  };

  test('has half of the cores to spare, two workers more, and enough partitions for all', () => {
    // 2 s of processor time a second need 4 half-loaded cores; 200,000 requests/s 40 partitions at 5,000/s each.
    const plan = planOf(data, { requestsPerS: 200_000, count: 1 });
    expect(plan).toMatchObject({
      workerUs: 10,
      workerCores: 2,
      brokerCores: 12,
      workers: 6,
      partitions: 42,
      brokers: 3,
    });
    expect(plan.cpuHoursPerYear).toBe(14 * 8_760);
  });

  test('has a worker for each half of the layout where requests are large', () => {
    expect(planOf(data, { requestsPerS: 100_000, count: 101 }).workers).toBe(Math.ceil(10_100_000 / 2_048_000) + 2);
  });

  test('takes what a request costs from between the counts that were measured', () => {
    expect(planOf(data, { requestsPerS: 1, count: 51 }).workerUs).toBe(15);
    expect(planOf(data, { requestsPerS: 1, count: 1_000 }).workerUs).toBe(20);
  });

  test('keeps two copies of 27 hours among the workers', () => {
    const { workers, partitions, entries, ledgerBytes, indexBytes, memoryBytes, restoreS, partitionRestoreS } = planOf(
      data,
      { requestsPerS: 100, count: 1 },
    );
    expect([workers, partitions]).toEqual([3, 6]);
    expect(entries).toBe(100 * 27 * 3_600);
    expect(ledgerBytes).toBe(entries * 200 * 3);
    expect(indexBytes).toBeCloseTo(((entries * 2) / 3) * 10 * 2, 3);
    expect(memoryBytes).toBeCloseTo(((entries * 2) / 3) * 2 + 100 * 2 ** 20, 3);
    expect(restoreS).toBeCloseTo((entries * 2) / 3 / 100_000, 6);
    expect(partitionRestoreS).toBeCloseTo(entries / 6 / 100_000, 6);
  });
});
