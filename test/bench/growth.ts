import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { Served } from '../../ops/capacity/data.ts';
import { table } from '../../src/cli/output.ts';
import { fillLedger } from '../support/filled-ledger.ts';
import { Realm } from '../support/realm.ts';
import { type Growth, growthOf } from './growth-rate.ts';
import { ReportServers } from './report/servers.ts';
import { type Case, type Effort, serve } from './report/serving.ts';

/**
 * What more partitions, workers, reply topics and entries cost: the processor time of a request, memory, and the time
 * to start. Nothing may grow faster than what it grows with, and a request's time hardly at all.
 */
const { values } = parseArgs({
  options: {
    scale: { type: 'string', default: '1' },
    rounds: { type: 'string', default: '3' },
    entries: { type: 'string', default: '100000,1000000,10000000' },
    only: { type: 'string' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures what more partitions, workers, reply topics and entries cost, and says what grows faster than they do.',
      'npm run bench:growth -- [--scale 1] [--rounds 3] [--entries 100000,1000000,10000000] [--only NAME] [--json]',
      '  --scale    how many requests are served; 0.05 tries the program',
      '  --entries  of the ledger and of the index on disk, at a start; 10,000,000 take some 5 GB below the temporary directory',
      "  --only     the tables whose name contains this, such as 'reply'",
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const say = (line: string) => process.stderr.write(`${line}\n`);
const effort: Effort = { scale: Number(values.scale), rounds: Number(values.rounds), say };
/** Of the ledger from which workers start. */
const PARTITIONS = 12;
const isWanted = (name: string) => name.includes(values.only ?? '');

interface Row {
  /** How many there are of what grows. */
  readonly size: number;
  /** Named costs. */
  readonly figures: Readonly<Record<string, number>>;
}
interface Table {
  readonly name: string;
  readonly rows: readonly Row[];
  /** Of each cost. */
  readonly growth: Readonly<Record<string, Growth>>;
}

/**
 * The exponent that a cost may have. More of anything should cost a request nothing; but several workers share the
 * cores of this machine.
 */
const MOST = { 'worker us': 0.5, MiB: 1, 'restore ms': 1, 'start ms': 1 };

function tableOf(name: string, rows: readonly Row[]): Table {
  const costs = Object.entries(MOST).filter(([cost]) => rows[0]?.figures[cost] !== undefined);
  const points = (cost: string) => rows.map(({ size, figures }) => [size, figures[cost] ?? Number.NaN] as const);
  return { name, rows, growth: Object.fromEntries(costs.map(([cost, most]) => [cost, growthOf(points(cost), most)])) };
}

const SERVING: readonly (readonly [
  name: string,
  grows: 'partitions' | 'workers' | 'replyTopics',
  Partial<Case>,
  number[],
])[] = [
  ['partitions, one worker', 'partitions', {}, [1, 8, 64, 256]],
  ['workers, 12 partitions', 'workers', { partitions: 12 }, [1, 2, 3, 4]],
  ['workers, 64 partitions', 'workers', { partitions: 64 }, [1, 2, 3, 4]],
  ['reply topics, one worker', 'replyTopics', {}, [1, 10, 1_000]],
];

function rowOf(size: number, { requestsPerS, workerUs, brokerUs, memoryMib }: Served): Row {
  return {
    size,
    figures: { 'requests/s': requestsPerS, 'worker us': workerUs, 'broker us': brokerUs, MiB: memoryMib },
  };
}

/** The time from the start of a worker until it is ready, with an index on disk that has the whole ledger. */
async function starts(report: ReportServers): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const entries of values.entries.split(',').map(Number)) {
    const dir = mkdtempSync(join(tmpdir(), 'idalloc-growth-'));
    try {
      await using realm = await Realm.create(report.servers, { partitions: PARTITIONS });
      await fillLedger(realm, Math.ceil(entries / PARTITIONS));
      const start = async () => {
        const beginMs = performance.now();
        const worker = realm.worker({ INDEX_DIR: dir });
        const { seenMs } = await worker.ready();
        const mib = (await worker.metric('process_resident_memory_bytes')) / 2 ** 20;
        await worker.stop();
        return { ms: Math.round(seenMs - beginMs), MiB: Math.round(mib) };
      };
      const restored = await start();
      const times = [];
      for (let round = 0; round < effort.rounds; round += 1) times.push(await start());
      const least = times.toSorted((one, other) => one.ms - other.ms)[0] ?? restored;
      rows.push({ size: entries, figures: { 'restore ms': restored.ms, 'start ms': least.ms, MiB: least.MiB } });
      say(JSON.stringify(rows.at(-1)));
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  }
  return rows;
}
async function measured(): Promise<readonly Table[]> {
  await using report = await ReportServers.start(say);
  const tables: Table[] = [];
  for (const [name, grows, fixed, sizes] of SERVING.filter(([name]) => isWanted(name))) {
    const cases = sizes.map((size) => ({ ...fixed, [grows]: size }));
    const served = await serve(report, effort, cases);
    tables.push(
      tableOf(
        name,
        served.map((one, i) => rowOf(sizes[i] ?? Number.NaN, one)),
      ),
    );
  }
  const name = 'entries, at a start';
  if (isWanted(name)) tables.push(tableOf(name, await starts(report)));
  return tables;
}

function text({ name, rows, growth }: Table): string {
  const titles = Object.keys(rows[0]?.figures ?? {});
  const right = true;
  const columns = [{ title: name, right }, ...titles.map((title) => ({ title, right }))];
  const lines = rows.map(({ size, figures }) => [size, ...titles.map((title) => figures[title])].map(String));
  const found = Object.entries(growth).map(([cost, { exponent, isTooSteep }]) => {
    return `${cost} ~ size^${exponent.toFixed(2)}${isTooSteep ? ', which is TOO STEEP' : ''}`;
  });
  return `${table(columns, lines)}${found.join('; ')}\n`;
}

const tables = await measured();
process.stdout.write(values.json ? `${JSON.stringify(tables)}\n` : tables.map(text).join('\n'));
process.exitCode = tables.some(({ growth }) => Object.values(growth).some((one) => one.isTooSteep)) ? 1 : 0;
