import { mkdtempDisposableSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Served } from '../../ops/capacity/data.ts';
import { table } from '../../src/cli/output.ts';
import { fillLedger } from '../support/filled-ledger.ts';
import { Realm } from '../support/realm.ts';
import { emptyFetches, metadataCalls } from './calls.ts';
import { fittedExponent, type Growth, growthOf } from './growth-rate.ts';
import { indexGrowth } from './index-growth.ts';
import { optionsOf } from './options.ts';
import { ReportServers } from './report/servers.ts';
import { type Case, type Effort, serve } from './report/serving.ts';

/**
 * What more partitions, workers, reply topics and entries cost: the processor time of a request, memory, and the time
 * to start. Nothing may grow faster than what it grows with, and a request's time hardly at all. What one request costs
 * the index is also measured alone, up to far more entries.
 */
const values = optionsOf(
  'bench:growth',
  ['Measures what more partitions, workers, reply topics and entries cost, and says what grows faster than they do.'],
  { scale: 1, rounds: 3, entries: [100_000, 1_000_000, 10_000_000], index: [3.1, 9.4, 34.6, 135.2], only: '' },
  {
    scale: 'how many requests are served; 0.05 tries the program',
    entries:
      'of the ledger and of the index on disk, at a start; 10,000,000 take some 5 GB below the temporary directory',
    index: 'of one partition, in millions, for the costs of its index alone; all take some minutes, and 2.5 GB there',
    only: "the tables whose name contains this, such as 'reply'",
  },
);
const say = (line: string) => process.stderr.write(`${line}\n`);
const effort: Effort = { scale: values.scale, rounds: values.rounds, say };
/** Of the ledger from which workers start. */
const PARTITIONS = 12;
const isWanted = (name: string) => name.includes(values.only);

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
const MOST = { 'worker us': 0.5, MiB: 1, 'restore ms': 1, 'start ms': 1, 'fetch us': 0.5, calls: 1 };

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
  for (const entries of values.entries) {
    using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-growth-'));
    await using realm = await Realm.create(report.servers, { partitions: PARTITIONS });
    await fillLedger(realm, Math.ceil(entries / PARTITIONS));
    const start = async () => {
      const beginMs = performance.now();
      const worker = realm.worker({ INDEX_DIR: dir.path });
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
  }
  return rows;
}
const OF_FETCHES = 'partitions, a fetch that finds nothing';
const FETCHED = [8, 256, 1_000];

async function fetches(report: ReportServers): Promise<readonly Row[]> {
  const found = await emptyFetches(report, effort, FETCHED);
  return found.map(({ tailUs, brokerUs, namedUs }, i) => {
    const figures = { 'fetch us': tailUs, 'broker us': brokerUs, 'us without a session': namedUs };
    return { size: FETCHED[i] ?? Number.NaN, figures };
  });
}

const OF_METADATA = 'reply topics, calls for metadata';
const ANSWERED = 200_000;

async function metadata({ stage }: ReportServers): Promise<readonly Row[]> {
  const rows: Row[] = [];
  for (const size of [1, 1_000, 2_000]) {
    const named = await metadataCalls(stage, size, Math.round(effort.scale * ANSWERED));
    const asked = named.filter((topics) => topics > 0); // the others look for brokers
    rows.push({ size, figures: { calls: asked.length, 'topics named': asked.reduce((sum, one) => sum + one, 0) } });
    say(`${size} reply topics: ${JSON.stringify(named)}`);
  }
  return rows;
}

const OF_SERVERS = 'entries, at a start';
const OF_INDEX = 'entries of a partition, its index alone';
/**
 * The exponent that the costs of one request may have: none but for chance. A look-up alone mostly waits for memory,
 * and a processor's caches hold less of a larger index.
 */
const FLAT = { 'look-up us': 0.2, 'look-up and apply us': 0.1 };

/** Each last size of the runs that are merged has the half of its entries here, so that only their number differs. */
function indexTable(): Table {
  const rows = indexGrowth(
    values.index.map((millions) => Math.round(millions * 1e6)),
    say,
  ).map(({ entries, lookUpUs, requestUs, diskBytesEach, memoryBytesEach, loadMs, longestStepMs }) => {
    const shown = (figure: number) => Number(figure.toPrecision(3));
    const figures = {
      'look-up us': shown(lookUpUs),
      'look-up and apply us': shown(requestUs),
      'bytes on disk each': shown(diskBytesEach),
      'bytes of memory each': shown(memoryBytesEach),
      'load ms': shown(loadMs),
      'its longest step ms': shown(longestStepMs),
    };
    return { size: entries, figures };
  });
  const fitted = (cost: keyof typeof FLAT): Growth => {
    const exponent = rows.length === 1 ? 0 : fittedExponent(rows.map(({ size, figures }) => [size, figures[cost]]));
    return { exponent, isTooSteep: exponent > FLAT[cost] };
  };
  const growth = { 'look-up us': fitted('look-up us'), 'look-up and apply us': fitted('look-up and apply us') };
  return { name: OF_INDEX, rows, growth };
}

async function measured(): Promise<readonly Table[]> {
  const tables: Table[] = isWanted(OF_INDEX) ? [indexTable()] : [];
  if (![...SERVING.map(([name]) => name), OF_FETCHES, OF_METADATA, OF_SERVERS].some(isWanted)) return tables;
  await using report = await ReportServers.start(say);
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
  if (isWanted(OF_FETCHES)) tables.push(tableOf(OF_FETCHES, await fetches(report)));
  if (isWanted(OF_METADATA)) tables.push(tableOf(OF_METADATA, await metadata(report)));
  if (isWanted(OF_SERVERS)) tables.push(tableOf(OF_SERVERS, await starts(report)));
  return tables;
}

function text({ name, rows, growth }: Table): string {
  const titles = Object.keys(rows[0]?.figures ?? {});
  const columns = [name, ...titles].map((title) => `>${title}`);
  const lines = rows.map(({ size, figures }) => [size, ...titles.map((title) => figures[title])].map(String));
  const found = Object.entries(growth).map(([cost, { exponent, isTooSteep }]) => {
    return `${cost} ~ size^${exponent.toFixed(2)}${isTooSteep ? ', which is TOO STEEP' : ''}`;
  });
  return `${table(columns, lines)}${found.join('; ')}\n`;
}

const tables = await measured();
process.stdout.write(values.json ? `${JSON.stringify(tables)}\n` : tables.map(text).join('\n'));
process.exitCode = tables.some(({ growth }) => Object.values(growth).some((one) => one.isTooSteep)) ? 1 : 0;
