import { expect, test } from 'vitest';
import { UndatedTopics } from '../../../src/adapters/kafka/undated-topics.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

test('of many topics that refuse the times of records at most a thousand are remembered, the last one among them', () => {
  const topics = new UndatedTopics(new VirtualRuntime());
  const names = Array.from({ length: 2_500 }, (_, i) => `t${i}`);
  for (const name of names) {
    topics.add(name);
    expect(topics.has(name)).toBe(true);
  }
  expect(names.filter((name) => topics.has(name)).length).toBeLessThanOrEqual(1_000);
});
