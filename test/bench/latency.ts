import { monitorEventLoopDelay } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { Load, type Outcome } from './load.ts';
import { type Contender, MAIN, median, Stage } from './stage.ts';

/**
 * From request to reply, at shares of what a worker can serve at most, beside a bare kafkajs copy loop (consume, produce,
 * commit) at the same rates. The two alternate on the same servers, each on topics of its own, and the figures are the
 * medians of the rounds. `Load` says how latency is counted.
 *
 * The maximum is measured here as well, with the same load: sender, reader, broker and worker share the machine.
 */
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    'max-requests': { type: 'string', default: '300000' },
    shares: { type: 'string', default: '0.1,0.5,0.8' },
    'ids-per-request': { type: 'string', default: '1' },
    partitions: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '3' },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'npm run bench:latency -- [--seconds 10] [--max-requests 300000] [--shares 0.1,0.5,0.8] [--rounds 3] [--json]',
      '                         [--partitions 8] [--ids-per-request 1]',
      '  --seconds, --max-requests   at each rate, whichever is less',
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

/** Enough that a worker always finds whole batches. */
const OUTSTANDING = 20_000;
const MAXIMUM_MS = 8_000;
const START_TIMEOUT_MS = 60_000;
const WARM_UP_SECONDS = 3;
const say = (line: string) => process.stderr.write(`${line}\n`);

type Measured = 'worker' | 'copy';

interface Percentiles {
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly p999_ms: number;
  /** Fewer than the rate asks for where the contender fell too far behind. */
  readonly sent: number;
  readonly unanswered: number;
}

await using stage = await Stage.open(say, values.main);
const lag = monitorEventLoopDelay({ resolution: 1 });

/** On topics of its own, once it has answered its first request. */
async function withLoad<T>(contender: Contender, measure: (load: Load) => Promise<T>): Promise<T> {
  const topics = await stage.topics(partitions);
  await using running = stage.start(contender, topics);
  await using load = new Load(stage, topics, running, ids);
  await load.begun(START_TIMEOUT_MS);
  return await measure(load);
}

function percentilesOf({ latenciesMs, sent, unanswered }: Outcome): Percentiles {
  const sorted = latenciesMs.toSorted();
  const at = (share: number) => Number((sorted[Math.floor(share * sorted.length)] ?? Number.NaN).toFixed(2));
  return { p50_ms: at(0.5), p99_ms: at(0.99), p999_ms: at(0.999), sent, unanswered };
}

/** At each rate in turn, after a warm-up at the middle one. */
function roundOf(contender: Measured, rates: readonly number[], round: number): Promise<Percentiles[]> {
  return withLoad(contender, async (load) => {
    const warmUp = median(rates);
    await load.atRate('warm', Math.ceil(WARM_UP_SECONDS * warmUp), warmUp);
    const found: Percentiles[] = [];
    for (const [i, rate] of rates.entries()) {
      lag.enable();
      const outcome = await load.atRate(`rate${i}`, Math.min(maxRequests, Math.ceil(seconds * rate)), rate);
      lag.disable();
      const its = percentilesOf(outcome);
      found.push(its);
      const late = its.unanswered > 0 ? `, ${its.unanswered} of ${outcome.sent} without a reply` : '';
      say(
        `round ${round}, ${contender}, ${rate}/s: p50 ${its.p50_ms}, p99 ${its.p99_ms}, p99.9 ${its.p999_ms} ms${late}`,
      );
    }
    return found;
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

const maximum = Math.round(await withLoad('worker', (load) => load.maximum(OUTSTANDING, MAXIMUM_MS)));
say(`at most ${maximum} requests/s`);
const rates = shares.map((share) => Math.max(1, Math.round(share * maximum)));
const found: Record<Measured, Percentiles[][]> = { worker: [], copy: [] };
for (let round = 1; round <= rounds; round += 1) {
  for (const contender of ['worker', 'copy'] as const) {
    found[contender].push(await roundOf(contender, rates, round));
  }
}
const points = rates.map((rate, i) => {
  const of = (contender: Measured) => medians(found[contender].flatMap((its) => its[i] ?? []));
  const [worker, copy] = [of('worker'), of('copy')];
  const p99Ratio = Number((worker.p99_ms / copy.p99_ms).toFixed(3));
  return { share: shares[i], requests_per_s: rate, worker, copy, p99_ratio: p99Ratio };
});
const lagMs = Number((lag.percentile(99) / 1e6).toFixed(2));
const result = {
  ids_per_request: ids,
  partitions,
  seconds,
  rounds,
  max_requests_per_s: maximum,
  sender_lag_p99_ms: lagMs,
};
if (values.json) process.stdout.write(`${JSON.stringify({ ...result, points })}\n`);
else {
  for (const { requests_per_s: rate, worker, copy, p99_ratio: ratio } of points) {
    const line = `p50 ${worker.p50_ms} to ${copy.p50_ms}, p99 ${worker.p99_ms} to ${copy.p99_ms} (${ratio})`;
    process.stdout.write(`${rate}/s, worker to copy loop, ms: ${line}, p99.9 ${worker.p999_ms} to ${copy.p999_ms}\n`);
  }
}
