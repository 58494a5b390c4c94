import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';
import { Snowflake as Sapphire } from '@sapphire/snowflake';
import { v7 } from 'uuid';
import { IdClient, type IdClientOptions } from '../../src/client/index.ts';
import { IdStock } from '../../src/client/stock.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { SUITE } from '../support/servers.ts';
import { closedLoop } from './closed-loop.ts';
import { optionsOf } from './options.ts';
import { median } from './stage.ts';

/**
 * What an ID costs the caller: next() compared with generators that need no server; and against a worker on real
 * servers, the time to connect, the latency of getting IDs with and without prefetch, and the requests per second.
 *
 * Most generators allocate at most 4,096 (nodejs-snowflake: 1,024) IDs a millisecond and then wait or throw. That wait
 * is part of their figure.
 */
const { ids, rounds, requests, count, json } = optionsOf(
  'bench:client',
  ['Measures the client library: next() in ns per ID beside other generators, then its latency against a worker.'],
  { ids: 4_000_000, rounds: 5, requests: 1_000, count: 100 },
  {
    ids: 'that next() returns in a round; the median of the rounds counts',
    requests: 'calls whose latency is measured, each for --count IDs',
  },
);
const PARTITIONS = 12;
/** For each number of requests in flight. */
const LOOP_SECONDS = 3;
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

/**
 * Nanoseconds of processor time per ID, which other load on the machine changes less than the time: the median of
 * rounds in which the generators take turns; the first round is a warm-up.
 */
function nanoseconds(): Record<string, number> {
  const samples = new Map<string, number[]>();
  for (let round = 0; round <= rounds; round += 1) {
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
  const realm = stack.use(await Realm.create(servers, { partitions: PARTITIONS }));
  await realm.worker({ LOG_LEVEL: 'info' }).ready();
  const { replyTopic, requestTopic } = realm;
  const options: IdClientOptions = { brokers: servers.brokers, replyTopic, requestTopic };
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
  for (const width of [64, 1_000]) {
    const { perSecond } = await closedLoop(() => unbuffered.request({ count: 1 }), width, LOOP_SECONDS);
    requestsPerSecond[width] = Math.round(perSecond);
  }
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
if (json) process.stdout.write(`${JSON.stringify({ ns, ids: count, ...served, last: String(last).length > 0 })}\n`);
