import { expect, test } from 'vitest';
import { spansSince } from '../../../src/cli/audit/audit-run.ts';
import { MemoryLogs } from '../../adapters/kafka/topics/memory-logs.ts';

/** What is read of 5,000 records that are all older than the time. */
function spansOf(options: Parameters<typeof spansSince>[2]) {
  const { runtime, source } = new MemoryLogs().append('a', 0, 5_000);
  return runtime.until(spansSince(source, ['a'], options));
}

test('a part of the time begins with its first record, or so many before it', async () => {
  const whole = { topic: 'a', partition: 0, from: 0, to: 5_000 };
  expect(await spansOf({ fromMs: Number.NEGATIVE_INFINITY })).toEqual([whole]);
  expect(await spansOf({ fromMs: 1 })).toEqual([{ ...whole, from: 5_000, fromMs: 1 }]);
  expect(await spansOf({ fromMs: 1, before: 1_000 })).toEqual([{ ...whole, from: 4_000, fromMs: 1 }]);
  expect(await spansOf({ fromMs: 1, before: 5_000 }), 'all of it').toEqual([whole]);
});
