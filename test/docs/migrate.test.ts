import { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MemoryWorkers } from '../../src/client/testing.ts';
import { BESIDE, type Db, MIGRATIONS, NUMBERS, SNOWFLAKE } from '../support/migration-page.ts';

// Statements and programs of 'docs/how-to/migrate.md'; test/integration/migrate has them on a PostgreSQL of its own.

let db: PGlite;

beforeAll(async () => {
  db = await PGlite.create();
});

afterAll(() => db.close());

test.for(MIGRATIONS)('%s', async ([, follow]) => {
  const workers = new MemoryWorkers({
    layout: SNOWFLAKE,
    datacenterId: Number(BESIDE.DATACENTER_ID),
    workerId: Number(BESIDE.POOL_FIRST),
  });
  workers.createSequence(NUMBERS.name ?? '', { start: Number(NUMBERS.start) });
  const client = await workers.connect();
  try {
    await follow(db as unknown as Db, client);
  } finally {
    await client.close();
  }
});

test('the page names a pool beside a datacenter ID, and a sequence with its first number', () => {
  expect(BESIDE).toMatchObject({ LAYOUT: SNOWFLAKE.name, POOL_FIRST: '16', POOL_LAST: '31' });
  expect(NUMBERS).toMatchObject({ name: 'invoices/2026', start: '48213' });
});
