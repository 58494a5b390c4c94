import { mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { IdClient } from '../../src/client/index.ts';
import { MemoryWorkers } from '../../src/client/testing.ts';
import { blocksOf, ROOT, readPage } from '../support/docs.ts';

interface Db {
  query(sql: string, values: readonly unknown[]): Promise<unknown>;
}

/** The programs of the page. */
interface Programs {
  placeOrder(db: Db, client: IdClient, what: string): Promise<bigint>;
  invoice(db: Db, client: IdClient, orderId: number): Promise<string>;
  importPart(db: Db, client: IdClient, name: string, rows: readonly string[]): Promise<void>;
}

using place = mkdtempDisposableSync(join(tmpdir(), 'idalloc-patterns-'));
const file = join(place.path, 'patterns.mjs');
const programs = blocksOf(readPage('docs/how-to/patterns.md')).filter(({ language }) => language === 'js');
const text = programs.map(({ body }) => body.join('\n')).join('\n');
writeFileSync(file, text.replace("'@idalloc/client'", `'${join(ROOT, 'src/client/index.ts')}'`));
const { placeOrder, invoice, importPart }: Programs = await import(file);

let db: PGlite;
let workers: MemoryWorkers;
let client: IdClient;

beforeAll(async () => {
  db = await PGlite.create();
});

afterAll(() => db.close());

beforeEach(async () => {
  await db.exec(`DROP TABLE IF EXISTS orders, invoices;
    CREATE TABLE orders (id BIGINT PRIMARY KEY, what TEXT NOT NULL);
    CREATE TABLE invoices (order_id INTEGER PRIMARY KEY, number TEXT UNIQUE)`);
  workers = new MemoryWorkers();
  workers.createSequence('invoices/2027', { format: 'INV-{number:6}' });
  client = await workers.connect();
  return () => client.close();
});

const crash = new Error('the process ended');

/** A database whose process ends before its n-th query, or behind it. */
function ending(nth: number, when: 'before' | 'after'): Db {
  let queries = 0;
  return {
    async query(sql, values) {
      queries += 1;
      if (queries === nth && when === 'before') throw crash;
      await db.query(sql, [...values]);
      if (queries === nth) throw crash;
    },
  };
}

test('a row gets its ID from the buffer', async () => {
  const id = await placeOrder(db as Db, client, 'a book');
  expect((await db.query('SELECT * FROM orders')).rows).toEqual([{ id, what: 'a book' }]);
});

test.for([...(['before', 'after'] as const).flatMap((when) => [1, 2].map((nth) => ({ nth, when })))])(
  'an invoice has one number, and none is skipped, though the process ended $when query $nth',
  async ({ nth, when }) => {
    await expect(invoice(ending(nth, when), client, 1)).rejects.toThrow(crash);
    const number = await invoice(db as Db, client, 1);
    expect(await invoice(db as Db, client, 1)).toBe(number);
    expect([number, await invoice(db as Db, client, 2)]).toEqual(['INV-000001', 'INV-000002']);
    const { rows } = await db.query('SELECT number FROM invoices ORDER BY order_id');
    expect(rows).toEqual([{ number: 'INV-000001' }, { number: 'INV-000002' }]);
  },
);

test('an import that is begun again writes the same rows, and no other', async () => {
  const rows = ['a', 'b', 'c'];
  await expect(importPart(ending(2, 'after'), client, 'june/1', rows)).rejects.toThrow(crash);
  await importPart(db as Db, client, 'june/1', rows);
  expect((await db.query('SELECT what FROM orders ORDER BY id')).rows).toEqual(rows.map((what) => ({ what })));
});
