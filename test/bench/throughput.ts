import { mkdtempDisposableSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MOST_OTHERS_PERCENT } from '../../ops/capacity/data.ts';
import { table } from '../../src/cli/output.ts';
import { fill, type Rate, rateOf, TooFewRequests } from './backlog.ts';
import { type Judged, judged } from './goals.ts';
import { optionsOf, refuse } from './options.ts';
import { watchOthers } from './others.ts';
import { PEERS, type Peer, Peers } from './peers/peers.ts';
import type { Contender } from './running.ts';
import { boundText, METHOD, MOST_PAIRS } from './spread.ts';
import { median, Stage } from './stage.ts';

/**
 * Requests per second of one worker, beside others that serve the same records. All alternate on the same servers, in
 * another order each time. Absolute figures depend on the machine; the ratios much less, and of these the processor
 * time of a request says more than the rate on a busy machine.
 *
 * Each run starts with all requests on the topic, and is timed from a share of the replies to the last reply, so that
 * start-up, and with --warm-up the compilation of hot code, does not count. The layout of the IDs also limits a worker:
 * `limit_ratio` is the rate divided by that limit.
 */
interface Setup {
  readonly process?: Exclude<Contender, object> | Peer;
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
  java: { process: 'java' },
  librdkafka: { process: 'librdkafka' },
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
    "  java       a loop of Java's client that copies records exactly once, in transactions; needs a JDK",
    '  librdkafka the same with librdkafka; needs gcc and librdkafka-dev',
    '  replay     the worker, which has decided all requests before',
    '  copied     the worker, and each request has a traceparent, which is copied to its reply',
    '  untraced   the worker, with an SDK that exports traces; no request has a traceparent',
    '  unsampled  the same, and each has one that is not sampled',
    '  sampled    the same, and each has one that is',
    'For requests of one ID it also compares what the worker takes to its goals.',
    'npm run bench -- --compare COMMIT compares this tree with a commit; with --help it says how.',
  ],
  { requests: 200_000, 'warm-up': 0.1, partitions: 8, rounds: 3, 'ids-per-request': [1, 100], beside: 'copy,wire' },
  {
    beside: 'what the worker is measured beside; a peer whose tools are missing is left out',
    'warm-up': 'the share of the replies after which measuring begins',
  },
);
const { requests, partitions, 'warm-up': warmUp } = options;
const wanted = options.beside.split(',');
const unknown = wanted.find((name) => SETUPS[name] === undefined);
if (unknown !== undefined) refuse(`--beside has no '${unknown}': it takes some of ${Object.keys(SETUPS).join()}`);
if (!(warmUp >= 0 && warmUp < 1)) refuse('--warm-up must be at least 0 and below 1');
if (!(options.rounds >= 1 && options.rounds <= MOST_PAIRS)) refuse(`--rounds must be from 1 to ${MOST_PAIRS}`);

/** The limit of the default layout: 4,096 IDs in each millisecond. */
const LIMIT_IDS_PER_S = 4_096_000;
const say = (line: string) => process.stderr.write(`${line}\n`);
const idsText = (ids: number) => (ids === 1 ? '1 ID' : `${ids} IDs`);

/** The rate and the cost of a contender; undefined if it was too fast for so few requests. */
async function serve(stage: Stage, ids: number, setup: Setup): Promise<Rate | undefined> {
  const { process: name = 'worker', headers, env: own } = setup;
  const contender: Contender | undefined = isPeer(name) ? peers.program(name) : name;
  if (contender === undefined) throw new RangeError(`${name} was not compiled`);
  const topics = await stage.topics(partitions);
  await fill(stage, topics, requests, ids, headers === undefined ? {} : { headers });
  using index = mkdtempDisposableSync(join(tmpdir(), 'idalloc-bench-'));
  const run = async (group: string) => {
    const before = await stage.replied(topics);
    const more = { INDEX_DIR: index.path, KAFKA_GROUP_ID: `${topics.env.KAFKA_GROUP_ID}-${group}`, ...own };
    await using running = stage.start(contender, topics, more);
    return await rateOf(stage, topics, running, requests, before, warmUp);
  };
  try {
    const first = await run('first');
    return setup.isReplay ? await run('replay') : first;
  } catch (error) {
    if (!(error instanceof TooFewRequests)) throw error;
    say(`${name}: ${error.message}`);
    return undefined;
  }
}

function isPeer(name: string): name is Peer {
  return (PEERS as readonly string[]).includes(name);
}

/** By the names of the contenders; of those that were too fast there is none. */
type Rates = Readonly<Record<string, Rate>>;

interface Round {
  readonly rates: Rates;
  /** What others took of the machine meanwhile, in percent. */
  readonly others_percent: number;
}

async function roundOf(stage: Stage, ids: number, round: number): Promise<Round> {
  const [rates, othersPercent]: [Record<string, Rate>, () => number] = [{}, watchOthers()];
  const names = ['worker', ...beside];
  for (const name of round % 2 === 1 ? names : names.toReversed()) {
    const rate = await serve(stage, ids, SETUPS[name] as Setup);
    if (rate === undefined) continue;
    rates[name] = rate;
    const main = rate.main_thread_us === undefined ? '' : `, ${rate.main_thread_us} of them of its main thread`;
    say(
      `round ${round}, ${idsText(ids)} each, ${name}: ${rate.requests_per_s} requests/s, ${rate.cpu_us} µs of processor time${main}`,
    );
  }
  return { rates, others_percent: Number(othersPercent().toFixed(1)) };
}

const UNKNOWN = Number.NaN;

/** The median of what is known; undefined if nothing is. */
function medianOf(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value): value is number => Number.isFinite(value));
  return known.length === 0 ? undefined : Number(median(known).toFixed(3));
}

/** The medians of a contender, and of its ratios to the worker in the same round. */
function mediansOf(name: string, rounds: readonly Rates[]) {
  const own = (of: (rate: Rate) => number) => medianOf(rounds.map(({ [name]: rate }) => rate && of(rate)));
  const toWorker = (of: 'requests_per_s' | 'cpu_us') =>
    medianOf(rounds.map(({ [name]: rate, worker }) => rate && worker && rate[of] / worker[of]));
  return {
    name,
    requests_per_s: own((rate) => rate.requests_per_s),
    cpu_us: own((rate) => rate.cpu_us),
    main_thread_us: own(({ main_thread_us = UNKNOWN }) => main_thread_us),
    other_threads_us: own(({ cpu_us, main_thread_us = UNKNOWN }) => cpu_us - main_thread_us),
    requests_per_s_ratio: toWorker('requests_per_s'),
    cpu_ratio: toWorker('cpu_us'),
  };
}

function resultOf(ids: number, found: readonly Round[]) {
  const limit = Math.round(LIMIT_IDS_PER_S / ids);
  const rounds = found.map(({ rates }) => rates);
  return {
    ids_per_request: ids,
    limit_requests_per_s: limit,
    limit_ratio: medianOf(rounds.map(({ worker }) => worker && worker.requests_per_s / limit)),
    contenders: ['worker', ...beside].map((name) => mediansOf(name, rounds)),
    goals: ids === 1 ? judged(rounds) : [],
    others_percent: Math.max(...found.map(({ others_percent }) => others_percent)),
    rounds: found,
  };
}

const shown = (value: number | undefined, digits: number) => value?.toFixed(digits) ?? '–';

function goalsText(goals: readonly Judged[]): string {
  const columns = ['the worker', '>mean', '>spread', '>goal', ''];
  const rows = goals.map(({ figure, ratio, low, high, pairs, goal, isCost, reached }) => [
    figure,
    ratio.toFixed(2),
    pairs > 1 ? `${boundText(low)} to ${boundText(high)}` : 'one round',
    `${isCost ? 'at most' : 'at least'} ${goal}`,
    reached,
  ]);
  return goals.length === 0 ? '' : `${table(columns, rows)}Spread: ${METHOD}.\n`;
}

const ABOUT_MAIN =
  'µs: processor time of a request. The main thread runs the program; others compile, collect memory or serve sockets.';
const ABOUT_ALL = '–: a JVM runs the program in a thread of its own, so only the whole process is known.';

function textOf({
  ids_per_request: ids,
  contenders,
  limit_ratio: toLimit,
  ...result
}: ReturnType<typeof resultOf>): string {
  const columns = [`${idsText(ids)} per request`, '>requests/s', ">to worker's", '>µs', '>main thread', '>others'];
  const rows = contenders.map((one) => [
    one.name,
    shown(one.requests_per_s, 0),
    shown(one.requests_per_s_ratio, 2),
    ...[one.cpu_us, one.main_thread_us, one.other_threads_us].map((us) => shown(us, 1)),
  ]);
  const lines = [ABOUT_MAIN];
  if (contenders.some((one) => one.main_thread_us === undefined)) lines.push(ABOUT_ALL);
  lines.push(`The worker's rate is ${shown(toLimit, 3)} times the limit of the layout.`);
  const busy = result.others_percent > MOST_OTHERS_PERCENT;
  if (busy) lines.push(`Others took up to ${result.others_percent} % of the machine: figures of a quiet one differ.`);
  return `${table(columns, rows)}${lines.join('\n')}\n${goalsText(result.goals)}`;
}

using peers = await Peers.compiled(
  PEERS.filter((peer) => wanted.includes(peer)),
  say,
);
const beside = wanted.filter((name) => !isPeer(name) || peers.program(name) !== undefined);
const rounds = new Map<number, Round[]>(options['ids-per-request'].map((ids) => [ids, []]));
{
  await using stage = await Stage.open(say);
  const [warm = 1] = options['ids-per-request'];
  say(`the broker warms up; it does not count: ${JSON.stringify(await serve(stage, warm, {}))}`);
  for (let round = 1; round <= options.rounds; round += 1) {
    for (const [ids, its] of rounds) its.push(await roundOf(stage, ids, round));
  }
}
sink.close();
const results = [...rounds].map(([ids, its]) => resultOf(ids, its));
process.stdout.write(
  options.json ? `${JSON.stringify({ requests, partitions, results })}\n` : results.map(textOf).join(''),
);
