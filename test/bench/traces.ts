import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parseArgs } from 'node:util';
import { fill, type Rate, rateOf } from './backlog.ts';
import { MAIN, median, Stage } from './stage.ts';

/**
 * What traces cost a worker: requests without a `traceparent` and with one, with traces off and on, as ratios to the
 * first. They take turns on the same servers, each time in another order. Processor time per request says more than the
 * rate on a busy machine.
 */
const { values } = parseArgs({
  options: {
    requests: { type: 'string', default: '200000' },
    partitions: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '5' },
    base: { type: 'string' },
    only: { type: 'string' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures what traces cost a worker: requests per second and processor time per request, as ratios to a worker without them.',
      'npm run bench:traces -- [--requests 200000] [--partitions 8] [--rounds 5] [--base PATH] [--only off,base] [--json]',
      '  off        no SDK, and no request has a traceparent',
      '  copied     no SDK; each has one, which is copied to its reply',
      '  untraced   an SDK that exports; none has one',
      '  unsampled  each has one that is not sampled',
      '  sampled    each has one that is',
      '  --base PATH    main.ts of another checkout, as one more contender like off',
      '  --only NAMES   some of them',
      '',
    ].join('\n'),
  );
  process.exit(0);
}

const requests = Number(values.requests);
const partitions = Number(values.partitions);
const say = (line: string) => process.stderr.write(`${line}\n`);

const sink = createServer((request, response) => request.resume().on('end', () => response.end()));
await new Promise<void>((resolve) => sink.listen(0, '127.0.0.1', resolve));
const exporting = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(sink.address() as AddressInfo).port}` };
const traceparent = (flags: string) => ({
  traceparent: `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-${flags}`,
});

interface Contender {
  readonly env: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly main: string;
}

const CONTENDERS: Readonly<Record<string, Contender>> = {
  off: { env: {}, headers: {}, main: MAIN },
  copied: { env: {}, headers: traceparent('01'), main: MAIN },
  untraced: { env: exporting, headers: {}, main: MAIN },
  unsampled: { env: exporting, headers: traceparent('00'), main: MAIN },
  sampled: { env: exporting, headers: traceparent('01'), main: MAIN },
  ...(values.base === undefined ? {} : { base: { env: {}, headers: {}, main: values.base } }),
};
const names = values.only?.split(',') ?? Object.keys(CONTENDERS);
if (!names.includes('off')) throw new Error('--only needs off, to which the others are compared');

async function serve(stage: Stage, { env, headers, main }: Contender): Promise<Rate> {
  const topics = await stage.topics(partitions);
  await fill(stage, topics, requests, 1, { headers });
  await using running = stage.start('worker', topics, env, main);
  return await rateOf(stage, topics, running, requests);
}

const rounds: Record<string, Rate>[] = [];
{
  await using stage = await Stage.open(say, MAIN);
  for (let round = 0; round < Number(values.rounds); round += 1) {
    const rates: Record<string, Rate> = {};
    const turns = round % 2 === 0 ? names : names.toReversed();
    for (const name of turns) {
      const contender = CONTENDERS[name];
      if (contender === undefined) throw new Error(`there is no contender ${name}`);
      const rate = await serve(stage, contender);
      rates[name] = rate;
      say(`round ${round + 1}, ${name}: ${rate.requests_per_s} requests/s, ${rate.cpu_us} us of processor time each`);
    }
    rounds.push(rates);
  }
}
sink.closeAllConnections();
sink.close();

const ratio = (name: string, of: (rate: Rate) => number) => {
  const ratios = rounds.map((rates) => of(rates[name] as Rate) / of(rates.off as Rate));
  return Number(median(ratios).toFixed(3));
};
const results = names.map((name) => ({
  contender: name,
  requests_per_s_ratio: ratio(name, ({ requests_per_s: perSecond }) => perSecond),
  cpu_ratio: ratio(name, ({ cpu_us: us }) => us),
}));
if (values.json) process.stdout.write(`${JSON.stringify({ requests, partitions, results, rounds })}\n`);
else {
  for (const { contender, requests_per_s_ratio: rate, cpu_ratio: cpu } of results) {
    process.stdout.write(
      `${contender}: ${rate} times the requests/s without traces, ${cpu} times the processor time\n`,
    );
  }
}
