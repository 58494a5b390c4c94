import { once } from 'node:events';
import { mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { table } from '../../src/cli/output.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { fillLedger } from '../support/filled-ledger.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { freshSeed } from '../support/seeded.ts';
import { SUITE } from '../support/servers.ts';
import { CALL_FLOODS } from './neighbour-calls.ts';
import { DESTINATIONS, type FloodTarget, KAFKA_FLOODS, PARTITIONS } from './neighbour-flood.ts';
import { type Latencies, SmallRequests } from './neighbour-requests.ts';
import { optionsOf, refuse } from './options.ts';
import { median } from './stage.ts';

/**
 * What a hostile neighbour costs a well-behaved requester: the latency of small requests over Kafka and HTTP beside
 * each of several floods, as a ratio to the same worker without a flood. Each flood has a worker of its own on fresh
 * topics; the time alone is measured on that worker before the flood. Beside it: the worker's memory, and whether its
 * gate stayed open.
 *
 * A flood begins twice. The first time is a rehearsal: worker and brokers compile the code that it needs, on the cores
 * that all share, as they have done for small requests before these are measured. How long small requests took then is
 * reported, and not judged.
 *
 * Servers, sender and worker share the machine, and brokers check each batch that they take. What that costs, --unread
 * shows: the latency beside the same flood on a topic that no worker reads. The worker itself adds what is above it.
 */
const KINDS = [...Object.keys(KAFKA_FLOODS), ...Object.keys(CALL_FLOODS)];
/** A neighbour may make small requests this many times as slow, by the median of the rounds. */
const MOST_RATIO = 2;
const MOST_RSS_MB = 400;
const WARM_SECONDS = 5;
/** The number of a flood's first batch after its rehearsal, so that its requests are new ones. */
const REHEARSED = 100_000;
/**
 * A file system in memory, where Linux has one. On a disk that servers share, each waits for what others write: a
 * broker's append to a hundred partitions then takes up to seconds.
 */
const MEMORY_DIR = '/dev/shm';
const LEAST_MEMORY_BYTES = 4 * 2 ** 30;

const options = optionsOf(
  'bench:neighbour',
  [
    'Measures the latency of small requests beside floods by another requester, as a ratio to the latency without them.',
    `Ends with 1 if a p99 is above ${MOST_RATIO} times that alone, a worker above ${MOST_RSS_MB} MB, or a gate was closed.`,
  ],
  { seconds: 10, rate: 100, rounds: 5, flood: KINDS.join(), seed: freshSeed(), unread: false },
  {
    seconds: 'for which each latency is measured',
    rate: 'small requests a second over Kafka, and half as many over HTTP',
    flood: 'some of these',
    seed: 'what `mix` is drawn from; another one each time',
    unread: 'over Kafka also beside the flood on a topic that no worker reads',
  },
);
const floods = options.flood.split(',');
const unknown = floods.find((name) => !KINDS.includes(name));
if (unknown !== undefined) refuse(`there is no flood '${unknown}': use some of ${KINDS.join(', ')}`);

const say = (line: string) => process.stderr.write(`${line}\n`);
const TOKENS = { neighbour: 'the-token-of-the-neighbour', other: 'the-token-of-others' } as const;
/** As a worker fills the ledger that serves a thousand requests a second for a minute or two. */
const FILLED = 100_000;
const ENTRIES_AN_APPEND = 100;

/** What one round needs besides what all have. */
interface Scene {
  readonly env?: (realm: Realm) => Readonly<Record<string, string>>;
  /** Topics of the neighbour, and entries of the ledger, before the worker starts. */
  readonly prepare?: (realm: Realm, replyTopic: string) => Promise<void>;
  readonly isTls?: boolean;
}

/** As image, chart and unit start a worker. */
const PACKAGED = { NODE_OPTIONS: '--max-semi-space-size=16 --v8-pool-size=1' };

const quotaOf = (requests: number) => (realm: Realm) => ({
  QUOTAS: `${realm.env.REPLY_TOPIC_PREFIX}neighbour 1000000 ${requests}`,
});
const fill = (realm: Realm, replyTopic: string) =>
  fillLedger(realm, FILLED, { entriesAnAppend: ENTRIES_AN_APPEND, replyTopic });
const refusing = (realm: Realm, replyTopic: string) =>
  realm.createTopic(`${replyTopic}-refusing`, { configs: { 'max.message.bytes': '1' } });

async function widen(realm: Realm, replyTopic: string): Promise<void> {
  await realm.createTopic(`${replyTopic}-wide`, { partitions: DESTINATIONS });
  const topics = manyTopics(replyTopic).map((topic) => ({ topic, numPartitions: 1, replicationFactor: 1 }));
  await realm.admin.createTopics({ topics, waitForLeaders: false });
}

const manyTopics = (replyTopic: string) => Array.from({ length: DESTINATIONS }, (_, i) => `${replyTopic}-many-${i}`);

const SCENES: Readonly<Record<string, Scene>> = {
  replays: { env: quotaOf(100) },
  schemas: { env: () => ({ SCHEMA_REGISTRY_URL: `http://127.0.0.1:${(registry.address() as AddressInfo).port}` }) },
  apart: { prepare: fill },
  wide: { env: quotaOf(10_000), prepare: widen },
  refusing: { prepare: refusing },
  'over-quota': { env: quotaOf(100) },
  handshakes: { isTls: true },
  mix: {
    env: quotaOf(1_000),
    prepare: async (realm, replyTopic) => {
      for (const prepare of [refusing, widen, fill]) await prepare(realm, replyTopic);
    },
  },
};

/** A registry that has the schema of replies, and answers after 5 ms. */
const registry = createServer(({ url }, response) => {
  const isOurs = url?.startsWith('/subjects/idalloc.IdReply') === true;
  const body = isOurs ? '{"id":2}' : '{"error_code":40403,"message":"not found"}';
  setTimeout(() => response.writeHead(isOurs ? 200 : 404).end(body), 5);
});

function hasMemoryDir(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY_DIR);
    return bavail * bsize >= LEAST_MEMORY_BYTES;
  } catch {
    return false; // not Linux
  }
}

interface Found {
  readonly alone: Latencies;
  /** Beside the rehearsal of the flood. */
  readonly rehearsed: Latencies;
  /** Beside the flood on a topic that no worker reads. */
  readonly unread: Latencies | undefined;
  readonly beside: Latencies;
  readonly rssMb: number;
  readonly gates: readonly unknown[];
}

/** What `measure` returns while the flood runs, from the moment when it has begun. */
async function during<T>(target: FloodTarget, measure: () => Promise<T>): Promise<T> {
  const flood = new Worker(new URL('./neighbour-flood.ts', import.meta.url), { workerData: target });
  const flooded = once(flood, 'exit');
  const early = flooded.then(() => {
    throw new Error(`the flood '${target.name}' has ended`);
  });
  await Promise.race([once(flood, 'message'), early]);
  try {
    return await Promise.race([measure(), early]);
  } finally {
    flood.postMessage('end');
    await flooded;
  }
}

async function round(name: string): Promise<Found> {
  await using realm = await Realm.create(servers, { partitions: PARTITIONS, apiReplies: true });
  const scene = SCENES[name] ?? {};
  const [replyTopic, unreadTopic] = ['neighbour', 'unread'].map((its) => `${realm.env.REPLY_TOPIC_PREFIX}${its}`) as [
    string,
    string,
  ];
  for (const topic of [replyTopic, unreadTopic]) await realm.createTopic(topic, { partitions: PARTITIONS });
  await scene.prepare?.(realm, replyTopic);
  const tls = scene.isTls === true ? { API_TLS_CERT_FILE: cert.certFile, API_TLS_KEY_FILE: cert.keyFile } : {};
  const tokens = Object.entries(TOKENS).map((entry) => entry.join(':'));
  const worker = realm.worker({ ...PACKAGED, ...scene.env?.(realm), ...tls, API_TOKEN: tokens.join('\n') });
  await worker.ready();
  const [apiPort, opsPort] = [await worker.api(), await worker.opsUrl()].map((url) => Number(new URL(url).port)) as [
    number,
    number,
  ];
  const api = { port: apiPort, token: TOKENS.other, isTls: scene.isTls === true };
  const requests = new SmallRequests(realm, await realm.follow(), api, options.rate);
  const target: FloodTarget = {
    name,
    brokers: servers.brokers,
    requestTopic: realm.requestTopic,
    replyTopic,
    apiReplyTopic: realm.env.API_REPLY_TOPIC ?? '',
    apiPort,
    opsPort,
    token: TOKENS.neighbour,
    filled: FILLED,
    seed: options.seed,
    seconds: WARM_SECONDS,
    firstBatch: 0,
  };
  const end = new AbortController();
  const gates = new Set<unknown>();
  let peak = 0;
  // In all phases, since each look costs the worker some milliseconds.
  const watching = (async () => {
    while (!end.signal.aborted) {
      gates.add(worker.gate());
      // Under a flood the page may be late or short; the next look has it again.
      peak = Math.max(peak, await worker.metric('process_resident_memory_bytes').catch(() => 0));
      await sleep(250);
    }
  })();
  try {
    await requests.latencies('warm', WARM_SECONDS);
    const alone = await requests.latencies('alone', options.seconds);
    const isUnread = options.unread && KAFKA_FLOODS[name] !== undefined;
    const elsewhere = { ...target, seconds: options.seconds, requestTopic: unreadTopic };
    const unread = isUnread ? await during(elsewhere, () => requests.latencies('unread', options.seconds)) : undefined;
    const rehearsed = await during(target, () => requests.latencies('rehearsed', WARM_SECONDS));
    const again = { ...target, seconds: options.seconds, firstBatch: REHEARSED };
    const beside = await during(again, () => requests.latencies('beside', options.seconds));
    return { alone, unread, rehearsed, beside, rssMb: peak / 1e6, gates: [...gates] };
  } finally {
    end.abort();
    await watching;
    requests.close();
    if (scene.prepare === widen || name === 'mix') await realm.admin.deleteTopics({ topics: manyTopics(replyTopic) });
  }
}

const rounded = (ms: number, digits: number) => Number(ms.toFixed(digits));
const medianOf = (found: readonly Found[], of: (one: Found) => number) => median(found.map(of));

/** Of one of the two ways in: the medians of the rounds. */
function comparisonOf(found: readonly Found[], over: 'kafka' | 'http') {
  const ratios = found.map(({ alone, beside }) => beside[over].p99 / alone[over].p99);
  const figure = (of: (one: Found) => number) => rounded(medianOf(found, of), 1);
  const unread = found.map(({ beside, unread }) => beside[over].p99 / (unread?.[over].p99 ?? Number.NaN));
  return {
    alone_p50_ms: figure(({ alone }) => alone[over].p50),
    beside_p50_ms: figure(({ beside }) => beside[over].p50),
    alone_p99_ms: figure(({ alone }) => alone[over].p99),
    beside_p99_ms: figure(({ beside }) => beside[over].p99),
    rehearsed_p99_ms: figure(({ rehearsed }) => rehearsed[over].p99),
    ratio: rounded(median(ratios), 2),
    each: ratios.map((ratio) => rounded(ratio, 2)),
    ...(options.unread && over === 'kafka' && { to_unread: rounded(median(unread), 2) }),
  };
}

function resultOf(found: readonly Found[]) {
  const [kafka, http] = [comparisonOf(found, 'kafka'), comparisonOf(found, 'http')];
  const rss_mb = Math.round(Math.max(...found.map(({ rssMb }) => rssMb)));
  const gates = [...new Set(found.flatMap((one) => one.gates))];
  const isGateOpen = gates.every((gate) => gate === 'open');
  const isHeld = Math.max(kafka.ratio, http.ratio) <= MOST_RATIO && rss_mb <= MOST_RSS_MB && isGateOpen;
  return { kafka, http, rss_mb, gates, is_held: isHeld };
}

type Result = ReturnType<typeof resultOf>;

function tableOf(results: Readonly<Record<string, Result>>): string {
  const ways = ['Kafka', 'HTTP'].flatMap((way) => [`${way} p50 ms`, 'p99 ms', 'ratio']);
  const columns = ['flood', ...[...ways, 'RSS MB'].map((title) => `>${title}`), 'gate', ''];
  const rows = Object.entries(results).map(([name, { kafka, http, rss_mb, gates, is_held }]) => [
    name,
    ...[kafka, http].flatMap((way) => [
      `${way.alone_p50_ms} > ${way.beside_p50_ms}`,
      `${way.alone_p99_ms} > ${way.beside_p99_ms}`,
      String(way.ratio),
    ]),
    String(rss_mb),
    gates.join(),
    is_held ? '' : 'TOO MUCH',
  ]);
  return `${table(columns, rows)}\nMedians of ${options.rounds} rounds, alone > beside the flood. Seed of mix: ${options.seed}.\n`;
}

const parentDir = hasMemoryDir() ? MEMORY_DIR : tmpdir();
if (parentDir !== MEMORY_DIR) say(`${MEMORY_DIR} has no room, so servers share a disk, which adds to all latencies`);
const servers = await startProcessServers(say, SUITE, { isMeasured: true, parentDir });
const dir = mkdtempSync(join(tmpdir(), 'idalloc-neighbour-'));
const cert = new CertificateAuthority(dir).issue('127.0.0.1');
await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
try {
  const results: Record<string, Result> = {};
  say(`seed of mix: ${options.seed}`);
  await round('mix'); // not counted: brokers compile the code of most floods
  for (const name of floods) {
    const found: Found[] = [];
    for (let i = 0; i < options.rounds; i += 1) found.push(await round(name));
    results[name] = resultOf(found);
    say(`${name}: ${JSON.stringify(results[name])}`);
  }
  process.stdout.write(
    options.json ? `${JSON.stringify({ seed: options.seed, floods: results })}\n` : tableOf(results),
  );
  if (!Object.values(results).every(({ is_held }) => is_held)) process.exitCode = 1;
} finally {
  registry.close();
  rmSync(dir, { recursive: true, force: true });
  await servers.stop();
}
