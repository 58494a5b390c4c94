import type { CapacityData, LatencyPoint, RateCost, Served } from '../../../ops/capacity/data.ts';
import { fill, rateOf } from '../backlog.ts';
import { Load, type Percentiles, percentilesOf } from '../load.ts';
import { cpuMsOf } from '../running.ts';
import { median } from '../stage.ts';
import type { ReportServers } from './servers.ts';

/** How much each measurement does: 1 is the whole report, less is a trial of the program. */
export interface Effort {
  readonly scale: number;
  readonly rounds: number;
  readonly say: (line: string) => void;
}

export interface Case {
  readonly count: number;
  readonly partitions: number;
  readonly workers: number;
  /** Requests ask for their replies in each of them in turn. */
  readonly replyTopics: number;
  /** Requests are sent to another partition than their own. */
  readonly isForwarded: boolean;
  /** Variables of the workers besides. */
  readonly env: Readonly<Record<string, string>>;
}
const USUAL: Case = { count: 1, partitions: 12, workers: 1, replyTopics: 1, isForwarded: false, env: {} };

/** At full effort: so many requests of one ID take a worker some seconds. */
const REQUESTS = 200_000;
/** Several workers have joined by the time at which half of twice as many are served. */
const FLEET = { times: 2, fromShare: 0.5 };
const ONE = { times: 1, fromShare: 0.1 };
const LEAST_REQUESTS = 1_000;
/** The layout has 4,096 IDs in each ms, so requests of more IDs are served more slowly. */
const IDS_PER_MS = 4_096;
const LARGE_MS = 4_000;
const START_TIMEOUT_MS = 60_000;
/** Requests in flight while the highest rate is measured: enough that each fetch of the worker is full. */
const OUTSTANDING = 20_000;
const WARM_UP_SECONDS = 2;
const MIB = 2 ** 20;

/** Serves a backlog of requests as fast as possible, once. */
async function serveOnce(report: ReportServers, { scale }: Effort, one: Case): Promise<Served> {
  const { stage, servers } = report;
  const { count, partitions, workers, replyTopics, isForwarded, env } = one;
  const { times, fromShare } = workers > 1 ? FLEET : ONE;
  const most = times * Math.min(REQUESTS, (IDS_PER_MS * LARGE_MS) / count);
  const requests = Math.max(LEAST_REQUESTS, Math.round(scale * most));
  const topics = await stage.topics(partitions, undefined, replyTopics);
  await fill(stage, topics, requests, count, { shift: isForwarded ? 1 : 0 });
  await using stack = new AsyncDisposableStack();
  const fleet = Array.from({ length: workers }, () => stack.use(stage.start('worker', topics, env)));
  const measured = {
    check: () => {
      for (const worker of fleet) worker.check();
    },
    cpuMs: () => fleet.reduce((sum, worker) => sum + worker.cpuMs(), 0),
    besideMs: () => cpuMsOf(servers.kafkaPid()),
  };
  const {
    requests_per_s,
    cpu_us,
    beside_us = Number.NaN,
  } = await rateOf(stage, topics, measured, requests, 0, fromShare);
  // A forwarded request is two records of the request topic.
  const bytes = (topic: string) => Math.round(report.bytesOf(topic) / requests);
  return {
    count,
    requestsPerS: requests_per_s,
    workerUs: cpu_us,
    brokerUs: beside_us,
    bytes: { requests: bytes(topics.requests), ledger: bytes(topics.ledger), replies: bytes(topics.replies) },
    memoryMib: Math.round(Math.max(...fleet.map((worker) => worker.memoryBytes())) / MIB),
  };
}

/** Cases in turn, round by round; of each the run with the median rate, and the range of all. */
export async function serve(report: ReportServers, effort: Effort, cases: readonly Partial<Case>[]): Promise<Served[]> {
  const found = cases.map((): Served[] => []);
  for (let round = 1; round <= effort.rounds; round += 1) {
    for (const [i, one] of cases.entries()) {
      const served = await serveOnce(report, effort, { ...USUAL, ...one });
      effort.say(`round ${round}, ${JSON.stringify({ ...one, env: undefined })}: ${JSON.stringify(served)}`);
      found[i]?.push(served);
    }
  }
  return found.map((rounds) => {
    const rates = rounds.map(({ requestsPerS }) => requestsPerS);
    const middle = median(rates);
    const range = { least: Math.min(...rates), most: Math.max(...rates) };
    return { ...(rounds.find(({ requestsPerS }) => requestsPerS === middle) as Served), range };
  });
}

const COUNTS = [1, 10, 100, 1_000, 10_000];
const PARTITIONS = [1, 2, 4, 8, 16, 32, 64];
const WORKERS = [1, 2, 3, 4];

/** What a request costs by its IDs and by its way, and what partitions and workers change. */
export async function serving(
  report: ReportServers,
  effort: Effort,
): Promise<Pick<CapacityData, 'counts' | 'ways' | 'partitions' | 'workers'>> {
  const counts = await serve(
    report,
    effort,
    COUNTS.map((count) => ({ count })),
  );
  const ways: readonly (readonly [string, Partial<Case>])[] = [
    ['to its own partition, without TLS', {}],
    ['forwarded', { isForwarded: true }],
    ['over TLS to the brokers', { env: report.tlsEnv }],
  ];
  const byWay = await serve(
    report,
    effort,
    ways.map(([, one]) => one),
  );
  const byPartitions = await serve(
    report,
    effort,
    PARTITIONS.map((partitions) => ({ partitions })),
  );
  const byWorkers = await serve(
    report,
    effort,
    WORKERS.map((workers) => ({ workers })),
  );
  return {
    counts,
    ways: byWay.map((served, i) => ({ way: ways[i]?.[0] ?? '', ...served })),
    partitions: byPartitions.map((served, i) => ({ partitions: PARTITIONS[i] ?? 0, ...served })),
    workers: byWorkers.map((served, i) => ({ workers: WORKERS[i] ?? 0, ...served })),
  };
}

const SHARES = [0.1, 0.25, 0.5, 0.8];

/**
 * Latency from request to reply at shares of the highest rate, of one worker. Each share is measured round by round,
 * and the medians count: in a measurement of ten seconds, a single pause of a third of one would be the slowest
 * hundredth.
 */
export async function latency({ stage }: ReportServers, effort: Effort): Promise<CapacityData['latency']> {
  const { scale, rounds, say } = effort;
  const topics = await stage.topics(USUAL.partitions);
  await using running = stage.start('worker', topics);
  await using load = new Load(stage, topics, running, 1);
  await load.firstReply(START_TIMEOUT_MS);
  const maximum = Math.round(await load.maximum(OUTSTANDING, 8_000 * Math.max(scale, 0.25)));
  await load.atRate('warm', Math.ceil((WARM_UP_SECONDS * maximum) / 2), maximum / 2);
  const found = SHARES.map((share) => ({
    share,
    rate: Math.max(1, Math.round(share * maximum)),
    its: [] as Percentiles[],
  }));
  for (let round = 1; round <= rounds; round += 1) {
    for (const { share, rate, its } of found) {
      const outcome = await load.atRate(`round${round}share${share}`, Math.ceil(5 * scale * rate), rate);
      const one = percentilesOf(outcome);
      if (one.unanswered > 0) throw new Error(`${one.unanswered} requests had no reply at ${rate} requests/s`);
      its.push(one);
      say(`round ${round}, latency at ${rate} requests/s: p50 ${one.p50_ms} ms, p99 ${one.p99_ms} ms`);
    }
  }
  const points = found.map(({ share, rate, its }): LatencyPoint => {
    const [p50Ms, p99Ms] = [median(its.map(({ p50_ms }) => p50_ms)), median(its.map(({ p99_ms }) => p99_ms))];
    return { share, requestsPerS: rate, p50Ms, p99Ms };
  });
  return { maximum, rounds, points };
}

const RATES = [100, 1_000, 10_000];
/** For so long a process is young: it compiles what it runs. */
const YOUNG = { seconds: 60, requestsPerS: 1_000 };
const RATE_SECONDS = 8;

/**
 * What a request costs at rates so low that each call serves few, with what an idle worker does meanwhile. The median
 * of the rounds counts.
 */
export async function rates({ stage, servers }: ReportServers, { scale, rounds, say }: Effort): Promise<RateCost[]> {
  const topics = await stage.topics(USUAL.partitions);
  await using running = stage.start('worker', topics);
  await using load = new Load(stage, topics, running, 1);
  await load.firstReply(START_TIMEOUT_MS);
  await load.atRate('young', Math.ceil(scale * YOUNG.seconds * YOUNG.requestsPerS), YOUNG.requestsPerS);
  const found = RATES.map((requestsPerS) => ({ requestsPerS, workerUs: [] as number[], brokerUs: [] as number[] }));
  for (let round = 1; round <= rounds; round += 1) {
    for (const { requestsPerS, workerUs, brokerUs } of found) {
      const total = Math.ceil(RATE_SECONDS * scale * requestsPerS);
      const [workerMs, brokerMs] = [running.fineCpuMs(), cpuMsOf(servers.kafkaPid())];
      await load.atRate(`round${round}rate${requestsPerS}`, total, requestsPerS);
      workerUs.push((1_000 * (running.fineCpuMs() - workerMs)) / total);
      brokerUs.push((1_000 * (cpuMsOf(servers.kafkaPid()) - brokerMs)) / total);
      say(
        `round ${round}, ${requestsPerS} requests/s: ${workerUs.at(-1)} µs of the worker, ${brokerUs.at(-1)} µs of the broker`,
      );
    }
  }
  const rounded = (values: readonly number[]) => Number(median(values).toFixed(1));
  return found.map(({ requestsPerS, workerUs, brokerUs }) => {
    return { requestsPerS, workerUs: rounded(workerUs), brokerUs: rounded(brokerUs) };
  });
}
