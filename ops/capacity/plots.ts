import { parse, View } from 'vega';
import { compile, type TopLevelSpec } from 'vega-lite';
import type { CapacityData } from './data.ts';

/** A plot of the page on capacity. */
export interface Plot {
  /** The name of the file, without its suffix. */
  readonly name: string;
  /** What it shows, in a few words above it. */
  readonly title: string;
  /** For those who can't see it. */
  readonly description: string;
  readonly spec: TopLevelSpec;
}

const WIDTH = 300;
const HEIGHT = 220;
const BLUE = '#3451b2';
const CONFIG = {
  aria: false, // the whole is one picture with a description
  background: '#fff',
  font: 'system-ui, sans-serif',
  padding: 12,
  view: { stroke: '#b9c1ce' },
  axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: 'normal', grid: true, gridColor: '#e4e7ec' },
  title: { anchor: 'start', fontSize: 14, fontWeight: 600, offset: 12 },
  legend: { labelFontSize: 12, titleFontSize: 12, orient: 'bottom', columns: 2, labelLimit: 300 },
  point: { filled: true, size: 50 },
} as const;

interface Axis {
  readonly tickCount: number;
  readonly format: string;
  readonly values?: number[];
}
/** Short numbers, such as 10k. */
const AXIS: Axis = { tickCount: 5, format: '.3~s' };

const quantity = (field: string, title: string, scale?: 'log') => ({
  field,
  title,
  type: 'quantitative' as const,
  axis: AXIS,
  ...(scale === undefined ? {} : { scale: { type: scale } }),
});

/** A line with points; the axis shows what was measured. */
function line(values: readonly object[], x: ReturnType<typeof quantity>, y: ReturnType<typeof quantity>) {
  return {
    width: WIDTH,
    height: HEIGHT,
    data: { values: [...values] },
    mark: { type: 'line' as const, point: { filled: true, size: 50, color: BLUE }, color: BLUE },
    encoding: { x: measuredAt(values, x), y },
  };
}

/** An axis with a tick at each value that was measured. */
function measuredAt(values: readonly object[], x: ReturnType<typeof quantity>): typeof x {
  const at = new Set(values.map((value) => (value as Readonly<Record<string, number>>)[x.field] ?? 0));
  return { ...x, axis: { ...x.axis, values: [...at] } };
}

/** Which line is which, also without colours. */
const lines = (field: string) => ({
  color: { field, type: 'nominal' as const, title: null },
  strokeDash: { field, type: 'nominal' as const, title: null },
});

/** All plots of a run. */
export function plotsOf({ counts, latency, partitions, workers, index, doors }: CapacityData): readonly Plot[] {
  const ids = counts.map(({ count, requestsPerS, workerUs }) => ({ count, idsPerS: count * requestsPerS, workerUs }));
  const latencies = latency.points.flatMap(({ share, p50Ms, p99Ms }) => [
    { load: 100 * share, ms: p50Ms, of: 'half of the requests' },
    { load: 100 * share, ms: p99Ms, of: '99 of 100' },
  ]);
  const byDoor = doors.map(({ name, count, requestsPerS }) => ({ name, count, idsPerS: count * requestsPerS }));
  const inRequest = quantity('count', 'IDs in each request', 'log');
  return [
    {
      name: 'capacity-counts',
      title: 'What a request costs, and how many IDs a worker gives out, by the IDs of a request',
      description: 'Processor time of a request, and IDs per second of one worker, by the IDs in each request.',
      spec: {
        config: CONFIG,
        hconcat: [
          line(ids, inRequest, quantity('workerUs', "worker's µs for a request", 'log')),
          line(ids, inRequest, quantity('idsPerS', 'IDs/s of a worker', 'log')),
        ],
      },
    },
    {
      name: 'capacity-latency',
      title: 'How long a request waits for its reply, by the load',
      description: 'Latency from request to reply at shares of the highest rate of one worker.',
      spec: {
        config: CONFIG,
        width: 2 * WIDTH,
        height: HEIGHT,
        data: { values: latencies },
        mark: { type: 'line', point: true },
        encoding: {
          x: measuredAt(latencies, quantity('load', `load, % of ${latency.maximum.toLocaleString('en')} requests/s`)),
          y: quantity('ms', 'ms until the reply', 'log'),
          ...lines('of'),
        },
      },
    },
    {
      name: 'capacity-growth',
      title: 'Requests of one worker by partitions, and of several workers',
      description: 'Requests per second of one worker by partitions, and of several workers over 12 partitions.',
      spec: {
        config: CONFIG,
        hconcat: [
          line(partitions, quantity('partitions', 'partitions', 'log'), quantity('requestsPerS', 'requests/s')),
          line(workers, quantity('workers', 'workers, on the same cores'), quantity('requestsPerS', 'requests/s')),
        ],
      },
    },
    {
      name: 'capacity-index',
      title: 'What the index needs for an entry, by its entries',
      description: 'Bytes of the index for each entry, on disk and in memory, by entries.',
      spec: {
        config: CONFIG,
        hconcat: [
          line(index, quantity('entries', 'entries', 'log'), quantity('diskBytesPerEntry', 'bytes on disk for each')),
          line(
            index,
            quantity('entries', 'entries', 'log'),
            quantity('memoryBytesPerEntry', 'bytes in memory for each'),
          ),
        ],
      },
    },
    {
      name: 'capacity-doors',
      title: 'IDs a second, by the way to them and the IDs of a request',
      description: 'IDs per second through each way to unique numbers, by the IDs in each request.',
      spec: {
        config: CONFIG,
        width: 2 * WIDTH,
        height: HEIGHT,
        data: { values: byDoor },
        mark: { type: 'line', point: true },
        encoding: {
          x: measuredAt(byDoor, inRequest),
          y: quantity('idsPerS', 'IDs/s', 'log'),
          ...lines('name'),
        },
      },
    },
  ];
}

/** For readers with a dark page, on which a white picture glares: the colours of everything but several lines. */
const DARK = `<style>@media(prefers-color-scheme:dark){${Object.entries({
  '#fff': '#1b1b1f',
  '#000': '#dfdfd6',
  '#888': '#8b8f98',
  '#e4e7ec': '#32353d',
  '#b9c1ce': '#565b66',
  '#3451b2': '#a8b1ff',
})
  .map(([light, dark]) => `[fill="${light}"]{fill:${dark}}[stroke="${light}"]{stroke:${dark}}`)
  .join('')}}</style>`;

/** The plot as SVG, the same for the same figures. */
export async function svgOf({ name, title, description, spec }: Plot): Promise<string> {
  const view = new View(parse(compile({ ...spec, title }).spec), { renderer: 'none' });
  const svg = await view.toSVG();
  view.finalize();
  return svg.replace(
    /^<svg ([^>]*)>/,
    `<svg $1 role="img" aria-labelledby="t d">${DARK}<!-- Made by \`npm run bench:report\`: ${name} --><title id="t">${title}</title><desc id="d">${description}</desc>`,
  );
}
