import { parseArgs } from 'node:util';
import { IdClient } from '../../src/client/index.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { runIdalloc } from '../support/worker-process.ts';
import { median } from './stage.ts';

/**
 * What numbers of sequences cost beside IDs: requests a second and latency of one worker through the client, in one run on the same
 * topics. All numbers of a sequence come from one partition, so one sequence has the rate of a partition.
 */
const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '3' },
    'in-flight': { type: 'string', default: '500' },
    sequences: { type: 'string', default: '100' },
    count: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures requests for numbers of one sequence, and of many, beside requests for IDs, as ratios in one run.',
      'npm run bench:sequence -- [--seconds 8] [--rounds 3] [--in-flight 500] [--sequences 100] [--count 1] [--json]',
      '  --in-flight   requests that wait for replies at a time',
      '  --count       IDs or numbers in each request',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const PARTITIONS = 12;
const seconds = Number(values.seconds);
const rounds = Number(values.rounds);
const inFlight = Number(values['in-flight']);
const count = Number(values.count);
const names = Array.from({ length: Number(values.sequences) }, (_, i) => `s${i}`);
const say = (line: string) => process.stderr.write(`${line}\n`);

interface Measured {
  readonly perSecond: number;
  readonly p99Ms: number;
}

/** Keeps that many requests in flight for the time. */
async function measure(ask: (nth: number) => Promise<unknown>): Promise<Measured> {
  const untilMs = performance.now() + seconds * 1_000;
  const latencies: number[] = [];
  let nth = 0;
  const lane = async () => {
    while (performance.now() < untilMs) {
      const sentMs = performance.now();
      await ask(nth++);
      latencies.push(performance.now() - sentMs);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  latencies.sort((a, b) => a - b);
  return { perSecond: latencies.length / seconds, p99Ms: latencies[Math.floor(0.99 * latencies.length)] ?? Number.NaN };
}

const servers = await startProcessServers(say);
try {
  await using realm = await Realm.create(servers, { partitions: PARTITIONS });
  await realm.worker().ready();
  for (const name of names) {
    const { code, stderr } = await runIdalloc(['sequence', 'create', name], realm.env);
    if (code !== 0) throw new Error(stderr);
  }
  const { replyTopic, requestTopic } = realm;
  await using client = await IdClient.connect({ brokers: servers.brokers, replyTopic, requestTopic, prefetch: false });
  let round = 0;
  const numbers = (name: string, nth: number) =>
    client.sequence(name).take(count, { correlationId: `${round}-${name}-${nth}` });
  const kinds: Readonly<Record<string, (nth: number) => Promise<unknown>>> = {
    ids: () => client.request({ count }),
    one_sequence: (nth) => numbers('s0', nth),
    many_sequences: (nth) => numbers(names[nth % names.length] ?? 's0', nth),
  };
  const found: Record<string, Measured[]> = {};
  for (const ask of Object.values(kinds)) await measure(ask); // so that all is compiled
  for (round = 1; round <= rounds; round += 1) {
    for (const [kind, ask] of Object.entries(kinds)) {
      const measured = await measure(ask);
      found[kind] = [...(found[kind] ?? []), measured];
      say(`${kind}: ${Math.round(measured.perSecond)} requests/s, p99 ${Math.round(measured.p99Ms)} ms`);
    }
  }
  const of = (kind: string, what: keyof Measured) => median((found[kind] ?? []).map((one) => one[what]));
  const result = Object.fromEntries(
    Object.keys(kinds).map((kind) => [
      kind,
      {
        requests_per_second: Math.round(of(kind, 'perSecond')),
        p99_ms: Math.round(of(kind, 'p99Ms')),
        to_ids: Number((of(kind, 'perSecond') / of('ids', 'perSecond')).toFixed(2)),
      },
    ]),
  );
  process.stdout.write(`${JSON.stringify(result, null, values.json ? undefined : 2)}\n`);
} finally {
  await servers.stop();
}
