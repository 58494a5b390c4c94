import { parseArgs } from 'node:util';
import { fill, type Rate, rateOf } from './backlog.ts';
import type { Contender } from './running.ts';
import { MAIN, median, Stage } from './stage.ts';

/**
 * Requests per second of one worker, as ratios to two baselines over the same records: a bare kafkajs copy loop
 * (consume, produce, commit), and the four record operations of a worker on our own wire. All alternate on the same
 * servers. Absolute figures depend on the machine; the ratios much less.
 *
 * Each run starts with all requests on the topic, and is timed from the first tenth of the replies to the last reply,
 * so that start-up does not count. The layout of the IDs also limits a worker: `limit_ratio` is the rate divided by
 * that limit.
 */
const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '200000' },
    partitions: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '3' },
    'ids-per-request': { type: 'string', default: '1,100' },
    count: { type: 'string' },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the requests per second of one worker, and its ratio to three others: a kafkajs loop that only copies records',
      '(consume, produce, commit), the record operations of a worker without its logic, and the limit of the ID layout.',
      'npm run bench -- [--requests 200000] [--partitions 8] [--rounds 3] [--ids-per-request 1,100] [--json]',
      '  --count N      the same as --ids-per-request N',
      '  --main PATH    main.ts of the worker, to compare another checkout',
      'npm run bench -- --compare COMMIT compares this tree with a commit; with --help it says how.',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const requests = Number(values.requests);
const partitions = Number(values.partitions);
const counts = (values.count ?? values['ids-per-request']).split(',').map(Number);

/** The limit of the default layout: 4,096 IDs in each millisecond. */
const LIMIT_IDS_PER_S = 4_096_000;
const CONTENDERS: readonly Contender[] = ['worker', 'copy', 'wire'];
const say = (line: string) => process.stderr.write(`${line}\n`);

await using stage = await Stage.open(say, values.main);

async function serve(contender: Contender, ids: number): Promise<Rate> {
  const topics = await stage.topics(partitions);
  await fill(stage, topics, requests, ids);
  await using running = stage.start(contender, topics);
  return await rateOf(stage, topics, running, requests);
}

type Rates = Readonly<Record<Contender, Rate>>;

async function roundOf(ids: number, round: number): Promise<Rates> {
  const rates: Partial<Record<Contender, Rate>> = {};
  for (const contender of CONTENDERS) {
    const rate = await serve(contender, ids);
    rates[contender] = rate;
    say(
      `round ${round}, ${ids} IDs per request, ${contender}: ${rate.requests_per_s} requests/s, ${rate.cpu_us} us of processor time each`,
    );
  }
  return rates as Rates;
}

function resultOf(ids: number, rounds: readonly Rates[]) {
  const limit = Math.round(LIMIT_IDS_PER_S / ids);
  const medianOf = (of: (rates: Rates) => number) => Number(median(rounds.map(of)).toFixed(3));
  return {
    ids_per_request: ids,
    requests_per_s: medianOf(({ worker }) => worker.requests_per_s),
    requests_per_s_ratio: medianOf(({ worker, copy }) => worker.requests_per_s / copy.requests_per_s),
    wire_ratio: medianOf(({ worker, wire }) => worker.requests_per_s / wire.requests_per_s),
    limit_requests_per_s: limit,
    limit_ratio: medianOf(({ worker }) => worker.requests_per_s / limit),
    rounds,
  };
}

const rounds = new Map<number, Rates[]>(counts.map((ids) => [ids, []]));
for (let round = 1; round <= Number(values.rounds); round += 1) {
  for (const [ids, its] of rounds) its.push(await roundOf(ids, round));
}
const results = [...rounds].map(([ids, its]) => resultOf(ids, its));
if (values.json) process.stdout.write(`${JSON.stringify({ requests, partitions, results })}\n`);
else {
  for (const {
    ids_per_request: ids,
    requests_per_s: perSecond,
    requests_per_s_ratio: toCopy,
    wire_ratio: toWire,
    limit_ratio: toLimit,
  } of results) {
    process.stdout.write(
      `${ids} IDs per request: ${perSecond} requests/s, which is ${toCopy} times the copy loop, ${toWire} times the wire loop ` +
        `and ${toLimit} times the limit of the layout\n`,
    );
  }
}
