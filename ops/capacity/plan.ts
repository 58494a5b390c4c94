import type { CapacityData, IndexSize, RateCost, Served } from './data.ts';

/** A load to plan for. */
export interface Goal {
  readonly requestsPerS: number;
  /** IDs in each request. */
  readonly count: number;
}

/** What a goal needs, by the figures of a run. */
export interface Plan {
  /** Processor time of busy workers for a request, in µs. */
  readonly workerUs: number;
  /** Of busy workers and brokers, which serve many requests with each call. */
  readonly workerCores: number;
  readonly brokerCores: number;
  /** What all of them use at this rate, at which each call serves fewer. */
  readonly usedCores: number;
  readonly workers: number;
  /** To be created: more than the load needs. */
  readonly partitions: number;
  readonly brokers: number;
  readonly entries: number;
  /** Of requests, entries and replies, on all brokers together. */
  readonly writtenBytesPerS: number;
  /** On all brokers together. */
  readonly ledgerBytes: number;
  /** In INDEX_DIR of each worker, with what old entries still take. */
  readonly indexBytes: number;
  readonly memoryBytes: number;
  /** Until a worker that lost its directory has its copies again. */
  readonly restoreS: number;
  /** Until a partition of which all copies are lost is served again. */
  readonly partitionRestoreS: number;
  readonly cpuHoursPerYear: number;
}

/**
 * How much of what was measured is planned for: a machine at its limit has no room for a peak or for a lost neighbour.
 */
export const LOAD = 0.5;
/** Beside those that the load needs: one may die, and one may restart meanwhile. */
export const SPARE_WORKERS = 2;
export const REPLICAS = 3;
/** Cores of a broker. */
export const BROKER_CORES = 8;
/** The number of partitions can't be changed, and the load may grow. */
export const ROOM_TO_GROW = 4;
const HOUR_S = 3_600;
/** LEDGER_RETENTION_MS by default. */
export const RETENTION_S = 26 * HOUR_S;
/** By how much a segment may outlive it. */
export const OUTLIVES_S = HOUR_S;
/** Each partition has its owner and one standby, as INDEX_STANDBYS=1. */
export const COPIES = 2;
/** Old entries are dropped in large steps. */
export const DISK_SPARE = 2;
/** IDs of one worker ID in the default layout: 4,096 in each ms. */
export const LAYOUT_IDS_PER_S = 4_096_000;
const HOURS_PER_YEAR = 8_760;

/**
 * What a goal needs by these figures, with a ledger that is kept for so long. Workers and brokers are whole, partitions
 * a multiple of the workers.
 */
export function planOf(data: CapacityData, { requestsPerS, count }: Goal, retentionS = RETENTION_S): Plan {
  const [usual, largest, onePartition] = [first(data.counts), last(data.index), first(data.partitions)];
  const of = (figure: Figure) => between(data.counts, count, figure);
  const workerUs = of('workerUs');
  const brokerUs = of('brokerUs');
  const [workerCores, brokerCores] = [
    (requestsPerS * workerUs) / 1e6,
    // Each replica is written and fetched once more.
    (REPLICAS * requestsPerS * brokerUs) / 1e6,
  ];
  const byCpu = Math.ceil(workerCores / LOAD);
  const byLayout = Math.ceil((requestsPerS * count) / (LAYOUT_IDS_PER_S * LOAD));
  const workers = Math.max(byCpu, byLayout) + SPARE_WORKERS;
  const least = Math.max(2 * workers, requestsPerS / (onePartition.requestsPerS * LOAD));
  const partitions = workers * Math.ceil((ROOM_TO_GROW * least) / workers);
  const usedUs = (figure: 'workerUs' | 'brokerUs', rate: number) =>
    atRate([...data.rates, usual], rate, figure) + of(figure) - usual[figure];
  const eachUs = usedUs('workerUs', requestsPerS / workers) + REPLICAS * usedUs('brokerUs', requestsPerS);
  const usedCores = (requestsPerS * eachUs) / 1e6;
  const entries = requestsPerS * (retentionS + OUTLIVES_S);
  const ownEntries = (entries * COPIES) / workers;
  return {
    workerUs,
    workerCores,
    brokerCores,
    usedCores,
    workers,
    partitions,
    brokers: Math.max(REPLICAS, Math.ceil(brokerCores / (BROKER_CORES * LOAD))),
    entries,
    writtenBytesPerS: requestsPerS * (of('requests') + of('ledger') + of('replies')) * REPLICAS,
    ledgerBytes: entries * of('ledger') * REPLICAS,
    indexBytes: ownEntries * addedBytes(data.index, 'diskBytesPerEntry') * DISK_SPARE,
    memoryBytes: ownEntries * addedBytes(data.index, 'memoryBytesPerEntry') + usual.memoryMib * 2 ** 20,
    restoreS: ownEntries / largest.restorePerS,
    partitionRestoreS: entries / partitions / largest.restorePerS,
    cpuHoursPerYear: usedCores * HOURS_PER_YEAR,
  };
}

type Figure = 'workerUs' | 'brokerUs' | keyof Served['bytes'];

/** A figure for a count between those that were measured: what a request costs rises evenly with its IDs. */
function between(counts: readonly Served[], count: number, figure: Figure): number {
  const figureOf = (served: Served) =>
    figure === 'workerUs' || figure === 'brokerUs' ? served[figure] : served.bytes[figure];
  const above = counts.find((one) => one.count >= count) ?? last(counts);
  const below = counts.findLast((one) => one.count <= count) ?? first(counts);
  if (above.count === below.count) return figureOf(above);
  const share = (count - below.count) / (above.count - below.count);
  return figureOf(below) + share * (figureOf(above) - figureOf(below));
}

/**
 * What a request costs at a rate, between rates that were measured, in rising order: it falls evenly if both are
 * logarithms. Fewer requests than were measured cost together what the fewest did; more cost as much each as the most.
 */
function atRate(points: readonly RateCost[], requestsPerS: number, figure: 'workerUs' | 'brokerUs'): number {
  const above = points.find((one) => one.requestsPerS >= requestsPerS) ?? last(points);
  const below = points.findLast((one) => one.requestsPerS < requestsPerS);
  if (below === undefined) return (above[figure] * above.requestsPerS) / requestsPerS;
  if (above === below) return above[figure];
  const share = Math.log(requestsPerS / below.requestsPerS) / Math.log(above.requestsPerS / below.requestsPerS);
  return below[figure] * (above[figure] / below[figure]) ** share;
}

/**
 * Bytes that one more entry takes, between the two largest sizes: what an index takes without entries does not grow
 * with them.
 */
function addedBytes(index: readonly IndexSize[], figure: 'diskBytesPerEntry' | 'memoryBytesPerEntry'): number {
  const [largest, before] = [last(index), first(index.slice(-2))];
  const grown = largest.entries * largest[figure] - before.entries * before[figure];
  return largest === before ? largest[figure] : grown / (largest.entries - before.entries);
}

function first<T>(some: readonly T[]): T {
  const [one] = some;
  if (one === undefined) throw new RangeError('the run has no figures of this kind');
  return one;
}

function last<T>(some: readonly T[]): T {
  return first(some.toReversed());
}
