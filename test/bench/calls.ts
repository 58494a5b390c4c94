import { mkdtempDisposableSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Tail } from '../../src/kafka/loops/tail.ts';
import type { FetchPosition } from '../../src/kafka/wire/record-apis.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { fill } from './backlog.ts';
import type { ReportServers } from './report/servers.ts';
import type { Effort } from './report/serving.ts';
import { cpuMsOf } from './running.ts';
import { median, type Stage, until } from './stage.ts';

/*
 * What a worker's calls to brokers cost that grow with partitions and reply topics, whatever the requests are.
 */

/** The processor time of a fetch that finds nothing, in µs. */
export interface EmptyFetch {
  /** Of a tail, which reads as a worker does: in a fetch session. */
  readonly tailUs: number;
  /** Of the broker meanwhile. */
  readonly brokerUs: number;
  /** Of the call alone, if it names all partitions each time. */
  readonly namedUs: number;
}

const LIMITS = { isolation: 'read_committed', maxWaitMs: 0, maxBytes: 10 * 1_048_576 } as const;
const PARTITION_BYTES = 1_048_576;
const WARM_UP_MS = 1_000;
const MEASURE_MS = 3_000;
const CALL_TIMEOUT_MS = 10_000;

/** In turn for each number of partitions, round by round; the medians. */
export async function emptyFetches(
  { stage, servers }: ReportServers,
  { rounds, scale, say }: Effort,
  sizes: readonly number[],
): Promise<readonly EmptyFetch[]> {
  const topics: string[] = [];
  for (const size of sizes) topics.push(await stage.topic(size));
  const costs = (count: () => number) => costOf(count, servers.kafkaPid(), scale);
  const found = sizes.map((): EmptyFetch[] => []);
  for (let round = 1; round <= rounds; round += 1) {
    for (const [i, size] of sizes.entries()) {
      const rest = { topic: topics[i] ?? '', offset: 0, maxBytes: PARTITION_BYTES };
      const places = Array.from({ length: size }, (_, partition) => ({ ...rest, partition }));
      const { ownUs: tailUs, brokerUs } = await ofTail(stage, places, costs);
      const { ownUs: namedUs } = await ofNaming(stage, places, costs);
      found[i]?.push({ tailUs, brokerUs, namedUs });
      say(`round ${round}, a fetch of ${size} partitions: ${JSON.stringify(found[i]?.at(-1))}`);
    }
  }
  return found.map((its) => {
    const of = (figure: keyof EmptyFetch) => median(its.map((one) => one[figure]));
    return { tailUs: of('tailUs'), brokerUs: of('brokerUs'), namedUs: of('namedUs') };
  });
}

interface Cost {
  readonly ownUs: number;
  readonly brokerUs: number;
}
type Costs = (count: () => number) => Promise<Cost>;

/** The processor time for each that is counted, of this process and of a broker. */
async function costOf(count: () => number, brokerPid: number | undefined, scale: number): Promise<Cost> {
  await pause(scale * WARM_UP_MS);
  const look = () => ({ counted: count(), own: process.cpuUsage(), brokerMs: cpuMsOf(brokerPid) });
  const begin = look();
  await pause(scale * MEASURE_MS);
  const end = look();
  const each = (us: number) => Number((us / (end.counted - begin.counted)).toFixed(1));
  const { user, system } = process.cpuUsage(begin.own);
  return { ownUs: each(user + system), brokerUs: each(1_000 * (end.brokerMs - begin.brokerMs)) };
}

async function ofTail({ cluster }: Stage, places: readonly FetchPosition[], costs: Costs): Promise<Cost> {
  let answered = 0;
  const sink = {
    deliver() {},
    fetched() {
      answered += 1;
    },
  };
  const options = { ...LIMITS, maxBytesPerPartition: PARTITION_BYTES, purpose: 'requests' } as const;
  const tail = new Tail({ ...options, cluster, runtime: RUNTIME });
  for (const place of places) tail.follow(place, sink);
  const cost = await costs(() => answered / places.length);
  await tail.close();
  return cost;
}

async function ofNaming({ cluster }: Stage, partitions: readonly FetchPosition[], costs: Costs): Promise<Cost> {
  const node = await cluster.leader(partitions[0]?.topic ?? '', 0);
  let [answered, isEnded] = [0, false];
  const naming = async () => {
    while (!isEnded) {
      await cluster.call(node, 'requests', CALL_TIMEOUT_MS, (link) => link.call('fetch', { ...LIMITS, partitions }));
      answered += 1;
    }
  };
  const [cost] = await Promise.all([
    costs(() => answered).finally(() => {
      isEnded = true;
    }),
    naming(),
  ]);
  return cost;
}

const COUNTER = new URL('count-metadata.ts', import.meta.url);
const PARTITIONS = 12;
const POLL_MS = 500;
const TIMEOUT_MS = 600_000;

/** How many topics each call for metadata named that a worker made, from its start until all requests were answered. */
export async function metadataCalls(stage: Stage, replyTopics: number, requests: number): Promise<readonly number[]> {
  const topics = await stage.topics(PARTITIONS, undefined, replyTopics);
  await fill(stage, topics, requests, 1);
  using directory = mkdtempDisposableSync(join(tmpdir(), 'idalloc-calls-'));
  const file = join(directory.path, 'named.json');
  {
    const env = { NODE_OPTIONS: `--import=${COUNTER}`, BENCH_METADATA_FILE: file };
    await using running = stage.start('worker', topics, env);
    await until(running, TIMEOUT_MS, POLL_MS, async () => (await stage.replied(topics)) >= requests);
  }
  return JSON.parse(readFileSync(file, 'utf8')) as number[];
}
