import { expect, test } from 'vitest';
import { allDark, allowedBy, type Darkness, darkSpans, type Failure, growth, slopePerMinute } from './soak-verdict.ts';

const dark = (fromS: number, toS: number) => ({ fromMs: 1_000 * fromS, toMs: 1_000 * toS });
const probes = (...all: readonly (readonly [sentS: number, answeredS?: number])[]) =>
  all.map(([sentS, answeredS]) => ({
    sentMs: 1_000 * sentS,
    answeredMs: answeredS === undefined ? undefined : 1_000 * answeredS,
  }));

function failing(more: Partial<Failure>): Failure {
  const fields = { service: 's', call: 'request', code: 'NO_REPLY', message: '', times: 1, count: 1, home: 0 } as const;
  return { ...fields, ...dark(10, 20), ...more };
}

function darkness(more: Partial<Darkness>): Darkness {
  return { partitions: [[], []], all: [], floods: [], ...more };
}

const CALLER = { coverMs: 20_000, idsPerSecond: 100, suspended: [] };

test('a partition is dark from a probe that waits for longer than 2 s to its answer, or to that of the next one', () => {
  expect(darkSpans(probes([0, 1], [1, 3], [2, 9], [3, 9], [9, 10], [11, 14]), 20_000)).toEqual([
    dark(2, 9),
    dark(11, 14),
  ]);
  expect(darkSpans(probes([0, 1], [1], [2], [8, 9], [9, 9]), 20_000)).toEqual([dark(1, 9)]);
});

test('a partition whose last probes have no answer is dark to the end', () => {
  expect(darkSpans(probes([0, 1], [1], [2]), 20_000)).toEqual([dark(1, 20)]);
  expect(darkSpans(probes([0, 1], [19]), 20_000)).toEqual([]);
});

test('all is dark while each partition is', () => {
  expect(allDark([[dark(0, 5), dark(10, 20)], [dark(3, 12)]])).toEqual([dark(3, 5), dark(10, 12)]);
  expect(allDark([[dark(0, 5)], []])).toEqual([]);
});

test('a request may have no reply if nobody served its own partition for half of its time', () => {
  const halfDark = darkness({ partitions: [[dark(0, 15)], []] });
  expect(allowedBy(failing({}), halfDark, CALLER)).toBeDefined();
  expect(allowedBy(failing({}), darkness({ partitions: [[dark(0, 14)], []] }), CALLER)).toBeUndefined();
  expect(allowedBy(failing({ home: 1 }), halfDark, CALLER)).toBeUndefined();
  expect(allowedBy(failing({ code: 'MALFORMED_REPLY' }), halfDark, CALLER)).toBeUndefined();
});

test('a request has not waited while the process of its service was suspended', () => {
  const suspended = { ...CALLER, suspended: [dark(12, 18)] };
  const outFor = (fromS: number, toS: number) => darkness({ partitions: [[dark(fromS, toS)]] });
  expect(allowedBy(failing({}), outFor(10, 12), suspended)).toBeDefined();
  expect(allowedBy(failing({}), outFor(17, 20), suspended)).toBeDefined();
  expect(allowedBy(failing({}), outFor(12, 19), suspended)).toBeUndefined();
  expect(allowedBy(failing({}), outFor(10, 12), CALLER)).toBeUndefined();
});

test('next() may fail only when nothing was served for as long as the buffer covers', () => {
  const empty = failing({ call: 'next', code: 'BUFFER_EMPTY', fromMs: 40_000, toMs: 40_000 });
  expect(allowedBy(empty, darkness({ all: [dark(15, 36)] }), CALLER)).toBeDefined();
  expect(allowedBy(empty, darkness({ all: [dark(15, 34)] }), CALLER)).toBeUndefined();
  // Too early, and too late.
  expect(allowedBy(empty, darkness({ all: [dark(25, 60)] }), CALLER)).toBeUndefined();
  expect(allowedBy(empty, darkness({ all: [dark(0, 25)] }), CALLER)).toBeUndefined();
  expect(
    allowedBy(empty, darkness({ partitions: [[dark(0, 60)], []], floods: [dark(0, 60)] }), CALLER),
  ).toBeUndefined();
});

test('take() of many IDs may fail while the buffer has some left, as long as it would last for these', () => {
  const take = (count: number, atS: number) =>
    failing({ call: 'take', code: 'BUFFER_EMPTY', count, fromMs: 1_000 * atS, toMs: 1_000 * atS });
  const out = darkness({ all: [dark(20, 60)] });
  expect([take(201, 38), take(1, 40)].map((one) => allowedBy(one, out, CALLER) !== undefined)).toEqual([true, true]);
  expect([take(200, 38), take(1, 39)].map((one) => allowedBy(one, out, CALLER))).toEqual([undefined, undefined]);
});

test('takeAsync() of many IDs may have too few beside a flood or a stuck partition, one of few only while nothing is served', () => {
  const few = failing({ call: 'takeAsync', count: 4_000 });
  const many = failing({ call: 'takeAsync', count: 4_001 });
  const [flooded, stuck, out] = [
    { floods: [dark(0, 20)] },
    { partitions: [[], [dark(0, 20)]] },
    { all: [dark(0, 20)] },
  ];
  for (const more of [flooded, stuck]) {
    expect(allowedBy(many, darkness(more), CALLER)).toBeDefined();
    expect(allowedBy(few, darkness(more), CALLER)).toBeUndefined();
  }
  for (const one of [few, many]) {
    expect(allowedBy(one, darkness(out), CALLER)).toBeDefined();
    expect(allowedBy({ ...one, code: 'QUEUE_FULL' }, darkness(out), CALLER)).toBeUndefined();
  }
});

test('the growth of memory leaves out the start, and single peaks', () => {
  const samples = [1, 1, 5, 5, 5, 5, 99, 7, 7, 7, 7, 7].map((heapBytes, i) => ({
    atMs: 60_000 * i,
    heapBytes,
    rssBytes: 3 * i,
  }));
  expect(growth(samples, 'heapBytes')).toBe(2);
  expect(growth(samples.slice(0, 3), 'heapBytes')).toBe(0);
  expect(slopePerMinute(samples, 'rssBytes')).toBeCloseTo(3);
});
