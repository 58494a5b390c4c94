import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Snowflake as Sapphire } from '@sapphire/snowflake';
import { v7 } from 'uuid';
import { IdClient, type IdClientOptions } from '../../src/client/index.ts';
import { IdStock } from '../../src/client/stock.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { SUITE } from '../support/servers.ts';
import { unique } from '../support/unique.ts';

/**
 * What an ID costs the caller: next() compared with generators that need no server; and against a worker on real
 * servers, the time to connect, the latency of getting IDs with and without prefetch, and the requests per second.
 *
 * Most generators allocate at most 4,096 (nodejs-snowflake: 1,024) IDs a millisecond and then wait or throw. That wait
 * is part of their figure.
 */
const { values } = parseArgs({
  options: {
    ids: { type: 'string', default: '4000000' },
    rounds: { type: 'string', default: '5' },
    requests: { type: 'string', default: '1000' },
    count: { type: 'string', default: '100' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the client library: next() in ns per ID beside other generators, then its latency against a worker.',
      'npm run bench:client -- [--ids 4000000] [--rounds 5] [--requests 1000] [--count 100] [--json]',
      '  --ids, --rounds     IDs that next() returns in a round, and rounds; the median counts',
      '  --requests          calls whose latency is measured, each for --count IDs',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const ids = Number(values.ids);
const requests = Number(values.requests);
const count = Number(values.count);
const say = (line: string) => process.stderr.write(`${line}\n`);

/** Keeps the last ID, so that the compiler does not remove the calls. */
let last: unknown;

/** The IDs of one reply in the default layout: 100,000 in 25 ranges. */
function supply() {
  const ranges = Array.from({ length: 25 }, (_, i) => ({
    first: 55_325_805_773_398_016n + BigInt(i << 22),
    count: 4_000,
  }));
  return { ranges, step: 1n, requestedAtMs: performance.now() };
}

function generators(): Readonly<Record<string, (times: number) => void>> {
  const require = createRequire(import.meta.url);
  const FlakeId = require('flake-idgen') as new () => { next(): Buffer };
  const { Snowflake } = require('nodejs-snowflake') as { Snowflake: new () => { getUniqueID(): bigint } };
  const limits = { maxAgeMs: 60_000, maxIds: Number.POSITIVE_INFINITY }; // each grant reads the clock, as in a client
  const stock = new IdStock({ ...limits, onLow: () => undefined, monotonicMs: () => performance.now() });
  const sapphire = new Sapphire(1_767_225_600_000);
  const flake = new FlakeId();
  const wasm = new Snowflake();
  return {
    'idalloc next()': (times) => {
      while (stock.size < times) stock.add(supply());
      for (let i = 0; i < times; i += 1) last = stock.next();
    },
    '@sapphire/snowflake': (times) => {
      for (let i = 0; i < times; i += 1) last = sapphire.generate();
    },
    'flake-idgen': (times) => {
      for (let i = 0; i < times; ) {
        try {
          last = flake.next();
          i += 1;
        } catch {
          // It throws when the IDs of a millisecond are used up, until the next one.
        }
      }
    },
    'nodejs-snowflake': (times) => {
      for (let i = 0; i < times; i += 1) last = wasm.getUniqueID();
    },
    'uuid v7': (times) => {
      for (let i = 0; i < times; i += 1) last = v7();
    },
  };
}

function median(samples: readonly number[]): number {
  return samples.toSorted((a, b) => a - b)[Math.floor(samples.length / 2)] ?? Number.NaN;
}

/**
 * Nanoseconds of processor time per ID, which other load on the machine changes less than the time: the median of
 * rounds in which the generators take turns; the first round is a warm-up.
 */
function nanoseconds(): Record<string, number> {
  const samples = new Map<string, number[]>();
  for (let round = 0; round <= Number(values.rounds); round += 1) {
    for (const [name, run] of Object.entries(generators())) {
      // The others are bound by the clock, not by the processor: a tenth of the IDs is enough.
      const times = name.startsWith('idalloc') ? ids : ids / 10;
      const begun = process.cpuUsage();
      run(times);
      const { user, system } = process.cpuUsage(begun);
      const ns = (1_000 * (user + system)) / times;
      if (round > 0) samples.set(name, [...(samples.get(name) ?? []), ns]);
    }
  }
  return Object.fromEntries([...samples].map(([name, all]) => [name, Number(median(all).toFixed(1))]));
}

function idalloc(env: Readonly<Record<string, string>>, ...args: string[]) {
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
  return spawn(process.execPath, [main, ...args], {
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

async function startWorker(env: Readonly<Record<string, string>>): Promise<ChildProcess> {
  const child = idalloc(env, 'worker');
  const lines = createInterface({ input: child.stdout });
  const ready = new Promise<void>((resolve, reject) => {
    lines.on('line', (line) => line.includes('idalloc ready') && resolve());
    child.once('exit', (code) => reject(new Error(`the worker exited with ${code} before it was ready`)));
  });
  await ready;
  return child;
}

interface Latency {
  readonly p50Ms: number;
  readonly p99Ms: number;
}

async function latency(request: () => Promise<unknown>): Promise<Latency> {
  const samples: number[] = [];
  for (let i = 0; i < requests; i += 1) {
    const begun = performance.now();
    last = await request();
    samples.push(performance.now() - begun);
    await pause(1);
  }
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number) => Number((sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(4));
  return { p50Ms: at(0.5), p99Ms: at(0.99) };
}

/** Requests per second with `width` requests in flight at any time. */
async function throughput(client: IdClient, total: number, width: number): Promise<number> {
  let sent = 0;
  const begunMs = performance.now();
  const requestInTurn = async () => {
    for (; sent < total; ) {
      sent += 1;
      await client.request({ count: 1 });
    }
  };
  await Promise.all(Array.from({ length: width }, requestInTurn));
  return Math.round((1_000 * total) / (performance.now() - begunMs));
}

interface Served {
  readonly connectMs: number;
  readonly firstReplyMs: number;
  /** takeAsync() from the prefetched buffer, one call at a time. */
  readonly prefetch: Latency;
  /** request() to the worker, one call at a time. */
  readonly request: Latency;
  /** Keyed by the number of requests in flight. */
  readonly requestsPerSecond: Readonly<Record<string, number>>;
}

/** The client against a worker on real servers: time to connect, latency and throughput. */
async function serve(): Promise<Served> {
  await using stack = new AsyncDisposableStack();
  const servers = await startProcessServers(say, SUITE, { isMeasured: true });
  stack.defer(() => servers.stop());
  const index = mkdtempSync(join(tmpdir(), 'idalloc-bench-'));
  stack.defer(() => rmSync(index, { recursive: true, force: true }));
  const id = unique();
  const env = {
    KAFKA_BROKERS: servers.brokers.join(','),
    ETCD_ENDPOINTS: servers.etcdEndpoints.join(','),
    ETCD_PREFIX: `/bench-${id}`,
    DATACENTER_ID: '0',
    TOPIC_REPLICATION_FACTOR: '1',
    ALLOW_WEAK_LEDGER: '1',
    OPS_PORT: '0',
    API_PORT: '0',
    INDEX_DIR: index,
  };
  const replyTopic = 'id.replies.bench';
  const [code] = await once(idalloc(env, 'topics', 'init', '--reply-topic', replyTopic), 'exit');
  if (code !== 0) throw new Error('idalloc topics init failed: its error is above');
  const worker = await startWorker(env);
  stack.defer(async () => {
    worker.kill('SIGTERM');
    await once(worker, 'exit');
  });
  const options: IdClientOptions = { brokers: servers.brokers, replyTopic };
  const begunMs = performance.now();
  const unbuffered = stack.use(await IdClient.connect({ ...options, prefetch: false }));
  const connectMs = Math.round(performance.now() - begunMs);
  await unbuffered.request({ count: 1 });
  const firstReplyMs = Math.round(performance.now() - begunMs);
  const client = stack.use(await IdClient.connect({ ...options, idsPerSecond: 100_000 }));
  await client.ready();
  const prefetch = await latency(() => client.takeAsync(count));
  const request = await latency(() => unbuffered.request({ count }));
  const requestsPerSecond: Record<string, number> = {};
  for (const width of [64, 1_000]) requestsPerSecond[width] = await throughput(unbuffered, 20 * requests, width);
  return { connectMs, firstReplyMs, prefetch, request, requestsPerSecond };
}

const ns = nanoseconds();
for (const [name, each] of Object.entries(ns)) say(`${name.padEnd(20)} ${each} ns per ID`);
const served = await serve();
const { connectMs, firstReplyMs, prefetch, request, requestsPerSecond } = served;
say(`connected after ${connectMs} ms, first reply ${firstReplyMs} ms after the start of the connection`);
say(`takeAsync() of ${count} prefetched IDs: p50 ${prefetch.p50Ms} ms, p99 ${prefetch.p99Ms} ms`);
say(`request() of ${count} IDs: p50 ${request.p50Ms} ms, p99 ${request.p99Ms} ms`);
for (const [width, rate] of Object.entries(requestsPerSecond)) say(`${width} requests in flight: ${rate} requests/s`);
if (values.json)
  process.stdout.write(`${JSON.stringify({ ns, ids: count, ...served, last: String(last).length > 0 })}\n`);
