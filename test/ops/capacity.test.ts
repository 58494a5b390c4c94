import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { type CapacityData, CRASH, readData, type Served } from '../../ops/capacity/data.ts';
import { goalsOf } from '../../ops/capacity/goals.ts';
import { contradictionsOf, noiseOf } from '../../ops/capacity/odd.ts';
import { GOALS, pageOf, partsOf } from '../../ops/capacity/page.ts';
import { planOf } from '../../ops/capacity/plan.ts';
import { plotsOf, svgOf } from '../../ops/capacity/plots.ts';
import { PAGES, PICTURES } from '../../ops/capacity/write.ts';
import { linksOf, readPage } from '../support/docs.ts';

const DATA = readData();
const PAGE = readPage('docs/operations/capacity.md');

test.for(PAGES)('$file has the figures of the kept run; else run `npm run bench:report -- --redraw`', (one) => {
  const page = readPage(one.file);
  expect(page).toBe(pageOf(page, one.partsOf(DATA)));
});

describe('the page on capacity', () => {
  test.for(plotsOf(DATA))('its plot $name is drawn from the kept run', async (plot) => {
    expect(readFileSync(join(PICTURES, `${plot.name}.svg`), 'utf8')).toBe(await svgOf(plot));
    expect(linksOf(PAGE)).toContain(`../pictures/${plot.name}.svg`);
  });

  test('shows every part, and only parts that exist', () => {
    const of = (name: string) => pageOf(`<!-- figures: ${name} -->\n<!-- end -->`, partsOf(DATA));
    expect(() => of('plan')).toThrow(/does not show the figures headline, /);
    expect(() => of('other')).toThrow(/'other', which do not exist/);
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
  const HOUR_S = 3_600;
  const data: CapacityData = {
    ...DATA,
    counts: [
      served({}),
      served({ count: 101, workerUs: 20, brokerUs: 40, bytes: { requests: 1, ledger: 400, replies: 1 } }),
    ],
    rates: [{ requestsPerS: 500, workerUs: 40, brokerUs: 80 }],
    partitions: [{ partitions: 1, ...served({ requestsPerS: 10_000 }) }],
    // 2,000 bytes of memory without entries, and 2 for each.
    index: [
      { entries: 1_000, diskBytesPerEntry: 10, memoryBytesPerEntry: 4, restorePerS: 200_000 },
      { entries: 2_000, diskBytesPerEntry: 10, memoryBytesPerEntry: 3, restorePerS: 100_000 },
    ],
  };

  test('has half of the cores to spare, two workers more, and four times the partitions that all need', () => {
    // 2 s of processor time a second need 4 half-loaded cores; 200,000 requests/s 40 partitions at 5,000/s each.
    const plan = planOf(data, { requestsPerS: 200_000, count: 1 });
    expect(plan).toMatchObject({
      workerUs: 10,
      workerCores: 2,
      brokerCores: 12,
      workers: 6,
      partitions: 162,
      brokers: 3,
    });
  });

  test('uses more cores where few requests come at a time: by the rate of a worker, not by what busy ones take', () => {
    const usedAt = (requestsPerS: number) => planOf(data, { requestsPerS, count: 1 }).usedCores;
    // Three workers with a third of the rate each, and three replicas with all of it.
    const brokerUs = (rate: number) => 80 * (20 / 80) ** (Math.log(rate / 500) / Math.log(100));
    expect(usedAt(1_500)).toBeCloseTo((1_500 * (40 + 3 * brokerUs(1_500))) / 1e6, 9);
    expect(usedAt(15_000), 'between both rates').toBeCloseTo((15_000 * (20 + 3 * brokerUs(15_000))) / 1e6, 9);
    expect(usedAt(150), 'as much as at the lowest rate').toBeCloseTo((500 * (3 * 40 + 3 * 80)) / 1e6, 9);
    const { usedCores, cpuHoursPerYear } = planOf(data, { requestsPerS: 1_500, count: 1 });
    expect(cpuHoursPerYear).toBe(usedCores * 8_760);
  });

  test('takes IDs into account at a low rate as well', () => {
    const [one, many] = [1, 51].map((count) => planOf(data, { requestsPerS: 1_500, count }).usedCores);
    expect((many as number) - (one as number)).toBeCloseTo((1_500 * (5 + 3 * 10)) / 1e6, 9);
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
    expect([workers, partitions]).toEqual([3, 24]);
    expect(entries).toBe(100 * 27 * 3_600);
    expect(ledgerBytes).toBe(entries * 200 * 3);
    expect(indexBytes).toBeCloseTo(((entries * 2) / 3) * 10 * 2, 3);
    expect(memoryBytes).toBeCloseTo(((entries * 2) / 3) * 2 + 100 * 2 ** 20, 3);
    expect(restoreS).toBeCloseTo((entries * 2) / 3 / 100_000, 6);
    expect(partitionRestoreS).toBeCloseTo(entries / 24 / 100_000, 6);
  });

  test('has as many more entries as the ledger is kept longer', () => {
    const goal = { requestsPerS: 100, count: 1 };
    const [short, long] = [planOf(data, goal), planOf(data, goal, 53 * HOUR_S)];
    expect(long.entries).toBe(2 * short.entries);
    expect(long.ledgerBytes).toBe(2 * short.ledgerBytes);
    expect(long.workers).toBe(short.workers);
  });
});

describe('the goals of a worker', () => {
  test('are beside what the run shows: all measurements of the case, and the latency at a tenth of the rate', () => {
    const [one, ...counts] = DATA.counts;
    const [own, ...ways] = DATA.ways;
    const [alone, ...workers] = DATA.workers;
    if (!one || !own || !alone) throw new Error('the kept run lacks these figures');
    const data = {
      ...DATA,
      counts: [{ ...one, workerUs: 9.44 }, ...counts],
      ways: [{ ...own, workerUs: 11.2 }, ...ways],
      workers: [{ ...alone, workerUs: 8 }, ...workers],
      latency: { ...DATA.latency, points: [{ share: 0.1, requestsPerS: 1, p50Ms: 7.5, p99Ms: 21 }] },
    };
    expect(goalsOf(data).goals).toContain('| 8 to 11.2 µs | 8 µs |');
    expect(goalsOf(data).goals).toContain('| 7.5 and 21 ms | 5 and 20 ms |');
    const lacking = { ...data, latency: { ...data.latency, points: [] } };
    expect(() => goalsOf(lacking)).toThrow(/lacks a figure/);
  });
});
