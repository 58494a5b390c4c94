import { table } from '../dev/markdown.ts';
import { type CapacityData, CRASH, type Door, type Form, IN_FLIGHT, MOST_OTHERS_PERCENT, type Served } from './data.ts';
import { trustText } from './odd.ts';
import {
  BROKER_CORES,
  COPIES,
  DISK_SPARE,
  type Goal,
  LAYOUT_IDS_PER_S,
  LOAD,
  OUTLIVES_S,
  type Plan,
  planOf,
  REPLICAS,
  RETENTION_S,
  ROOM_TO_GROW,
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

const DAY_S = 86_400;
const gigabytes = (bytes: number) => few(bytes / 1e9);
const minutes = (seconds: number) => few(seconds / 60);

/** The cells of a figure of requests; the rate with its range, if the run kept it. */
function servedCells({ count, requestsPerS, range, workerUs, brokerUs }: Served): string[] {
  const spread = range === undefined ? '' : ` (${whole(range.least)} to ${whole(range.most)})`;
  return [`${whole(requestsPerS)}${spread}`, whole(count * requestsPerS), few(workerUs), few(brokerUs)];
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

/** What a request costs where few come at a time. */
function atRates({ rates }: CapacityData): string {
  return table(
    ['requests/s', "worker's µs each", "broker's µs each", "a worker's share of a core"],
    rates.map(({ requestsPerS, workerUs, brokerUs }) => [
      whole(requestsPerS),
      few(workerUs),
      few(brokerUs),
      `${whole((requestsPerS * workerUs) / 1e4)} %`,
    ]),
  );
}

/** For how long a ledger may be kept: by default, and as sequences may need it. */
const RETENTIONS_S: readonly number[] = [RETENTION_S, 7 * DAY_S, 30 * DAY_S];

/** What grows with the time for which the ledger is kept. */
function kept(data: CapacityData): string {
  const [goal] = GOALS as readonly [Goal, ...Goal[]];
  return table(
    ['ledger kept for', 'entries', 'ledger, GB', 'disk, GB', 'memory, GB', 'restore, min'],
    RETENTIONS_S.map((retentionS) => {
      const plan = planOf(data, goal, retentionS);
      return [
        retentionS % DAY_S === 0 ? `${retentionS / DAY_S} days` : `${retentionS / 3_600} h`,
        whole(plan.entries),
        gigabytes(plan.ledgerBytes),
        gigabytes(plan.indexBytes),
        gigabytes(plan.memoryBytes),
        minutes(plan.restoreS),
      ];
    }),
  );
}

type Row = readonly [what: string, how: string, of: (plan: Plan, goal: Goal) => string];

/** The arithmetic of a plan: what, by which rule, and the result. */
const ROWS: readonly Row[] = [
  ['IDs/s', 'requests/s × IDs in each', (_, { requestsPerS, count }) => whole(requestsPerS * count)],
  ["busy worker's µs for a request", 'from the first table below, between its rows', ({ workerUs }) => few(workerUs)],
  ['cores of busy workers', 'requests/s × µs ÷ 1,000,000', ({ workerCores }) => few(workerCores)],
  [
    'cores of busy brokers',
    `${REPLICAS} replicas × requests/s × µs ÷ 1,000,000`,
    ({ brokerCores }) => few(brokerCores),
  ],
  [
    '**workers**',
    `cores ÷ ${LOAD}, or IDs/s ÷ (${LAYOUT_IDS_PER_S.toLocaleString('en')} × ${LOAD}) if that is more; + ${SPARE_WORKERS}`,
    ({ workers }) => `**${workers}**`,
  ],
  [
    '**partitions**',
    `2 for each worker, or requests/s ÷ (rate of one partition × ${LOAD}) if that is more; × ${ROOM_TO_GROW} to grow`,
    ({ partitions }) => `**${partitions}**`,
  ],
  [
    `**brokers** of ${BROKER_CORES} cores`,
    `cores ÷ (${BROKER_CORES} × ${LOAD}), at least ${REPLICAS}`,
    ({ brokers }) => `**${brokers}**`,
  ],
  ['entries', `requests/s × ${(RETENTION_S + OUTLIVES_S) / 3_600} h`, ({ entries }) => whole(entries)],
  [
    'written by all brokers, MB/s',
    `requests/s × bytes of request, entry and reply × ${REPLICAS} replicas`,
    ({ writtenBytesPerS }) => few(writtenBytesPerS / 1e6),
  ],
  ['ledger on all brokers, GB', `entries × bytes × ${REPLICAS} replicas`, (plan) => gigabytes(plan.ledgerBytes)],
  [
    'disk of a worker, GB',
    `entries × ${COPIES} copies ÷ workers × added bytes × ${DISK_SPARE}`,
    (plan) => gigabytes(plan.indexBytes),
  ],
  [
    'memory of a worker, GB',
    `entries × ${COPIES} copies ÷ workers × added bytes + a worker without`,
    (plan) => gigabytes(plan.memoryBytes),
  ],
  ['a worker restores all of its copies, min', 'its entries ÷ restored/s', (plan) => minutes(plan.restoreS)],
  [
    'a partition without a copy is restored, min',
    'entries ÷ partitions ÷ restored/s',
    (plan) => minutes(plan.partitionRestoreS),
  ],
  [
    'cores in use',
    `requests/s × µs [at that rate](#at-low-rates): of a worker at its share, and of ${REPLICAS} brokers at all of it`,
    ({ usedCores }) => few(usedCores),
  ],
  ['core hours a year', 'cores in use × 8,760 h', ({ cpuHoursPerYear }) => whole(cpuHoursPerYear)],
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

/** The ways to unique numbers, a row each, with their figures by IDs in a request. */
function ways({ doors, crashes, inProcess }: CapacityData): string {
  const counts = [...new Set(doors.map(({ count }) => count))];
  const rows = [...Map.groupBy(doors, ({ name }) => name)].map(([name, its]) => {
    const of = (figure: (door: Door) => string) => its.map(figure).join(' / ');
    return [
      name,
      of(({ requestsPerS }) => whole(requestsPerS)),
      of(({ count, requestsPerS }) => whole(count * requestsPerS)),
      of(({ p50Ms }) => few(p50Ms)),
      of(({ p99Ms }) => few(p99Ms)),
    ];
  });
  const fromMemory = inProcess.map(({ name, nsPerId }) => [name, '', whole(1e9 / nsPerId), '', '']);
  return table(
    [
      `${counts.join(' / ')} IDs, ${IN_FLIGHT} requests at a time`,
      'requests/s',
      'IDs/s',
      'p50, ms',
      'p99, ms',
      'a crash',
    ],
    [...rows, ...fromMemory].map(([name = '', ...figures]) => {
      const seen = crashes.filter((crash) => crash.name === name);
      const counts = seen.map(({ last, next }) => `: ${whole(last)}, then ${whole(next)}`);
      return [name, ...figures, `${CRASH[name] ?? ''}${counts.join('')}`];
    }),
  );
}

function costOfForms({ forms }: CapacityData): string {
  const range = (ns: (form: Form) => number) => {
    const sorted = forms.toSorted((one, other) => ns(one) - ns(other));
    const [least, most] = [sorted[0], sorted.at(-1)];
    return least && most
      ? `${whole(ns(least))} ns (\`${least.form}\`) to ${whole(ns(most))} ns (\`${most.form}\`)`
      : '';
  };
  return `takes ${range(({ formatNs }) => formatNs)}, reading one ${range(({ parseNs }) => parseNs)}.`;
}

/** What else ran on the machine. */
function othersText({ disturbed }: CapacityData): string {
  if (disturbed === undefined) return 'Whether other programs took processor time meanwhile was not watched.';
  if (disturbed.length === 0) return `Other programs took at most ${MOST_OTHERS_PERCENT} % of them meanwhile.`;
  const parts = disturbed.map(({ part, othersPercent }) => `${part} (${whole(othersPercent)} %)`);
  return `**Other programs took more than ${MOST_OTHERS_PERCENT} % of them during some parts, whose figures a quiet machine does not have: ${parts.join(', ')}.**`;
}

/** What a reader wants to know first. */
function headline({ counts, latency, inProcess }: CapacityData): string {
  const [one] = counts;
  const at = (share: number) => latency.points.find((point) => point.share === share);
  const [idle, half] = [at(0.1), at(0.5)];
  const next = inProcess.find(({ name }) => name === 'idalloc client, next()');
  if (!one || !idle || !half || !next) throw new RangeError('the run lacks a figure of the headline');
  return `A request of one ID takes a worker ${few(one.workerUs)} µs of processor time, so one core answers ${whole(1e6 / one.workerUs)} requests a second. From when a
request is due until its reply is read, p50 is ${few(idle.p50Ms)} ms and p99 ${few(idle.p99Ms)} ms at a tenth of the highest rate (${whole(idle.requestsPerS)} requests/s), and ${few(half.p50Ms)}
and ${few(half.p99Ms)} ms at half of it. \`next()\` of the client library takes ${few(next.nsPerId)} ns.`;
}

/** What a request takes in the topics. A forwarded one is two records of the request topic. */
function bytesText({ counts, ways }: CapacityData): string {
  const [one] = counts;
  const forwarded = ways.find(({ way }) => way === 'forwarded');
  return `A request of one ID takes ${one?.bytes.requests} bytes in the request topic, ${one?.bytes.ledger} in the ledger and ${one?.bytes.replies} in the reply topic, on each replica;
one that is forwarded takes ${forwarded?.bytes.requests} in the request topic. Trace headers come on top, in request and reply.`;
}

function latencyText({ rounds }: CapacityData['latency']): string {
  return rounds === undefined
    ? 'Each row is one measurement of ten seconds, so a single pause of a third of a second makes a p99 of some 240 ms.'
    : `Each row has the medians of ${rounds} rounds.`;
}

/** The generated parts of a page, by the name of their markers. */
export type Parts = Readonly<Record<string, string>>;

/** The parts of the page on capacity. */
export function partsOf(data: CapacityData): Parts {
  const { machine, counts, partitions, workers, latency, index } = data;
  return {
    headline: headline(data),
    trust: trustText(data),
    machine: `Measured on ${data.date} with version ${data.version}, on ${machine.cores} cores (${machine.processor}) and ${machine.memoryGib} GiB with
Node ${machine.node.replace('v', '')}; they also ran ${machine.servers.join(', ')} and the load.
${othersText(data)}`,
    counts: served(
      'IDs in a request',
      counts.map((row) => [whole(row.count), row]),
    ),
    ways: served(
      'a request of one ID',
      data.ways.map((row) => [row.way, row]),
    ),
    bytes: bytesText(data),
    forms: `Writing an ID in another [form](../reference/forms.md) ${costOfForms(data)} That is done by the program that shows it.`,
    latency: `${table(
      ['load', 'requests/s', 'p50, ms', 'p99, ms'],
      latency.points.map(({ share, requestsPerS, p50Ms, p99Ms }) => [
        `${100 * share} %`,
        whole(requestsPerS),
        few(p50Ms),
        few(p99Ms),
      ]),
    )}

${latencyText(latency)}`,
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
    doors: ways(data),
    plan: planned(data),
    kept: kept(data),
    rates: atRates(data),
  };
}

/** A part between its markers: `<!-- figures: name -->` and `<!-- end -->`. */
const PART = /(<!-- figures: (\w+) -->\n)[\s\S]*?(<!-- end -->)/g;

/**
 * A page with its generated parts.
 *
 * @throws Error if the page lacks a part, or names one that does not exist.
 */
export function pageOf(page: string, parts: Parts): string {
  const seen = new Set<string>();
  const text = page.replaceAll(PART, (_, begin: string, name: string, end: string) => {
    const part = parts[name];
    if (part === undefined) throw new Error(`the page names figures '${name}', which do not exist`);
    seen.add(name);
    return `${begin}\n${part}\n\n${end}`;
  });
  const lacks = Object.keys(parts).filter((name) => !seen.has(name));
  if (lacks.length > 0) throw new Error(`the page does not show the figures ${lacks.join(', ')}`);
  return text;
}
