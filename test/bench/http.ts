import { loadHttp } from '../support/http-load.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { SeenIds } from '../support/seen-ids.ts';
import { SUITE } from '../support/servers.ts';
import { type Beside, besideBare, keysBesideNone } from './http-beside.ts';
import { optionsOf, refuse } from './options.ts';
import { MOST_PAIRS, type Spread } from './spread.ts';

/**
 * The HTTP API of one worker: first a check that no ID is returned twice, over all IDs of all responses; then requests
 * per second and latency at several sizes, with unread responses; then ratios to Fastify alone, which sends the same
 * texts, and of requests with an Idempotency-Key to those without. Client and servers share the machine.
 */
const values = optionsOf(
  'bench:http',
  [
    'Measures the HTTP API of one worker, after a check that it returns no ID twice, its ratio to Fastify alone, and what a key costs.',
  ],
  { ids: 10_000_000, count: 1_000, connections: 16, rounds: 5, seconds: 2 },
  {
    ids: 'that are compared with each other, --count of them in a request; 0: only the ratios',
    rounds: 'each measures both sides of a ratio for --seconds, in turn',
  },
);
const { count, connections, rounds, seconds } = values;
if (!(rounds >= 1 && rounds <= MOST_PAIRS)) refuse(`--rounds must be from 1 to ${MOST_PAIRS}`);
if (!(seconds > 0)) refuse('--seconds must be above 0');
const say = (line: string) => process.stderr.write(`${line}\n`);
/** IDs per request and number of requests, chosen so that each row takes a few seconds. */
const SIZES = [
  [1, 40_000],
  [100, 20_000],
  [1_000, 4_000],
  [10_000, 400],
  [100_000, 40],
] as const;

const servers = await startProcessServers(say, SUITE, { isMeasured: true });
const rows: object[] = [];
const ratio = ({ ratio, low, high }: Spread) => `${ratio.toFixed(2)} (${low.toFixed(2)} to ${high.toFixed(2)})`;

/** Returns the number of duplicates and of failed requests. */
async function checkAndMeasure(url: string) {
  const seen = new SeenIds();
  const checked = await loadHttp({ url, count, connections, requests: Math.ceil(values.ids / count), seen });
  say(`${seen.size} different IDs, ${seen.duplicates} duplicates, ${checked.failures} failed requests`);
  for (const [size, requests] of SIZES) {
    const { failures, ...figures } = await loadHttp({ url, count: size, connections, requests });
    say(
      `${size} IDs per request: ${figures.requestsPerSecond} requests/s, p50 ${figures.p50Ms} ms, p99 ${figures.p99Ms} ms, ` +
        `${failures} failed requests`,
    );
    rows.push({ count: size, connections, ...figures, failures });
  }
  return { ids: seen.size, duplicates: seen.duplicates, failures: checked.failures, rows };
}

function lineOf(first: string, second: string, beside: Beside): string {
  const { method, path, connections, rate, p99, cpu, first: own, second: base } = beside;
  return (
    `${method} ${path}, ${connections} connections, ${first}: ${own.perSecond} requests/s, ${ratio(rate)} times ${second}; ` +
    `p99 ${own.p99Ms} ms, ${ratio(p99)} times` +
    (cpu === undefined ? '' : `; ${own.cpuUs} us of processor time, ${ratio(cpu)} times ${base.cpuUs}`)
  );
}

try {
  await using realm = await Realm.create(servers, { apiReplies: true });
  const worker = realm.worker({ LOG_LEVEL: 'info' });
  const { pid } = await worker.ready();
  const url = await worker.api();
  const checked = values.ids > 0 ? await checkAndMeasure(url) : undefined;
  process.exitCode = (checked?.duplicates ?? 0) === 0 ? 0 : 1;
  const server = { url, pid: Number(pid) };
  const beside = await besideBare(server, rounds, seconds);
  for (const one of beside) say(lineOf('the worker', 'Fastify alone', one));
  const keyed = await keysBesideNone(server, rounds, seconds);
  for (const one of keyed) say(lineOf('with a key', 'without', one));
  process.stdout.write(`${JSON.stringify({ ...checked, beside, keyed })}\n`);
} finally {
  await servers.stop();
}
