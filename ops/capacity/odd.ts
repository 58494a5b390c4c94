import type { CapacityData, Served } from './data.ts';
import { LAYOUT_IDS_PER_S } from './plan.ts';

/** How far two measurements of the same case are apart. */
export interface Noise {
  readonly least: number;
  readonly most: number;
  /** Requests/s of each measurement. */
  readonly times: number;
}

/** A figure that seems impossible, or goes the wrong way. */
interface Oddity {
  /** A sentence for the page. */
  readonly what: string;
  /** How many times as far as it may be; 1 is right. */
  readonly ratio: number;
  /** Whether it is impossible, rather than only unexpected. */
  readonly isImpossible: boolean;
}

/** Replies are counted between two moments, some seconds apart; at each, many IDs are decided and not answered yet. */
const COUNTED_WITHIN = 1.1;

const whole = (value: number) => Math.round(value).toLocaleString('en');
const few = (value: number) => Number(value.toPrecision(3)).toLocaleString('en');
const percent = (ratio: number) => `${Math.ceil(100 * (ratio - 1))} %`;

/** Three parts of a run measure the same case: requests of one ID to 12 partitions, with one worker. */
export function noiseOf({ counts, ways, workers }: CapacityData): Noise {
  const same = [counts[0], ways[0], workers[0]].flatMap((one) => (one === undefined ? [] : [one.requestsPerS]));
  return { least: Math.min(...same), most: Math.max(...same), times: same.length };
}

function aboveLayout({ counts }: CapacityData): Oddity[] {
  const most = Math.max(...counts.map(({ count, requestsPerS }) => count * requestsPerS));
  const ratio = most / LAYOUT_IDS_PER_S;
  if (ratio <= 1) return [];
  const what = `**${whole(most)} IDs/s** are ${percent(ratio)} more than the layout's ${whole(LAYOUT_IDS_PER_S)}. Replies are counted between two moments of a run of some seconds, so up to ${Math.round(100 * (COUNTED_WITHIN - 1))} % more can come from IDs that were taken before.`;
  return [{ what, ratio: ratio / COUNTED_WITHIN, isImpossible: true }];
}

function cheapDetour({ ways: [own, ...others] }: CapacityData): Oddity[] {
  const forwarded = others.find(({ way }) => way === 'forwarded');
  if (own === undefined || forwarded === undefined || forwarded.workerUs >= own.workerUs) return [];
  const what = `**A forwarded request** is read and appended once more than one in its own partition, and yet it took ${few(forwarded.workerUs)} rather than ${few(own.workerUs)} µs.`;
  return [{ what, ratio: own.workerUs / forwarded.workerUs, isImpossible: true }];
}

/** The largest step down in the rate, from one row to the next. */
function fewerThanBefore({ partitions }: CapacityData): Oddity[] {
  const steps = partitions.slice(1).map((one, i) => ({ one, before: partitions[i] as Served & typeof one }));
  const [worst] = steps
    .map(({ one, before }) => ({ one, before, ratio: before.requestsPerS / one.requestsPerS }))
    .toSorted((some, other) => other.ratio - some.ratio);
  if (worst === undefined || worst.ratio <= 1) return [];
  const { one, before, ratio } = worst;
  const what = `**${one.partitions} partitions** answered ${whole(one.requestsPerS)} requests/s, ${before.partitions} answered ${whole(before.requestsPerS)}.`;
  return [{ what, ratio, isImpossible: false }];
}

function slowWhenIdle({ latency }: CapacityData): Oddity[] {
  const [first, second] = latency.points;
  if (first === undefined || second === undefined || first.p99Ms <= second.p99Ms) return [];
  const load = (share: number) => `${100 * share} %`;
  const what = `**p99 at ${load(first.share)} of the load** was ${few(first.p99Ms)} ms, at ${load(second.share)} ${few(second.p99Ms)} ms.`;
  return [{ what, ratio: first.p99Ms / second.p99Ms, isImpossible: false }];
}

/** What a reader of the figures stumbles over, most impossible first. */
function odditiesOf(data: CapacityData): readonly Oddity[] {
  return [aboveLayout, cheapDetour, fewerThanBefore, slowWhenIdle].flatMap((find) => find(data));
}

/** What can't be, and noise does not explain: such a run must be repeated. */
export function contradictionsOf(data: CapacityData): readonly string[] {
  const { least, most } = noiseOf(data);
  return odditiesOf(data)
    .filter(({ isImpossible, ratio }) => isImpossible && ratio > most / least)
    .map(({ what }) => what);
}

/** The part of the page that says how far the figures can be trusted. */
export function trustText(data: CapacityData): string {
  const { least, most, times } = noiseOf(data);
  const noise = most / least;
  const verdict = (ratio: number) => (ratio <= noise ? 'That is noise.' : 'That is more than noise, and unexplained.');
  return [
    `- **One case was measured ${times} times**, by ${times} parts of the run: requests of one ID to 12 partitions, with one worker. It answered ${whole(least)} to ${whole(most)} requests/s. So rows that differ by less than ${percent(noise)} are the same.`,
    ...odditiesOf(data).map(({ what, ratio }) => `- ${what} ${verdict(ratio)}`),
    `- **A broker's µs** contain what its JVM compiles and collects meanwhile, so they rise and fall from row to row.`,
  ].join('\n');
}
