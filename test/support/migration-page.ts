import { mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { IdClient } from '../../src/client/index.ts';
import { compose } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks } from '../../src/core/units.ts';
import { decode } from '../../src/ids/ids.ts';
import { blockCommands, blocksOf, ROOT, readPage } from './docs.ts';

/** A PostgreSQL, as the programs of the page use it. */
export interface Db {
  query(
    sql: string,
    values?: readonly unknown[],
  ): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
  /** Statements without parameters. */
  exec(sql: string): Promise<unknown>;
}

interface Programs {
  backfill(db: Db, client: Pick<IdClient, 'request'>, size: number): Promise<void>;
  newKey(client: IdClient): string;
  idOf(key: string): bigint;
}

const PAGE = readPage('docs/how-to/migrate.md');
const textsOf = (language: string) =>
  blocksOf(PAGE)
    .filter((block) => block.language === language)
    .map(({ body }) => body.join('\n'));
const SQL = textsOf('sql');

/** The variables that the page gives to workers beside a Snowflake generator. */
export const BESIDE: Readonly<Record<string, string>> = Object.fromEntries(
  blockCommands(PAGE)
    .filter(({ command }) => command.startsWith('export '))
    .flatMap(({ command }) => command.slice('export '.length).split(' '))
    .map((assignment) => assignment.split('=') as [string, string]),
);
export const SNOWFLAKE = presetLayout('twitter-2010');
/** The sequence that the page creates, and its first number. */
export const NUMBERS = /sequence create (?<name>\S+) --start (?<start>\d+)/.exec(PAGE)?.groups ?? {};

async function programs(): Promise<Programs> {
  using place = mkdtempDisposableSync(join(tmpdir(), 'idalloc-migrate-'));
  const file = join(place.path, 'migrate.mjs');
  const entry = (name: string) => `'${join(ROOT, name)}'`;
  const text = textsOf('js').join('\n');
  writeFileSync(
    file,
    text
      .replace("'@idalloc/client'", entry('src/client/index.ts'))
      .replace("'@idalloc/client/ids'", entry('src/ids/index.ts')),
  );
  return await import(file);
}

/** The one SQL block of the page that has this text. */
function sql(part: string): string {
  const found = SQL.filter((text) => text.includes(part));
  if (found.length !== 1) throw new Error(`${found.length} SQL blocks of the page have ${part}`);
  return String(found[0]);
}

/** An ID of the generator that was there before. */
function oldId(machine: number, at: number): bigint {
  const parts = { datacenter: machine >> 5, worker: machine & 31, sequence: 0 };
  return compose(SNOWFLAKE, { ticks: ticks(at), ...parts });
}

const counted = (rows: readonly Readonly<Record<string, unknown>>[], name: string) =>
  rows.map((row) => Number(row[name]));

async function besideSnowflake(db: Db, client: IdClient): Promise<void> {
  await db.exec('CREATE TABLE events (id BIGINT PRIMARY KEY, source TEXT NOT NULL)');
  const insert = (id: bigint, source: string) => db.query('INSERT INTO events VALUES ($1, $2)', [String(id), source]);
  for (const machine of [3, 700]) for (const at of [1_000, 2_000]) await insert(oldId(machine, at), 'old');
  const id = await client.takeAsync(1).then(([first]) => first ?? 0n);
  await insert(id, 'idalloc');
  const { datacenterId, workerId } = decode(id, SNOWFLAKE);
  const own = datacenterId * 32 + workerId;
  expect(own).toBeGreaterThanOrEqual(1_008);
  expect(counted((await db.query(sql('AS machine'))).rows, 'machine')).toEqual([3, 700, own]);
  expect((await db.query(sql("source = 'idalloc'"))).rows).toEqual([]);
  await insert(oldId(1_010, 3_000), 'old');
  expect((await db.query(sql("source = 'idalloc'"))).rows).toHaveLength(1);
}

async function widen(db: Db, client: IdClient): Promise<void> {
  await db.exec(`CREATE TABLE orders (id SERIAL PRIMARY KEY, what TEXT);
    INSERT INTO orders (what) SELECT 'old' FROM generate_series(1, 500);
    CREATE TABLE order_lines (order_id BIGINT REFERENCES orders);
    INSERT INTO order_lines SELECT n FROM generate_series(1, 9) AS n`);
  const insert = (what: string) => db.query('INSERT INTO orders (what) VALUES ($1) RETURNING id', [what]);
  const give = (id: bigint) => db.query('INSERT INTO orders (id, what) VALUES ($1, $2)', [String(id), 'new']);
  const [id = 0n] = await client.takeAsync(1);
  await expect(give(id)).rejects.toThrow(/integer/);
  await db.exec(sql('ADD COLUMN big_id'));
  await insert('written meanwhile');
  await db.exec(sql('UPDATE orders'));
  expect(counted((await db.query(sql('AS missing FROM orders'))).rows, 'missing')).toEqual([0]);
  await db.exec(sql('CONCURRENTLY'));
  await db.exec(sql('CHECK (big_id'));
  await db.exec(sql('LOCK TABLE'));
  await db.exec(sql('FOREIGN KEY'));
  await expect(db.exec('INSERT INTO order_lines VALUES (4711)')).rejects.toThrow(/order_lines_order_id_fkey/);
  expect(counted((await insert('after the swap')).rows, 'id')).toEqual([502]);
  const keys = await db.query("SELECT 1 FROM pg_index WHERE indrelid = 'orders'::regclass AND indisprimary");
  expect(keys.rows).toHaveLength(1);
  await db.exec(sql('OWNED BY'));
  expect(counted((await insert('without the old column')).rows, 'id')).toEqual([503]);
  await give(id);
  await expect(give(id)).rejects.toThrow(/orders_pkey/);
  await db.exec(sql('ALTER TABLE orders ALTER COLUMN id DROP DEFAULT;'));
  await expect(insert('forgotten')).rejects.toThrow(/null value/);
  const { rows } = await db.query('SELECT id FROM orders ORDER BY id');
  expect(rows.map((row) => BigInt(String(row.id)))).toEqual([
    ...Array.from({ length: 503 }, (_, i) => BigInt(i + 1)),
    id,
  ]);
}

async function fill(db: Db, client: IdClient): Promise<void> {
  const { backfill } = await programs();
  await db.exec(`CREATE TABLE customers (id INTEGER PRIMARY KEY, email TEXT UNIQUE NOT NULL, new_id BIGINT);
    INSERT INTO customers SELECT n, 'someone' || n FROM generate_series(1, 25) AS n`);
  await db.exec(sql('ALTER TABLE customers'));
  const given = new Map<string, unknown>();
  let again = 0;
  const watched: Pick<IdClient, 'request'> = {
    async request(options) {
      const answer = await client.request(options);
      const name = String(options.correlationId);
      const { ranges } = answer.batch;
      if (given.has(name)) {
        expect(ranges).toEqual(given.get(name));
        again += 1;
      }
      given.set(name, ranges);
      return answer;
    },
  };
  const ended = new Error('the process ended');
  let updates = 0;
  const ending: Db = {
    exec: (text) => db.exec(text),
    async query(text, values) {
      if (text.startsWith('UPDATE') && ++updates === 2) throw ended;
      return db.query(text, values);
    },
  };
  await expect(backfill(ending, watched, 10)).rejects.toThrow(ended);
  await backfill(db, watched, 10);
  expect([again, given.size]).toEqual([1, 3]);
  const { rows } = await db.query('SELECT count(DISTINCT new_id) AS filled, max(new_id) AS newest FROM customers');
  expect(counted(rows, 'filled')).toEqual([25]);
  expect(BigInt(String(rows[0]?.newest))).toBeGreaterThan(2n ** 31n);
}

async function uuids(db: Db, client: IdClient): Promise<void> {
  const { newKey, idOf } = await programs();
  await db.exec(`CREATE TABLE documents (key UUID PRIMARY KEY, at SERIAL);
    INSERT INTO documents (key) SELECT gen_random_uuid() FROM generate_series(1, 20)`);
  await client.ready();
  const keys = Array.from({ length: 20 }, () => newKey(client));
  for (const key of keys) await db.query('INSERT INTO documents (key) VALUES ($1)', [key]);
  const { rows } = await db.query('SELECT key::text AS key FROM documents WHERE at > 20 ORDER BY documents.key');
  expect(rows.map(({ key }) => key)).toEqual(keys);
  const before = await db.query('SELECT key::text AS key FROM documents WHERE at <= 20');
  for (const { key } of before.rows) expect(() => idOf(String(key))).toThrow(/uuid7/);
  const ids = keys.map(idOf);
  expect(ids).toEqual(ids.toSorted((one, other) => (one < other ? -1 : 1)));
}

async function invoices(db: Db, client: IdClient): Promise<void> {
  const { name = '', start } = NUMBERS;
  const last = Number(start) - 1;
  await db.exec(`CREATE TABLE invoices (number INTEGER PRIMARY KEY);
    INSERT INTO invoices SELECT n FROM generate_series(${last - 9}, ${last}) AS n`);
  const gaps = async () => counted((await db.query(sql('AS following'))).rows, 'missing');
  expect(counted((await db.query(sql('AS last FROM invoices'))).rows, 'last')).toEqual([last]);
  for (const document of ['order-1', 'order-2', 'order-1']) {
    const taken = await client.sequence(name).take(1, { correlationId: document });
    await db.query('INSERT INTO invoices VALUES ($1) ON CONFLICT DO NOTHING', [taken.numbers()[0]]);
  }
  expect(counted((await db.query(sql('AS last FROM invoices'))).rows, 'last')).toEqual([last + 2]);
  expect(await gaps()).toEqual([]);
  await db.exec(`DELETE FROM invoices WHERE number = ${last}`);
  expect(await gaps()).toEqual([last]);
}

/** What the page promises, with what follows it from its first statement to its last. */
export const MIGRATIONS: readonly (readonly [claim: string, follow: (db: Db, client: IdClient) => Promise<void>])[] = [
  ['IDs beside a Snowflake generator come from other machine numbers, and a stray one is found', besideSnowflake],
  ['a key is widened while rows are written, and takes IDs beside the old keys', widen],
  ['rows without an ID are filled by a run that was interrupted, with the IDs that it had asked for', fill],
  ['a UUID column takes IDs that sort, and knows them from the keys before', uuids],
  ['invoice numbers go on behind the last one, without a gap', invoices],
];
