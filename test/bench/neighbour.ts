import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import type { Followed } from '../support/followed.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { SUITE } from '../support/servers.ts';
import { FLOODS, type FloodTarget, PARTITIONS } from './neighbour-flood.ts';
import { optionsOf } from './options.ts';
import { median } from './stage.ts';

/**
 * What a hostile neighbour costs a well-behaved requester: the latency of small requests beside each of several floods,
 * as a ratio to the same worker without a flood. Each flood has a worker of its own on fresh topics; the time alone is
 * measured on that worker before the flood. Beside it: the worker's memory, and whether its gate stayed open.
 *
 * Servers, sender and worker share the machine, and brokers check each batch that they take. What that costs shows a
 * second ratio: to the latency beside the same flood on a topic that no worker reads. It is what the worker itself
 * adds.
 */
const { seconds, rate, rounds, flood, json } = optionsOf(
  'bench:neighbour',
  [
    'Measures the latency of small requests beside floods by another requester, as a ratio to the latency without them.',
  ],
  { seconds: 15, rate: 100, rounds: 3, flood: [...Object.keys(FLOODS), 'http'].join() },
  { rate: 'small requests a second', flood: 'some of these' },
);

const REPLY_TIMEOUT_MS = 120_000;
const KINDS = [...Object.keys(FLOODS), 'http'];
const say = (line: string) => process.stderr.write(`${line}\n`);
const times = <T>(count: number, make: (i: number) => T) => Array.from({ length: count }, (_, i) => make(i));

/** What a worker is configured with beside a flood. */
const envFor: Readonly<Record<string, (realm: Realm) => Readonly<Record<string, string>>>> = {
  replays: ({ env }) => ({ QUOTAS: `${env.REPLY_TOPIC_PREFIX}neighbour 1000000 100` }),
  schemas: () => ({ SCHEMA_REGISTRY_URL: `http://127.0.0.1:${(registry.address() as AddressInfo).port}` }),
};

/** A registry that has the schema of replies, and answers after 5 ms. */
const registry = createServer(({ url }, response) => {
  const isOurs = url?.startsWith('/subjects/idalloc.IdReply') === true;
  const body = isOurs ? '{"id":2}' : '{"error_code":40403,"message":"not found"}';
  setTimeout(() => response.writeHead(isOurs ? 200 : 404).end(body), 5);
});

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

const rounded = (ratio: number) => Number(ratio.toFixed(2));
const p99 = (of: readonly number[]) => of.toSorted((a, b) => a - b)[Math.floor(0.99 * of.length)] ?? Number.NaN;

interface Found {
  readonly alone_ms: number;
  /** Beside the flood on a topic that no worker reads; undefined for one that goes to the worker's API. */
  readonly unread_ms: number | undefined;
  readonly beside_ms: number;
  readonly peak_rss_mb: number;
  readonly gates: readonly unknown[];
}

/** What `measure` returns while the flood runs, from the moment when it has begun. */
async function during<T>(target: FloodTarget, measure: () => Promise<T>): Promise<T> {
  const flood = new Worker(new URL('./neighbour-flood.ts', import.meta.url), { workerData: target });
  const flooded = once(flood, 'exit');
  await once(flood, 'message');
  try {
    return await measure();
  } finally {
    flood.postMessage('end');
    await flooded;
  }
}

async function round(name: string): Promise<Found> {
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  const replyTopic = `${realm.env.REPLY_TOPIC_PREFIX}neighbour`;
  const unreadTopic = `${realm.env.REPLY_TOPIC_PREFIX}unread`;
  for (const topic of [replyTopic, unreadTopic]) await realm.createTopic(topic, { partitions: PARTITIONS });
  const worker = realm.worker(envFor[name]?.(realm) ?? {});
  await worker.ready();
  const replies = await realm.follow();
  const { brokers } = servers;
  const apiPort = Number(new URL(await worker.api()).port);
  const target: FloodTarget = { name, brokers, requestTopic: realm.requestTopic, replyTopic, apiPort };
  const measured = async (phase: string) => p99(await latencies(realm, replies, phase));
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
    await measured('warm');
    const alone_ms = await measured('alone');
    const elsewhere = { ...target, requestTopic: unreadTopic };
    const unread_ms = name === 'http' ? undefined : await during(elsewhere, () => measured('unread'));
    const beside_ms = await during(target, () => measured('beside'));
    return { alone_ms, unread_ms, beside_ms, peak_rss_mb: peak / 1e6, gates: [...gates] };
  } finally {
    end.abort();
    await watching;
  }
}

const servers = await startProcessServers(say, SUITE, { isMeasured: true });
await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
try {
  const result: Record<string, object> = {};
  await round('small-junk'); // not counted: brokers and worker compile their code
  for (const name of flood.split(',')) {
    if (!KINDS.includes(name)) throw new RangeError(`there is no flood '${name}': use one of ${KINDS.join(', ')}`);
    const found: Found[] = [];
    for (let i = 0; i < rounds; i += 1) found.push(await round(name));
    const of = (field: 'alone_ms' | 'unread_ms' | 'beside_ms') => median(found.map((one) => one[field] ?? Number.NaN));
    const ratios = (field: 'alone_ms' | 'unread_ms') => {
      const each = found.map((one) => one.beside_ms / (one[field] ?? Number.NaN));
      return { median: rounded(median(each)), each: each.map(rounded) };
    };
    result[name] = {
      to_alone: ratios('alone_ms'),
      ...(name !== 'http' && { to_unread: ratios('unread_ms'), unread_p99_ms: Math.round(of('unread_ms')) }),
      alone_p99_ms: Math.round(of('alone_ms')),
      beside_p99_ms: Math.round(of('beside_ms')),
      peak_rss_mb: Math.round(Math.max(...found.map((one) => one.peak_rss_mb))),
      gates: [...new Set(found.flatMap(({ gates }) => gates))],
    };
    say(`${name}: ${JSON.stringify(result[name])}`);
  }
  process.stdout.write(`${JSON.stringify(result, null, json ? undefined : 2)}\n`);
} finally {
  registry.close();
  await servers.stop();
}
