import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { Load, type Outcome } from './load.ts';
import { type Percentiles, percentilesOf } from './percentiles.ts';
import { MAIN, median, Stage } from './stage.ts';

/**
 * Latency from request to reply, at shares of the highest rate that a worker can serve, compared with a bare kafkajs
 * copy loop (consume, produce, commit) at the same rates. The two alternate on the same servers, each on its own
 * topics, and the figures are the medians of the rounds. `Load` describes how latency is measured.
 *
 * With --forwarded every other request is sent to a partition that is not its home partition, and is compared with the
 * direct ones of the same run.
 *
 * The highest rate is measured first, with the same load: sender, reader, broker and worker share the machine.
 */
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    'max-requests': { type: 'string', default: '300000' },
    shares: { type: 'string', default: '0.1,0.5,0.8' },
    'ids-per-request': { type: 'string', default: '1' },
    partitions: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '3' },
    forwarded: { type: 'boolean', default: false },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the latency of replies, in ms, at shares of the highest rate that a worker can serve; beside it the latency of',
      'a kafkajs loop that only copies records from one topic to another, at the same rates.',
      'npm run bench:latency -- [--seconds 10] [--max-requests 300000] [--shares 0.1,0.5,0.8] [--rounds 3] [--json]',
      '                         [--partitions 8] [--ids-per-request 1] [--forwarded]',
      '  --seconds, --max-requests   how long each rate is kept, and the most requests at it',
      '  --shares                    of the highest rate',
      '  --forwarded                 compare forwarded requests (sent to another partition than that of their ID) with direct ones',
      '  --main PATH                 main.ts of the worker, to compare another checkout',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const seconds = Number(values.seconds);
const maxRequests = Number(values['max-requests']);
const shares = values.shares.split(',').map(Number);
const ids = Number(values['ids-per-request']);
const partitions = Number(values.partitions);
const rounds = Number(values.rounds);

if (values.forwarded && partitions < 2)
  throw new RangeError('--forwarded needs --partitions 2 or more: with one partition nothing is forwarded');

/** Requests in flight while the highest rate is measured: enough that each fetch of the worker is full. */
const OUTSTANDING = 20_000;
const MAXIMUM_MS = 8_000;
const START_TIMEOUT_MS = 60_000;
const WARM_UP_SECONDS = 3;
const say = (line: string) => process.stderr.write(`${line}\n`);

type Measured = 'worker' | 'copy' | 'forwarded' | 'direct';
/** What is compared, and its baseline. */
const PAIR: readonly [Measured, Measured] = values.forwarded ? ['forwarded', 'direct'] : ['worker', 'copy'];
/** The processes that answer, in turn. */
const CONTENDERS = values.forwarded ? (['worker'] as const) : (['worker', 'copy'] as const);
type Contender = (typeof CONTENDERS)[number];

const isForwarded = (i: number): boolean => values.forwarded && i % 2 === 1;

await using stage = await Stage.open(say, values.main);
const lag = monitorEventLoopDelay({ resolution: 1 });

/** Measures a contender on fresh topics, once it has answered its first request. */
async function withLoad<T>(contender: Contender, measure: (load: Load) => Promise<T>): Promise<T> {
  const topics = await stage.topics(partitions);
  await using running = stage.start(contender, topics);
  await using load = new Load(stage, topics, running, ids, isForwarded);
  await load.firstReply(START_TIMEOUT_MS);
  return await measure(load);
}

/** The percentiles of an outcome: one set, or one for forwarded and one for direct requests. */
function parts(contender: Contender, outcome: Outcome): readonly (readonly [Measured, Percentiles])[] {
  if (!values.forwarded) return [[contender, percentilesOf(outcome)]];
  return [
    ['forwarded', percentilesOf(outcome, isForwarded)],
    ['direct', percentilesOf(outcome, (i) => !isForwarded(i))],
  ];
}

/** Measures at each rate in turn, after a warm-up at the middle rate. */
function runRound(contender: Contender, points: readonly Point[], round: number): Promise<void> {
  return withLoad(contender, async (load) => {
    const warmUp = median(points.map(({ rate }) => rate));
    await load.atRate('warm', Math.ceil(WARM_UP_SECONDS * warmUp), warmUp);
    for (const [i, { rate, found }] of points.entries()) {
      lag.enable();
      const outcome = await load.atRate(`rate${i}`, Math.min(maxRequests, Math.ceil(seconds * rate)), rate);
      lag.disable();
      for (const [measured, its] of parts(contender, outcome)) {
        found[measured].push(its);
        const late = its.unanswered > 0 ? `, ${its.unanswered} of ${its.sent} without a reply` : '';
        const figures = `p50 ${its.p50_ms}, p99 ${its.p99_ms}, p99.9 ${its.p999_ms} ms`;
        say(`round ${round}, ${measured}, ${rate} requests/s: ${figures}${late}`);
      }
    }
  });
}

function medians(of: readonly Percentiles[]): Percentiles {
  const by = (name: keyof Percentiles) => median(of.map((one) => one[name]));
  return {
    p50_ms: by('p50_ms'),
    p99_ms: by('p99_ms'),
    p999_ms: by('p999_ms'),
    sent: by('sent'),
    unanswered: by('unanswered'),
  };
}

/** The results at one rate, of all rounds. */
interface Point {
  readonly share: number;
  readonly rate: number;
  readonly found: Record<Measured, Percentiles[]>;
}

const maximum = Math.round(await withLoad('worker', (load) => load.maximum(OUTSTANDING, MAXIMUM_MS)));
say(`highest rate: ${maximum} requests/s`);
const points = shares.map((share): Point => {
  const found = { worker: [], copy: [], forwarded: [], direct: [] };
  return { share, rate: Math.max(1, Math.round(share * maximum)), found };
});
for (let round = 1; round <= rounds; round += 1) {
  for (const contender of CONTENDERS) await runRound(contender, points, round);
}
const result = {
  ids_per_request: ids,
  partitions,
  seconds,
  rounds,
  max_requests_per_s: maximum,
  sender_lag_p99_ms: Number((lag.percentile(99) / 1e6).toFixed(2)),
};
const compared = points.map(({ share, rate, found }) => {
  const [one, other] = [medians(found[PAIR[0]]), medians(found[PAIR[1]])];
  const ratio = (name: 'p50_ms' | 'p99_ms') => Number((one[name] / other[name]).toFixed(3));
  const pair = (name: 'p50_ms' | 'p99_ms' | 'p999_ms') => `${one[name]} ms against ${other[name]} ms`;
  const line = `p50 ${pair('p50_ms')}, p99 ${pair('p99_ms')} (ratio ${ratio('p99_ms')}), p99.9 ${pair('p999_ms')}`;
  const text = `${rate} requests/s, ${PAIR.join(' against ')}: ${line}`;
  const ratios = { p50_ratio: ratio('p50_ms'), p99_ratio: ratio('p99_ms') };
  return { text, json: { share, requests_per_s: rate, [PAIR[0]]: one, [PAIR[1]]: other, ...ratios } };
});
const output = values.json
  ? JSON.stringify({ ...result, points: compared.map(({ json }) => json) })
  : compared.map(({ text }) => text).join('\n');
process.stdout.write(`${output}\n`);
