import { PGlite } from '@electric-sql/pglite';
import { expect, test } from 'vitest';
import { blocksOf, readPage } from '../support/docs.ts';

/** The SQL of the page, in its order. */
const SNIPPETS = blocksOf(readPage('docs/how-to/sql-json-browsers.md'))
  .filter(({ language }) => language === 'sql')
  .map(({ body }) => body.join('\n'));

test('PostgreSQL runs the SQL of the page, and keeps IDs exact as BIGINT and as text in JSON', async () => {
  const db = await PGlite.create();
  try {
    const [, , placed] = await Promise.all([
      db.exec(SNIPPETS[0] ?? ''),
      db.exec("INSERT INTO orders VALUES (9223372036854775807, 'the largest')"),
      db.query<{ json_build_object: unknown }>(SNIPPETS[1] ?? ''),
    ]);
    expect(placed.rows.map((row) => row.json_build_object)).toEqual([
      { id: '55325805773398016', placed: 'first' },
      { id: '55325805773398017', placed: 'second' },
      { id: '9223372036854775807', placed: 'the largest' },
    ]);
    const inSpan = await db.query<{ id: bigint }>(
      'SELECT id FROM orders WHERE id BETWEEN 55324547481600000 AND 55339646975999999 ORDER BY id',
    );
    expect(inSpan.rows.map(({ id }) => BigInt(id))).toEqual([55_325_805_773_398_016n, 55_325_805_773_398_017n]);
  } finally {
    await db.close();
  }
  expect(SNIPPETS).toHaveLength(2);
});

test('as many distinct numbers are left of 2,000 consecutive IDs in JSON as the page says', () => {
  const ids = Array.from({ length: 2_000 }, (_, i) => 117_652_451_833_733_120n + BigInt(i));
  const left = new Set<number>(JSON.parse(`[${ids.join()}]`));
  const page = readPage('docs/how-to/sql-json-browsers.md').replaceAll(/\s+/g, ' ');
  expect(page).toContain(`read by \`JSON.parse\`, ${left.size} distinct numbers are left`);
});
