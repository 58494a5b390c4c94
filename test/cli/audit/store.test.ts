import { mkdtempSync, readdirSync, rmdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { packRanges } from '../../../src/cli/audit/ids.ts';
import { withStore } from '../../../src/cli/audit/store.ts';
import { batchAt, entry, reply } from './batches.ts';

let place: string;

beforeEach(() => {
  place = mkdtempSync(join(tmpdir(), "idalloc-test-it's-"));
});

afterEach(() => rmdirSync(place)); // fails unless the directory is empty

test('returns what was added, each correlation ID in one group, its entries before its replies', async () => {
  const ids = Array.from({ length: 2_000 }, (_, i) => `c${i}`);
  await withStore(place, async (store) => {
    expect(readdirSync(place)).toHaveLength(1);
    for (const [i, id] of ids.entries()) {
      store.add(reply(id, batchAt(i), { offset: i, again: i % 2 === 0 }));
      store.add(entry(id, batchAt(i), { offset: i, doubtful: i % 3 === 0 }));
    }
    const found = [...store.grouped()];
    const groups = Map.groupBy(found, ({ requestId }) => String(requestId));
    expect(groups.size).toBe(ids.length);
    for (const [i, id] of ids.entries()) {
      const [first, second] = groups.get(id) ?? [];
      expect(first).toMatchObject({ ...entry(id, batchAt(i), { offset: i, doubtful: i % 3 === 0 }) });
      expect(second).toMatchObject({ ...reply(id, batchAt(i), { offset: i, again: i % 2 === 0 }) });
    }
    const order = [...new Set(found.map(({ group }) => group))];
    expect(found.map(({ group }) => order.indexOf(group))).toEqual(
      found.map(({ group }) => order.indexOf(group)).toSorted((a, b) => a - b),
    );
  });
});

test('returns runs by their first ID, up to the largest possible ID', async () => {
  const firsts = [2n ** 63n - 2n, 0n, 2n ** 53n + 1n, 2n ** 53n];
  await withStore(place, async (store) => {
    for (const first of firsts) {
      store.addUnit({ ...entry('c', batchAt(1)), ranges: packRanges([{ first, count: 2 }], 1n) });
    }
    expect([...store.byFirstId()].map(({ first, last }) => [first, last])).toEqual(
      firsts.toSorted((a, b) => (a < b ? -1 : 1)).map((first) => [first, first + 1n]),
    );
    expect(store.runs).toBe(4);
  });
});

test('deletes its files after an error, and names its own errors INDEX_UNUSABLE', async () => {
  const full = Object.assign(new Error('database or disk is full'), { code: 'ERR_SQLITE_ERROR' });
  await expect(withStore(place, () => Promise.reject(full))).rejects.toMatchObject({ code: 'INDEX_UNUSABLE' });
  const other = new Error('other');
  await expect(withStore(place, () => Promise.reject(other))).rejects.toBe(other);
  await expect(withStore(`${place}/nowhere`, async () => undefined)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
});

test('takes more than one transaction holds', async () => {
  await withStore(place, async (store) => {
    const rows = 50_001;
    for (let offset = 0; offset < rows; offset += 1) store.addLetter({ partition: 0, offset, recordMs: undefined });
    store.add(reply('c', batchAt(1), { offset: 7 }));
    expect([...store.grouped()]).toMatchObject([{ offset: 7 }]);
  });
});
