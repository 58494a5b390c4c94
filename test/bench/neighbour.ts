import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import type { Followed } from '../support/followed.ts';
import { Handmade } from '../support/handmade.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import type { HandmadeRecord } from '../support/record-bytes.ts';
import { testKafka } from '../support/test-kafka.ts';
import type { WorkerProcess } from '../support/worker-process.ts';
import { median } from './stage.ts';

/**
 * What a hostile neighbour costs a well-behaved requester: the latency of small requests beside each of six floods, as a
 * ratio to the same worker without a flood. Each flood has a worker of its own on fresh topics; the time alone is measured
 * on that worker before the flood. Beside it: the worker's memory, and whether its gate stayed open.
 *
 * Servers, sender and worker share the machine, so the ratios hold what they cost each other as well.
 */
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '15' },
    rate: { type: 'string', default: '100' },
    rounds: { type: 'string', default: '3' },
    flood: { type: 'string', multiple: true },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the latency of small requests beside floods by another requester, as a ratio to the latency without them.',
      'npm run bench:neighbour -- [--seconds 15] [--rate 100] [--rounds 3] [--flood junk]... [--json]',
      '  --rate     small requests a second',
      '  --flood    large, replays, schemas, junk, missing or http; all of them by default',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const seconds = Number(values.seconds);
const rate = Number(values.rate);
const rounds = Number(values.rounds);

const PARTITIONS = 4;
/** As many records as brokers take in a batch, roughly; the broker decompresses and checks each. */
const JUNK_RECORDS = 100_000;
const REPLY_TIMEOUT_MS = 120_000;
const say = (line: string) => process.stderr.write(`${line}\n`);

interface Neighbour {
  readonly realm: Realm;
  readonly worker: WorkerProcess;
  readonly handmade: Handmade;
  /** The neighbour's own reply topic. */
  readonly replyTopic: string;
}

type Records = readonly HandmadeRecord[];

const times = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));
const recordOf = (value: Buffer): HandmadeRecord => ({ key: null, value });

/** Sends a batch to each partition, again and again. */
async function toAll({ handmade }: Neighbour, ended: AbortSignal, make: (i: number) => Records, pauseMs: number) {
  for (let i = 0; !ended.aborted; i += 1) {
    await handmade.records(i % PARTITIONS, make(i), 'zstd');
    await sleep(pauseMs);
  }
}

interface FloodKind {
  readonly env?: (realm: Realm) => Readonly<Record<string, string>>;
  /** Runs until the signal aborts. */
  readonly run: (neighbour: Neighbour, ended: AbortSignal) => Promise<void>;
}

const large = (replyTopic: string, name: string, encoding: 'RANGES' | 'IDS' = 'RANGES') =>
  recordOf(encodeIdRequest({ count: 100_000, correlationId: Buffer.from(name), replyTopic, encoding }));

const FLOODS: Readonly<Record<string, FloodKind>> = {
  /** 500 requests for 100,000 IDs each, in a few KB, to each partition every two seconds. */
  large: {
    run: (neighbour, ended) =>
      toAll(neighbour, ended, (i) => times(500, (k) => large(neighbour.replyTopic, `large-${i}-${k}`)), 500),
  },
  /** The same request for 100,000 listed IDs, 500 times in a batch, within a quota. */
  replays: {
    env: ({ env }) => ({ QUOTAS: `${env.REPLY_TOPIC_PREFIX}neighbour 1000000 100` }),
    run: (neighbour, ended) =>
      toAll(neighbour, ended, () => times(500, () => large(neighbour.replyTopic, 'replayed', 'IDS')), 100),
  },
  /** 5,000 made-up schema IDs in a batch. */
  schemas: {
    env: () => ({ SCHEMA_REGISTRY_URL: `http://127.0.0.1:${registryPort()}` }),
    run: (neighbour, ended) =>
      toAll(neighbour, ended, (i) => times(5_000, (k) => recordOf(madeUpSchema(i * 5_000 + k))), 250),
  },
  /** 100,000 records that are not requests, in a batch of a few KB. */
  junk: {
    run: (neighbour, ended) => {
      const records = times(JUNK_RECORDS, () => ({ key: null, value: null }));
      return toAll(neighbour, ended, () => records, 500);
    },
  },
  /** 1,000 requests in a batch, each for a reply topic of its own that does not exist. */
  missing: {
    run: (neighbour, ended) =>
      toAll(
        neighbour,
        ended,
        (i) => times(1_000, (k) => small(`${neighbour.replyTopic}-${i}-${k}`, `m-${i}-${k}`)),
        250,
      ),
  },
  /** 350 connections that ask for 100,000 IDs and do not read them. */
  http: { run: slowReaders },
};

const small = (replyTopic: string, name: string) =>
  recordOf(encodeIdRequest({ count: 1, correlationId: Buffer.from(name), replyTopic }));

function madeUpSchema(id: number): Buffer {
  const value = Buffer.alloc(16);
  value.writeInt32BE(1_000 + id, 1);
  return value;
}

/** A registry that knows nothing, after 5 ms. */
const registry = createServer((_, response) => {
  setTimeout(() => response.writeHead(404).end('{"error_code":40403,"message":"not found"}'), 5);
});
const registryPort = () => (registry.address() as AddressInfo).port;

async function slowReaders({ worker }: Neighbour, ended: AbortSignal): Promise<void> {
  const { port } = new URL(await worker.api());
  const input = `POST /api/v1/ids?count=100000 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n`;
  const sockets = times(350, () => {
    const socket = connect({ host: '127.0.0.1', port: Number(port) });
    socket.on('error', () => undefined).pause();
    socket.write(input);
    return socket;
  });
  while (!ended.aborted) await sleep(100);
  for (const socket of sockets) socket.destroy();
}

/** Sends small requests at the rate, each as its time comes, and returns how long each waited for its reply. */
async function latencies(realm: Realm, replies: Followed, name: string): Promise<readonly number[]> {
  const begunMs = performance.now();
  const sending = times(seconds * rate, async (i) => {
    const dueMs = begunMs + (i * 1_000) / rate;
    await sleep(Math.max(0, dueMs - performance.now()));
    const correlationId = `${name}-${i}`;
    await realm.send([{ correlationId, count: 1 }]);
    return { correlationId, dueMs };
  });
  const sent = await Promise.all(sending);
  const repliesOf = (seen: typeof replies.seen) =>
    seen.filter(({ message }) => message.key?.toString().startsWith(name));
  const areAll = (seen: typeof replies.seen) => repliesOf(seen).length >= sent.length;
  await replies.until('every small request is answered', areAll, REPLY_TIMEOUT_MS);
  const found = new Map(repliesOf(replies.seen).map(({ message, atMs }) => [String(message.key), atMs]));
  return sent.map(({ correlationId, dueMs }) => (found.get(correlationId) ?? Number.POSITIVE_INFINITY) - dueMs);
}

const p99 = (of: readonly number[]) => of.toSorted((a, b) => a - b)[Math.floor(0.99 * of.length)] ?? Number.NaN;

interface Found {
  readonly alone_ms: number;
  readonly beside_ms: number;
  readonly peak_rss_mb: number;
  readonly gates: readonly unknown[];
}

async function round(kind: FloodKind): Promise<Found> {
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  const replyTopic = `${realm.env.REPLY_TOPIC_PREFIX}neighbour`;
  await realm.createTopic(replyTopic, { partitions: PARTITIONS });
  await using handmade = await Handmade.connect(testKafka(servers.brokers), realm.requestTopic);
  const worker = realm.worker(kind.env?.(realm) ?? {});
  await worker.ready();
  const replies = await realm.follow();
  await latencies(realm, replies, 'warm');
  const alone = p99(await latencies(realm, replies, 'alone'));
  const end = new AbortController();
  const flooding = kind.run({ realm, worker, handmade, replyTopic }, end.signal);
  const gates = new Set<unknown>();
  let peak = 0;
  const watching = (async () => {
    while (!end.signal.aborted) {
      gates.add(worker.gate());
      // Under a flood the page may be late or short; the next look has it again.
      peak = Math.max(peak, await worker.metric('process_resident_memory_bytes').catch(() => 0));
      await sleep(250);
    }
  })();
  try {
    const beside = p99(await latencies(realm, replies, 'beside'));
    return { alone_ms: alone, beside_ms: beside, peak_rss_mb: peak / 1e6, gates: [...gates] };
  } finally {
    end.abort();
    await Promise.allSettled([flooding, watching]);
  }
}

const servers = await startProcessServers(say);
await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
try {
  const result: Record<string, object> = {};
  for (const name of values.flood ?? Object.keys(FLOODS)) {
    const kind = FLOODS[name];
    if (kind === undefined) throw new RangeError(`there is no flood '${name}'`);
    const found: Found[] = [];
    for (let i = 0; i < rounds; i += 1) found.push(await round(kind));
    const of = (field: 'alone_ms' | 'beside_ms' | 'peak_rss_mb') => median(found.map((one) => one[field]));
    result[name] = {
      p99_ratio: Number((of('beside_ms') / of('alone_ms')).toFixed(2)),
      alone_p99_ms: Math.round(of('alone_ms')),
      beside_p99_ms: Math.round(of('beside_ms')),
      peak_rss_mb: Math.round(Math.max(...found.map((one) => one.peak_rss_mb))),
      gates: [...new Set(found.flatMap(({ gates }) => gates))],
    };
    say(`${name}: ${JSON.stringify(result[name])}`);
  }
  process.stdout.write(`${JSON.stringify(result, null, values.json ? undefined : 2)}\n`);
} finally {
  registry.close();
  await servers.stop();
}
