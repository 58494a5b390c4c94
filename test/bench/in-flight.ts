import { parseArgs } from 'node:util';
import { IdClient } from '../../src/client/index.ts';
import { closedLoop } from './closed-loop.ts';
import { MAIN, median, Stage } from './stage.ts';

/**
 * Latency of one client's requests with so many in flight, from the call to its batch: the client's queue and append,
 * the worker, and the client's fetch. Each request is followed by the next, so rate and latency belong together.
 */
const { values } = parseArgs({
  options: {
    'in-flight': { type: 'string', default: '1,16,64,256' },
    seconds: { type: 'string', default: '4' },
    rounds: { type: 'string', default: '3' },
    partitions: { type: 'string', default: '12' },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      "Measures the latency of one client's requests, in ms, with some numbers of them in flight, and the requests per second.",
      'npm run bench:in-flight -- [--in-flight 1,16,64,256] [--seconds 4] [--rounds 3] [--partitions 12] [--json]',
      '  --main PATH   main.ts of the worker, to compare another checkout',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const seconds = Number(values.seconds);
const rounds = Number(values.rounds);
/** So long because the brokers compile their code meanwhile. */
const WARM_UP_SECONDS = 12;
const WARM_UP_IN_FLIGHT = 64;
const say = (line: string) => process.stderr.write(`${line}\n`);

interface Measured {
  readonly requests_per_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  /** Of the worker and of the client, in percent of one processor. */
  readonly worker_cpu: number;
  readonly client_cpu: number;
}

await using stage = await Stage.open(say, values.main);
const topics = await stage.topics(Number(values.partitions));
await using running = stage.start('worker', topics);
const { replies: replyTopic, requests: requestTopic } = topics;
await using client = await IdClient.connect({ brokers: [...stage.brokers], replyTopic, requestTopic, prefetch: false });
const request = () => client.request({ count: 1, timeoutMs: 60_000 });
await request();
await closedLoop(request, WARM_UP_IN_FLIGHT, WARM_UP_SECONDS);

async function measure(inFlight: number): Promise<Measured> {
  const before = { worker: running.cpuMs(), own: process.cpuUsage() };
  const { perSecond, p50Ms, p99Ms } = await closedLoop(request, inFlight, seconds);
  const own = process.cpuUsage(before.own);
  running.check();
  return {
    requests_per_s: Math.round(perSecond),
    p50_ms: Number(p50Ms.toFixed(2)),
    p99_ms: Number(p99Ms.toFixed(2)),
    worker_cpu: Math.round((running.cpuMs() - before.worker) / seconds / 10),
    client_cpu: Math.round((own.user + own.system) / seconds / 10_000),
  };
}

const counts = values['in-flight'].split(',').map(Number);
const found = new Map(counts.map((inFlight) => [inFlight, [] as Measured[]]));
for (let round = 1; round <= rounds; round += 1) {
  for (const [inFlight, its] of found) {
    const one = await measure(inFlight);
    its.push(one);
    say(`round ${round}, ${inFlight} in flight: ${JSON.stringify(one)}`);
  }
}
const results = [...found].map(([in_flight, its]) => {
  const of = (field: keyof Measured) => median(its.map((one) => one[field]));
  return { in_flight, requests_per_s: of('requests_per_s'), p50_ms: of('p50_ms'), p99_ms: of('p99_ms') };
});
const lines = results.map(
  ({ in_flight, requests_per_s, p50_ms, p99_ms }) =>
    `${in_flight} in flight: p50 ${p50_ms} ms, p99 ${p99_ms} ms, ${requests_per_s} requests/s`,
);
process.stdout.write(`${values.json ? JSON.stringify({ results }) : lines.join('\n')}\n`);
