import { parseArgs } from 'node:util';
import { loadHttp } from '../support/http-load.ts';
import { startProcessServers } from '../support/process-servers.ts';
import { Realm } from '../support/realm.ts';
import { SeenIds } from '../support/seen-ids.ts';

/**
 * The HTTP API of one worker: first a check that no ID is returned twice, over all IDs of all responses; then requests per
 * second and latency at several sizes, with unread responses. Client and worker share the machine.
 */
const { values } = parseArgs({
  options: {
    ids: { type: 'string', default: '10000000' },
    count: { type: 'string', default: '1000' },
    connections: { type: 'string', default: '16' },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the HTTP API of one worker, after a check that it returns no ID twice.',
      'npm run bench:http -- [--ids 10000000] [--count 1000] [--connections 16]',
      '  --ids, --count    IDs that are compared with each other, and IDs per request for that',
      '',
    ].join('\n'),
  );
  process.exit(0);
}
const count = Number(values.count);
const connections = Number(values.connections);
const say = (line: string) => process.stderr.write(`${line}\n`);
/** IDs per request and number of requests, chosen so that each row takes a few seconds. */
const SIZES = [
  [1, 40_000],
  [100, 20_000],
  [1_000, 4_000],
  [10_000, 400],
  [100_000, 40],
] as const;

const servers = await startProcessServers(say);
const rows: object[] = [];
let duplicates = 0;
try {
  await using realm = await Realm.create(servers);
  const worker = realm.worker({ LOG_LEVEL: 'info' });
  await worker.ready();
  const url = await worker.api();
  const seen = new SeenIds();
  const checked = await loadHttp({ url, count, connections, requests: Math.ceil(Number(values.ids) / count), seen });
  duplicates = seen.duplicates;
  say(`${seen.size} different IDs, ${duplicates} duplicates, ${checked.failures} failed requests`);
  for (const [size, requests] of SIZES) {
    const { failures, ...figures } = await loadHttp({ url, count: size, connections, requests });
    say(
      `${size} IDs per request: ${figures.requestsPerSecond} requests/s, p50 ${figures.p50Ms} ms, p99 ${figures.p99Ms} ms, ` +
        `${failures} failed requests`,
    );
    rows.push({ count: size, connections, ...figures, failures });
  }
  process.stdout.write(`${JSON.stringify({ ids: seen.size, duplicates, failures: checked.failures, rows })}\n`);
} finally {
  await servers.stop();
}
process.exitCode = duplicates === 0 ? 0 : 1;
