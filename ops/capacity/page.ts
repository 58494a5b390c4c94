import { table } from '../dev/markdown.ts';
import { type CapacityData, CRASH, IN_FLIGHT, type Served } from './data.ts';
import {
  BROKER_CORES,
  COPIES,
  DISK_SPARE,
  type Goal,
  KEPT_S,
  LAYOUT_IDS_PER_S,
  LOAD,
  type Plan,
  planOf,
  REPLICAS,
  SPARE_WORKERS,
} from './plan.ts';

/** What the page plans for. */
export const GOALS: readonly Goal[] = [
  { requestsPerS: 1_000, count: 1 },
  { requestsPerS: 10_000, count: 10 },
  { requestsPerS: 100_000, count: 30 },
];

const whole = (value: number) => Math.round(value).toLocaleString('en');
const few = (value: number) => Number(value.toPrecision(3)).toLocaleString('en');

function bytes(value: number): string {
  const units = ['bytes', 'KB', 'MB', 'GB', 'TB'];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(value) / 3)));
  return `${few(value / 1_000 ** power)} ${units[power]}`;
}

function time(seconds: number): string {
  if (seconds < 120) return `${few(seconds)} s`;
  return seconds < 7_200 ? `${few(seconds / 60)} min` : `${few(seconds / 3_600)} h`;
}

/** The cells of a figure of requests. */
function servedCells({ count, requestsPerS, workerUs, brokerUs }: Served): string[] {
  return [whole(requestsPerS), whole(count * requestsPerS), few(workerUs), few(brokerUs)];
}
const SERVED_HEAD = ['requests/s', 'IDs/s', "worker's µs each", "broker's µs each"];

function served(name: string, rows: readonly (readonly [string, Served])[]): string {
  return table(
    [name, ...SERVED_HEAD],
    rows.map(([first, one]) => [first, ...servedCells(one)]),
  );
}

/** Of requests of one ID, with the memory of a worker. */
function grown(name: string, rows: readonly (readonly [number, Served])[]): string {
  const [perS, , ...each] = SERVED_HEAD;
  return table(
    [name, perS ?? '', ...each, 'MiB of a worker'],
    rows.map(([first, one]) => {
      const [rate = '', , ...costs] = servedCells(one);
      return [String(first), rate, ...costs, String(one.memoryMib)];
    }),
  );
}

type Row = readonly [what: string, how: string, of: (plan: Plan, goal: Goal) => string];

/** The arithmetic of a plan: what, by which rule, and the result. */
const ROWS: readonly Row[] = [
  ['IDs/s', 'requests/s × IDs in each', (_, { requestsPerS, count }) => whole(requestsPerS * count)],
  ["worker's µs for a request", 'from the first table below, between its rows', ({ workerUs }) => few(workerUs)],
  ['cores of workers', 'requests/s × µs ÷ 1,000,000', ({ workerCores }) => few(workerCores)],
  ['cores of brokers', `${REPLICAS} replicas × requests/s × µs ÷ 1,000,000`, ({ brokerCores }) => few(brokerCores)],
  [
    '**workers**',
    `cores ÷ ${LOAD}, or IDs/s ÷ (${LAYOUT_IDS_PER_S.toLocaleString('en')} × ${LOAD}) if that is more; + ${SPARE_WORKERS}`,
    ({ workers }) => `**${workers}**`,
  ],
  [
    '**partitions**',
    `2 for each worker, or requests/s ÷ (rate of one partition × ${LOAD}) if that is more`,
    ({ partitions }) => `**${partitions}**`,
  ],
  [
    '**brokers**',
    `cores ÷ (${BROKER_CORES} × ${LOAD}), at least ${REPLICAS}`,
    ({ brokers }) => `**${brokers}** with ${BROKER_CORES} cores`,
  ],
  ['entries', `requests/s × ${KEPT_S / 3_600} h`, ({ entries }) => whole(entries)],
  [
    'written by all brokers',
    `requests/s × bytes of request, entry and reply × ${REPLICAS} replicas`,
    ({ writtenBytesPerS }) => `${bytes(writtenBytesPerS)}/s`,
  ],
  ['disk of all brokers for the ledger', `entries × bytes × ${REPLICAS} replicas`, (plan) => bytes(plan.ledgerBytes)],
  [
    'disk of each worker',
    `entries × ${COPIES} copies ÷ workers × bytes of one more entry × ${DISK_SPARE}`,
    (plan) => bytes(plan.indexBytes),
  ],
  [
    'memory of each worker',
    'the same entries × bytes of one more entry, and a worker without',
    (plan) => bytes(plan.memoryBytes),
  ],
  ['a worker without its `INDEX_DIR` has its copies again', 'its entries ÷ restored/s', (plan) => time(plan.restoreS)],
  [
    'a partition without any copy is served again',
    'entries ÷ partitions ÷ restored/s',
    (plan) => time(plan.partitionRestoreS),
  ],
  ['processor time in a year', 'cores × 8,760 h', (plan) => `${whole(plan.cpuHoursPerYear)} core hours`],
];

function planned(data: CapacityData): string {
  const plans = GOALS.map((goal) => [planOf(data, goal), goal] as const);
  const head = GOALS.map(
    ({ requestsPerS, count }) => `${whole(requestsPerS)} requests/s of ${count === 1 ? '1 ID' : `${count} IDs`}`,
  );
  return table(
    ['', 'how', ...head],
    ROWS.map(([what, how, of]) => [what, how, ...plans.map(([plan, goal]) => of(plan, goal))]),
  );
}

function doorRows({ doors, inProcess }: CapacityData): readonly (readonly string[])[] {
  const rows = doors.map(({ name, count, requestsPerS, p50Ms, p99Ms }) => {
    return [name, whole(count), whole(requestsPerS), whole(count * requestsPerS), few(p50Ms), few(p99Ms)];
  });
  return [...rows, ...inProcess.map(({ name, nsPerId }) => [name, '1', '', whole(1e9 / nsPerId), '', ''])];
}

function crashes({ doors, inProcess }: CapacityData): string {
  const names = new Set([...doors, ...inProcess].map(({ name }) => name));
  return table(
    ['way', 'when a process or a machine dies'],
    [...names].map((name) => [name, CRASH[name] ?? '']),
  );
}

/** The generated parts of the page, by the name of their markers. */
export function partsOf(data: CapacityData): Readonly<Record<string, string>> {
  const { machine, counts, ways, partitions, workers, latency, index, forms } = data;
  const [one] = counts;
  return {
    machine: `Measured on ${data.date} with version ${data.version}, on ${machine.cores} cores (${machine.processor}) and ${machine.memoryGib} GiB with
Node ${machine.node.replace('v', '')}; they also ran ${machine.servers.join(', ')} and the load.`,
    counts: served(
      'IDs in a request',
      counts.map((row) => [whole(row.count), row]),
    ),
    ways: served(
      'a request of one ID',
      ways.map((row) => [row.way, row]),
    ),
    bytes: `A request of one ID takes ${one?.bytes.requests} bytes in the request topic, ${one?.bytes.ledger} in the ledger and ${one?.bytes.replies} in the reply topic, on each replica.`,
    forms: table(
      ['form', 'write, ns', 'read, ns'],
      forms.map(({ form, formatNs, parseNs }) => [`\`${form}\``, whole(formatNs), whole(parseNs)]),
    ),
    latency: table(
      ['load', 'requests/s', 'p50, ms', 'p99, ms'],
      latency.points.map(({ share, requestsPerS, p50Ms, p99Ms }) => [
        `${100 * share} %`,
        whole(requestsPerS),
        few(p50Ms),
        few(p99Ms),
      ]),
    ),
    growth: [
      grown(
        'partitions, one worker',
        partitions.map((row) => [row.partitions, row]),
      ),
      grown(
        'workers, 12 partitions',
        workers.map((row) => [row.workers, row]),
      ),
    ].join('\n\n'),
    index: table(
      ['entries', 'bytes of disk each', 'bytes of memory each', 'restored/s'],
      index.map(({ entries, diskBytesPerEntry, memoryBytesPerEntry, restorePerS }) => [
        whole(entries),
        few(diskBytesPerEntry),
        few(memoryBytesPerEntry),
        whole(restorePerS),
      ]),
    ),
    doors: `${table([`way, ${IN_FLIGHT} requests at a time`, 'IDs each', 'requests/s', 'IDs/s', 'p50, ms', 'p99, ms'], doorRows(data))}\n\n${crashes(data)}`,
    plan: planned(data),
  };
}

/** A part between its markers: `<!-- figures: name -->` and `<!-- end -->`. */
const PART = /(<!-- figures: (\w+) -->\n)[\s\S]*?(<!-- end -->)/g;

/**
 * The page with its generated parts.
 *
 * @throws Error if the page lacks a part, or names one that does not exist.
 */
export function pageOf(page: string, data: CapacityData): string {
  const parts = partsOf(data);
  const seen = new Set<string>();
  const text = page.replaceAll(PART, (_, begin: string, name: string, end: string) => {
    const part = parts[name];
    if (part === undefined) throw new Error(`the page on capacity names figures '${name}', which do not exist`);
    seen.add(name);
    return `${begin}\n${part}\n\n${end}`;
  });
  const lacks = Object.keys(parts).filter((name) => !seen.has(name));
  if (lacks.length > 0) throw new Error(`the page on capacity does not show the figures ${lacks.join(', ')}`);
  return text;
}
