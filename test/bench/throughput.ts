import { mkdtempDisposableSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fill, type Rate, rateOf } from './backlog.ts';
import { optionsOf, refuse } from './options.ts';
import type { Contender } from './running.ts';
import { median, Stage } from './stage.ts';

/**
 * Requests per second of one worker, beside others that serve the same records. All alternate on the same servers, in
 * another order each time. Absolute figures depend on the machine; the ratios much less, and of these the processor
 * time of a request says more than the rate on a busy machine.
 *
 * Each run starts with all requests on the topic, and is timed from the first tenth of the replies to the last reply,
 * so that start-up does not count. The layout of the IDs also limits a worker: `limit_ratio` is the rate divided by
 * that limit.
 */
interface Setup {
  readonly process?: Contender;
  readonly env?: Readonly<Record<string, string>>;
  /** Of each request, besides those that address its reply. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Another group reads all requests again, as after `idalloc replay`, and finds each in the index of the first. */
  readonly isReplay?: boolean;
}

/** Takes the spans of those with an SDK. */
const sink = createServer((request, response) => request.resume().on('end', () => response.end()));
await new Promise<void>((resolve) => sink.listen(0, '127.0.0.1', resolve));
const env = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(sink.address() as AddressInfo).port}` };
const traceparent = (flags: string) => ({
  traceparent: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-${flags}`,
});

const SETUPS: Readonly<Record<string, Setup>> = {
  worker: {},
  copy: { process: 'copy' },
  wire: { process: 'wire' },
  replay: { isReplay: true },
  copied: { headers: traceparent('01') },
  untraced: { env },
  unsampled: { env, headers: traceparent('00') },
  sampled: { env, headers: traceparent('01') },
};

const options = optionsOf(
  'bench',
  [
    'Measures the requests per second of one worker, its ratio to the limit of the ID layout, and to others:',
    '  copy       a kafkajs loop that only copies records (consume, produce, commit)',
    '  wire       the record operations of a worker without its logic',
    '  replay     the worker, which has decided all requests before',
    '  copied     the worker, and each request has a traceparent, which is copied to its reply',
    '  untraced   the worker, with an SDK that exports traces; no request has a traceparent',
    '  unsampled  the same, and each has one that is not sampled',
    '  sampled    the same, and each has one that is',
    'npm run bench -- --compare COMMIT compares this tree with a commit; with --help it says how.',
  ],
  { requests: 200_000, partitions: 8, rounds: 3, 'ids-per-request': [1, 100], beside: 'copy,wire' },
  { beside: 'what the worker is measured beside' },
);
const { requests, partitions } = options;
const others = options.beside.split(',');
const unknown = others.find((name) => SETUPS[name] === undefined);
if (unknown !== undefined) refuse(`--beside has no '${unknown}': it takes some of ${Object.keys(SETUPS).join()}`);

/** The limit of the default layout: 4,096 IDs in each millisecond. */
const LIMIT_IDS_PER_S = 4_096_000;
const say = (line: string) => process.stderr.write(`${line}\n`);

async function serve(stage: Stage, ids: number, { process: contender = 'worker', ...setup }: Setup): Promise<Rate> {
  const topics = await stage.topics(partitions);
  await fill(stage, topics, requests, ids, setup);
  using index = mkdtempDisposableSync(join(tmpdir(), 'idalloc-bench-'));
  const run = async (group: string) => {
    const before = await stage.replied(topics);
    const own = { INDEX_DIR: index.path, KAFKA_GROUP_ID: `${topics.env.KAFKA_GROUP_ID}-${group}` };
    await using running = stage.start(contender, topics, { ...own, ...setup.env });
    return await rateOf(stage, topics, running, requests, before);
  };
  const first = await run('first');
  return setup.isReplay ? await run('replay') : first;
}

type Rates = Readonly<Record<string, Rate>>;

async function roundOf(stage: Stage, ids: number, round: number): Promise<Rates> {
  const rates: Record<string, Rate> = {};
  const names = ['worker', ...others];
  for (const name of round % 2 === 1 ? names : names.toReversed()) {
    const rate = await serve(stage, ids, SETUPS[name] as Setup);
    rates[name] = rate;
    say(
      `round ${round}, ${ids} IDs each, ${name}: ${rate.requests_per_s} requests/s, ${rate.cpu_us} us of processor time`,
    );
  }
  return rates;
}

function resultOf(ids: number, rounds: readonly Rates[]) {
  const limit = Math.round(LIMIT_IDS_PER_S / ids);
  const medianOf = (of: (rates: Rates) => number) => Number(median(rounds.map(of)).toFixed(3));
  const ratio = (one: string, other: string, of: keyof Rate) =>
    medianOf(({ [one]: first, [other]: second }) => (first?.[of] ?? Number.NaN) / (second?.[of] ?? Number.NaN));
  return {
    ids_per_request: ids,
    requests_per_s: medianOf(({ worker }) => worker?.requests_per_s ?? Number.NaN),
    ...(others.includes('copy') && { requests_per_s_ratio: ratio('worker', 'copy', 'requests_per_s') }),
    ...(others.includes('wire') && { wire_ratio: ratio('worker', 'wire', 'requests_per_s') }),
    limit_requests_per_s: limit,
    limit_ratio: medianOf(({ worker }) => (worker?.requests_per_s ?? Number.NaN) / limit),
    /** Of each of the others to the worker. */
    beside: others.map((name) => {
      const [rate, cpu] = [ratio(name, 'worker', 'requests_per_s'), ratio(name, 'worker', 'cpu_us')];
      return { name, requests_per_s_ratio: rate, cpu_ratio: cpu };
    }),
    rounds,
  };
}

const rounds = new Map<number, Rates[]>(options['ids-per-request'].map((ids) => [ids, []]));
{
  await using stage = await Stage.open(say);
  for (let round = 1; round <= options.rounds; round += 1) {
    for (const [ids, its] of rounds) its.push(await roundOf(stage, ids, round));
  }
}
sink.close();
const results = [...rounds].map(([ids, its]) => resultOf(ids, its));
if (options.json) process.stdout.write(`${JSON.stringify({ requests, partitions, results })}\n`);
else {
  for (const { ids_per_request: ids, requests_per_s: perSecond, limit_ratio: toLimit, beside } of results) {
    process.stdout.write(`${ids} IDs per request: ${perSecond} requests/s, ${toLimit} times the limit of the layout\n`);
    for (const { name, requests_per_s_ratio: rate, cpu_ratio: cpu } of beside)
      process.stdout.write(`  ${name}: ${rate} times the requests/s, ${cpu} times the processor time of each\n`);
  }
}
