import { mkdtempDisposableSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../../src/cli/output.ts';
import { PRICES_US } from '../../src/pipeline/accounts.ts';
import { optionsOf } from './options.ts';
import { ServedPath, type Shape } from './served-path.ts';
import { median } from './stage.ts';

/**
 * What dear requests cost more than ordinary ones, beside the price that their account is charged. It is measured as
 * `bench:path` does, without servers and sockets, so an append and what brokers do for a dead letter cost more in fact.
 * A decision that is read again needs servers, and is not among them.
 */
const { requests, rounds, partitions, json } = optionsOf(
  'bench:prices',
  ['Measures what each thing that makes a request dear costs, beside the price that is charged for it.'],
  { requests: 10_000, rounds: 7, partitions: 8 },
  { requests: 'of each kind in a round' },
);

/** What makes each request dear, and how many units of that it has. A part has 500 requests. */
const DEAR: Readonly<Record<string, { readonly shape: Shape; readonly units: number; readonly charged: number }>> = {
  'a request': { shape: {}, units: 1, charged: PRICES_US.request },
  'a KiB': { shape: { padBytes: 8_192 }, units: 8, charged: PRICES_US.kibibyte },
  'a record that is none': { shape: { isJunk: true }, units: 1, charged: PRICES_US.letter },
  '1,000 listed IDs': { shape: { listed: 1_000 }, units: 1, charged: PRICES_US.listed },
  'a reply topic more': { shape: { topics: 100 }, units: 100 / 500, charged: PRICES_US.append },
  'a copy for its home': { shape: { isElsewhere: true }, units: 1, charged: PRICES_US.forward },
};

using directory = mkdtempDisposableSync(join(tmpdir(), 'idalloc-prices-'));
using path = new ServedPath(directory.path, partitions);
await path.serve(50_000); // compiles the code
const found: Record<string, number[]> = Object.fromEntries(Object.keys(DEAR).map((name) => [name, []]));
for (let round = 1; round <= rounds; round += 1) {
  for (const [name, { shape }] of Object.entries(DEAR)) found[name]?.push(await path.serve(requests, shape));
}
const ordinaryUs = median(found['a request'] ?? []);
const rows = Object.entries(DEAR).map(([name, { units, charged }]) => {
  const us = median(found[name] ?? []);
  return { name, measured_us: Number((name === 'a request' ? us : (us - ordinaryUs) / units).toFixed(1)), charged };
});
const columns = ['what', '>measured, us', '>charged, us'];
const lines = rows.map(({ name, measured_us, charged }) => [name, String(measured_us), String(charged)]);
process.stdout.write(json ? `${JSON.stringify(rows)}\n` : `${table(columns, lines)}\n`);
