import { parseArgs } from 'node:util';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { IdClient } from '../../src/client/index.ts';
import { OtlpReceiver, type ReceivedSpan } from '../support/otlp-receiver.ts';
import { closedLoop } from './closed-loop.ts';
import { MAIN, median, Stage } from './stage.ts';

/**
 * Where the time of a request goes, from traces of the client and the worker: the median of each step, with some
 * numbers of requests of one client in flight. Only a share of the requests has spans, so that these do not become what
 * is measured.
 */
const { values } = parseArgs({
  options: {
    'in-flight': { type: 'string', default: '1,64,1000' },
    seconds: { type: 'string', default: '10' },
    partitions: { type: 'string', default: '12' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the steps of a request, from the call of the client to its reply: the median of each, in ms, from traces.',
      'npm run bench:way -- [--in-flight 1,64,1000] [--seconds 10] [--partitions 12] [--json]',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const seconds = Number(values.seconds);
/** So long because the brokers compile their code meanwhile. */
const WARM_UP_SECONDS = 12;
const WARM_UP_IN_FLIGHT = 64;
/** Spans are exported each half second; those of the last requests once more after the client has closed. */
const EXPORT_MS = 500;
/** The share of the requests that have spans. */
const TRACED_SHARE = 0.02;
/** The least requests with spans that a median is worth something for. */
const MIN_TRACED = 30;
const say = (line: string) => process.stderr.write(`${line}\n`);

/** The spans of one request: its own, and the worker's below it. */
type Spans = Readonly<Record<'request' | 'process' | 'receive' | 'append' | 'reply', ReceivedSpan>>;

/** In the order of the way; what the client and the worker do at the same time is in the later one. */
const STEPS: Readonly<Record<string, (spans: Spans) => number>> = {
  "client's queue and append, worker's fetch": ({ request, process }) => process.startMs - request.startMs,
  'decoding, turn of the event loop': ({ receive }) => receive.endMs - receive.startMs,
  'turn of the partition, look-up, allocation': ({ receive, append }) => append.startMs - receive.endMs,
  'append to the ledger, until the index shows it': ({ append }) => append.endMs - append.startMs,
  'from the decision to the queue of replies': ({ append, reply }) => reply.startMs - append.endMs,
  "append of the reply, client's fetch": ({ reply, request }) => request.endMs - reply.startMs,
  'all of it': ({ request }) => request.endMs - request.startMs,
};

/** The requests whose spans have all arrived. */
function complete(spans: readonly ReceivedSpan[]): Spans[] {
  const traces = Map.groupBy(spans, ({ traceId }) => traceId);
  return [...traces.values()].flatMap((own) => {
    const names = ['request', 'process', 'receive', 'append', 'reply'] as const;
    const found = Object.fromEntries(names.map((name) => [name, own.find((span) => span.name.startsWith(name))]));
    return names.every((name) => found[name] !== undefined) ? [found as unknown as Spans] : [];
  });
}

await using receiver = await OtlpReceiver.start();
// The worker inherits them.
Object.assign(process.env, {
  OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
  OTEL_BSP_SCHEDULE_DELAY: String(EXPORT_MS),
  OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
  OTEL_TRACES_SAMPLER_ARG: String(TRACED_SHARE),
});
const sdk = new NodeSDK({ serviceName: 'bench', metricReaders: [], logRecordProcessors: [] });
sdk.start();

async function measure(): Promise<readonly (readonly [inFlight: string, loop: object, from: number, to: number])[]> {
  await using stage = await Stage.open(say, MAIN);
  const topics = await stage.topics(Number(values.partitions));
  await using _worker = stage.start('worker', topics);
  const { replies: replyTopic, requests: requestTopic } = topics;
  await using client = await IdClient.connect({
    brokers: [...stage.brokers],
    replyTopic,
    requestTopic,
    prefetch: false,
  });
  const request = () => client.request({ count: 1, timeoutMs: 60_000 });
  await request();
  await closedLoop(request, WARM_UP_IN_FLIGHT, WARM_UP_SECONDS);
  const measured = [];
  for (const inFlight of values['in-flight'].split(',')) {
    say(`${inFlight} in flight ...`);
    const from = Date.now();
    const { perSecond, p50Ms, p99Ms } = await closedLoop(request, Number(inFlight), seconds);
    const loop = { requests_per_s: Math.round(perSecond), p50_ms: p50Ms, p99_ms: p99Ms };
    measured.push([inFlight, loop, from, Date.now()] as const);
  }
  return measured;
}

const measured = await measure();
await sdk.shutdown();
const traced = complete(receiver.spans);
const rounded = (of: object) => Object.fromEntries(Object.entries(of).map(([name, n]) => [name, Number(n.toFixed(2))]));
const result = Object.fromEntries(
  measured.map(([inFlight, loop, from, to]) => {
    const own = traced.filter(({ request }) => request.startMs >= from && request.startMs <= to);
    if (own.length < MIN_TRACED) throw new Error(`only ${own.length} requests were traced: raise --seconds`);
    const steps = Object.entries(STEPS).map(([name, of]) => [name, median(own.map(of))]);
    return [inFlight, { ...rounded(loop), traced: own.length, steps_p50_ms: rounded(Object.fromEntries(steps)) }];
  }),
);
process.stdout.write(`${JSON.stringify(result, null, values.json ? undefined : 2)}\n`);
