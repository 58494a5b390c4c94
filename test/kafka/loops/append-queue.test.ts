import { expect, test } from 'vitest';
import { AppendQueue } from '../../../src/kafka/loops/append-queue.ts';
import type { NewRecord } from '../../../src/kafka/records/record.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

test('what shared an append that was refused for one record is appended alone, one at a time and in order', async () => {
  const runtime = new VirtualRuntime();
  const appended: string[] = [];
  let [inFlight, most] = [0, 0];
  const queue = new AppendQueue({
    runtime,
    maxRecords: 10,
    maxBytes: 1_000,
    isOfRecord: (error) => error === 'refused',
    append: async (records) => {
      const names = records.map(({ value }) => String(value)).join('');
      appended.push(names);
      inFlight += 1;
      most = Math.max(most, inFlight);
      await runtime.sleep(10);
      inFlight -= 1;
      if (names.includes('b')) throw 'refused';
    },
  });
  const record = (name: string): NewRecord => ({ key: null, value: Buffer.from(name) });
  const outcome = (name: string) =>
    queue.add([record(name)], 10).then(
      () => name,
      (error: unknown) => error,
    );
  const outcomes = runtime.until(Promise.all(['a', 'b', 'c'].map(outcome)));
  expect(await outcomes).toEqual(['a', 'refused', 'c']);
  expect(appended).toEqual(['abc', 'a', 'b', 'c']);
  expect(most).toBe(1);
});
