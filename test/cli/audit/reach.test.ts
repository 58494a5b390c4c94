import { expect, test } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import { decidingPartitions, LogReach } from '../../../src/cli/audit/reach.ts';

const SPAN = { topic: 't', partition: 0, from: 0, to: 100 };
const [WHOLE, UNKNOWN] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];

function record(offset: number, timestampMs: number, partition = 0): TopicRecord {
  return { topic: 't', partition, offset, timestampMs, key: null, value: null, headers: {} };
}

test('a partition that starts at 0 reaches back for ever, another one to its oldest record that shows a time', () => {
  expect(new LogReach([SPAN]).ofTopic('t')).toBe(WHOLE);
  const reach = new LogReach([{ ...SPAN, from: 5 }]);
  expect(reach.ofTopic('t')).toBe(UNKNOWN);
  reach.see(record(5, 1_000), false);
  expect(reach.ofTopic('t')).toBe(UNKNOWN);
  reach.see(record(6, 2_000));
  reach.see(record(7, 1_500));
  expect(reach.ofTopic('t')).toBe(2_000);
});

test('a topic reaches back as far as the partition that does so least; one that was not read does not say', () => {
  const reach = new LogReach([SPAN, { ...SPAN, partition: 1, from: 5 }, { ...SPAN, partition: 2, from: 5 }]);
  reach.see(record(5, 2_000, 1));
  reach.see(record(5, 1_000, 2));
  expect([reach.ofTopic('t'), reach.ofAll(), reach.ofLog('t/0'), reach.ofTopic('other')]).toEqual([
    ...[2_000, 2_000, WHOLE],
    undefined,
  ]);
});

test('one that begins with the first record of a time reaches back to that time, though it has no record', () => {
  expect(new LogReach([{ ...SPAN, from: 5, fromMs: 700 }]).ofTopic('t')).toBe(700);
});

test('what was deleted during the reading is not there, unless it had been read by then', () => {
  const readAll = new LogReach([SPAN]);
  for (const offset of [0, 1, 2]) readAll.see(record(offset, 1_000 + offset));
  readAll.nowStartsAt([{ ...SPAN, from: 2 }]);
  expect(readAll.ofTopic('t'), 'read before').toBe(1_000);
  const skipping = new LogReach([SPAN]);
  skipping.see(record(0, 1_000));
  for (const offset of [40, 41]) skipping.see(record(offset, 5_000 + offset));
  expect(skipping.ofTopic('t'), 'a hole alone is no deletion').toBe(WHOLE);
  skipping.nowStartsAt([{ ...SPAN, from: 40 }]);
  expect(skipping.ofTopic('t')).toBe(5_040);
});

test('partitions that were added to a ledger by mistake decide nothing: they are empty', () => {
  const ends = (...all: readonly number[]) => all.map((to, partition) => ({ ...SPAN, partition, to }));
  expect(decidingPartitions(ends(5, 1))).toEqual(new Map([['t', 2]]));
  expect(decidingPartitions(ends(5, 1, 0))).toEqual(new Map([['t', 2]]));
  expect(decidingPartitions(ends(0, 0))).toEqual(new Map([['t', 2]]));
});
