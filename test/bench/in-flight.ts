import { NodeSDK } from '@opentelemetry/sdk-node';
import { IdClient } from '../../src/client/index.ts';
import { OtlpReceiver, type ReceivedSpan } from '../support/otlp-receiver.ts';
import { closedLoop } from './closed-loop.ts';
import { optionsOf } from './options.ts';
import { median, Stage } from './stage.ts';

/**
 * Latency of one client's requests with so many in flight, from the call to its batch: the client's queue and append,
 * the worker, and the client's fetch. Each request is followed by the next, so rate and latency belong together.
 *
 * With --steps also where the time goes, from traces of the client and the worker: the median of each step. Only a
 * share of the requests has spans, so that these do not become what is measured.
 */
const {
  seconds,
  rounds,
  partitions,
  steps,
  json,
  'in-flight': counts,
} = optionsOf(
  'bench:in-flight',
  [
    "Measures the latency of one client's requests, in ms, with some numbers of them in flight, and the requests per second.",
  ],
  { 'in-flight': [1, 16, 64, 256], seconds: 4, rounds: 3, partitions: 12, steps: false },
  {
    rounds: 'of which the medians count',
    steps: 'the steps of a request as well: the median of each, in ms, from traces',
  },
);
/** So long because the brokers compile their code meanwhile. */
const WARM_UP_SECONDS = 12;
const WARM_UP_IN_FLIGHT = 64;
/** Spans are exported each half second; those of the last requests once more after the client has closed. */
const EXPORT_MS = 500;
/** The share of the requests that have spans. */
const TRACED_SHARE = 0.02;
/** The least requests with spans that a median is worth something for. */
const MIN_TRACED = 30;

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

const say = (line: string) => process.stderr.write(`${line}\n`);
const rounded = (value: number) => Number(value.toFixed(2));

interface Measured {
  readonly requests_per_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  /** Of the worker and of the client, in percent of one processor. */
  readonly worker_cpu: number;
  readonly client_cpu: number;
}

/** When it was measured, by the wall clock that spans have. */
type Timed = Measured & { readonly fromMs: number; readonly toMs: number };

async function measureAll(): Promise<ReadonlyMap<number, readonly Timed[]>> {
  await using stage = await Stage.open(say);
  const topics = await stage.topics(partitions);
  await using running = stage.start('worker', topics);
  const { replies: replyTopic, requests: requestTopic } = topics;
  const brokers = [...stage.brokers];
  await using client = await IdClient.connect({ brokers, replyTopic, requestTopic, prefetch: false });
  const request = () => client.request({ count: 1, timeoutMs: 60_000 });
  await request();
  await closedLoop(request, WARM_UP_IN_FLIGHT, WARM_UP_SECONDS);
  const found = new Map(counts.map((inFlight) => [inFlight, [] as Timed[]]));
  for (let round = 1; round <= rounds; round += 1) {
    for (const [inFlight, its] of found) {
      const [fromMs, workerMs, own] = [Date.now(), running.cpuMs(), process.cpuUsage()];
      const { perSecond, p50Ms, p99Ms } = await closedLoop(request, inFlight, seconds);
      const { user, system } = process.cpuUsage(own);
      running.check();
      const one: Measured = {
        requests_per_s: Math.round(perSecond),
        p50_ms: rounded(p50Ms),
        p99_ms: rounded(p99Ms),
        worker_cpu: Math.round((running.cpuMs() - workerMs) / seconds / 10),
        client_cpu: Math.round((user + system) / seconds / 10_000),
      };
      its.push({ ...one, fromMs, toMs: Date.now() });
      say(`round ${round}, ${inFlight} in flight: ${JSON.stringify(one)}`);
    }
  }
  return found;
}

/** What `measure` returns, and the requests that had spans meanwhile. */
async function traced<T>(measure: () => Promise<T>): Promise<{ readonly found: T; readonly traces: readonly Spans[] }> {
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
  const found = await measure();
  await sdk.shutdown();
  return { found, traces: complete(receiver.spans) };
}

function stepsOf(traces: readonly Spans[], its: readonly Timed[]): object {
  const own = traces.filter(({ request: { startMs } }) =>
    its.some(({ fromMs, toMs }) => startMs >= fromMs && startMs <= toMs),
  );
  if (own.length < MIN_TRACED) throw new Error(`only ${own.length} requests were traced: raise --seconds`);
  const medians = Object.entries(STEPS).map(([name, of]) => [name, rounded(median(own.map(of)))]);
  return { traced: own.length, steps_p50_ms: Object.fromEntries(medians) };
}

const { found, traces } = steps ? await traced(measureAll) : { found: await measureAll(), traces: [] };
const results = [...found].map(([in_flight, its]) => {
  const of = (field: keyof Measured) => median(its.map((one) => one[field]));
  const latency = { requests_per_s: of('requests_per_s'), p50_ms: of('p50_ms'), p99_ms: of('p99_ms') };
  return { in_flight, ...latency, ...(steps && stepsOf(traces, its)) };
});
process.stdout.write(`${JSON.stringify({ results }, null, json ? undefined : 2)}\n`);
