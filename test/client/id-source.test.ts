import { expect, expectTypeOf, test } from 'vitest';
import type { IdClient } from '../../src/client/client.ts';
import type { IdSource } from '../../src/client/id-source.ts';
import { MemoryWorkers } from '../../src/client/testing.ts';

/** The public members of the class, apart from `await using`, which is not needed to take IDs. */
type Members = Pick<IdClient, Exclude<keyof IdClient, symbol>>;

test('IdSource and IdClient have the same members of the same types', () => {
  expectTypeOf<IdSource>().toEqualTypeOf<Members>();
});

test('a service that takes an IdSource is given a client of workers in memory, or an object of its own', async () => {
  const orderId = (ids: Pick<IdSource, 'next'>): string => String(ids.next());
  await using client = await new MemoryWorkers({ clock: () => Date.parse('2026-06-02T16:05:00Z') }).connect();
  expect(orderId(client)).toBe('55325805772800000');
  expect(orderId({ next: () => 7n })).toBe('7');
});
