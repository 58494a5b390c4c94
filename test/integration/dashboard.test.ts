import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeEach, expect, test } from 'vitest';
import { ROWS } from '../../ops/grafana/panels.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { hastyRules } from '../support/hasty-rules.ts';
import { Prometheus, requirePrometheus } from '../support/prometheus.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

const JOB = 'idalloc-shown';
const SHOWN_WITHIN_MS = 240_000;
/** What Grafana puts in the place of its variables. */
const VALUES: Readonly<Record<string, string>> = { $job: JOB, $__rate_interval: '20s' };

const dir = mkdtempSync(join(tmpdir(), 'idalloc-dashboard-'));

beforeEach(requirePrometheus);
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const QUERIES = ROWS.flatMap(({ panels }) =>
  panels.flatMap(({ title, queries }) =>
    queries.map(({ expr }) => {
      const asked = Object.entries(VALUES).reduce((query, [name, value]) => query.replaceAll(name, value), expr);
      return { title, expr: asked };
    }),
  ),
);

/** A little of everything that the panels show: some of it must happen while Prometheus looks. */
async function makeTraffic(realm: Realm, worker: WorkerProcess, round: number): Promise<void> {
  const name = (what: string) => `${what}-${round}`;
  const elsewhere = [0, 1].map((partition) => ({ correlationId: name(`either-${partition}`), count: 1, partition }));
  await realm.send([
    ...Array.from({ length: 20 }, (_, i) => ({ correlationId: name(`small-${i}`), count: 10 })),
    ...elsewhere.map((request) => ({ ...request, correlationId: name('same') })),
    { correlationId: name('large'), count: 50_000 },
    { correlationId: name('limited'), count: 50_000, replyTopic: `${realm.replyTopic}.limited` },
  ]);
  await realm.sendRaw([{ value: 'junk' }]);
  const response = await fetch(`${await worker.api()}/api/v1/ids`);
  await response.text();
}

/** What promtool has to say about metrics. */
async function linted(metrics: string): Promise<string> {
  const child = spawn('promtool', ['check', 'metrics'], { stdio: ['pipe', 'pipe', 'pipe'] });
  child.stdin.end(metrics);
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return out + err;
}

test('each query of the dashboard shows something of two workers that serve, and promtool has no complaint', async ({
  annotate,
}) => {
  const { certFile, keyFile } = new CertificateAuthority(dir).issue('server');
  await using prometheus = await Prometheus.start(hastyRules());
  await using realm = await Realm.create(suiteServers(), { partitions: 2 });
  const limited = `${realm.replyTopic}.limited`;
  await realm.createTopic(limited);
  const env = { QUOTAS: `${limited} 10 -` };
  const workers = [
    realm.worker(env),
    realm.worker({ ...env, API_TLS_CERT_FILE: certFile, API_TLS_KEY_FILE: keyFile }),
  ] as const;
  await Promise.all(workers.map((worker) => worker.ready()));
  await prometheus.scrape(JOB, workers);

  const shows = async (expr: string) => (await prometheus.query(expr)).some(({ value }) => !Number.isNaN(value));
  const empty = async () => {
    const shown = await Promise.all(QUERIES.map(({ expr }) => shows(expr)));
    return QUERIES.filter((_, i) => !shown[i]);
  };
  let round = 0;
  const look = async () => {
    round += 1;
    await makeTraffic(realm, workers[0], round);
    return await empty();
  };
  await expect.poll(look, { timeout: SHOWN_WITHIN_MS, interval: 500 }).toEqual([]);
  await annotate(`${QUERIES.length} queries, ${round} rounds of traffic`);
  for (const worker of workers) expect(await linted(await (await worker.ops('/metrics')).text())).toBe('');
});

test('promtool complains about a name that says the wrong type', async () => {
  expect(await linted('# HELP x_total y\n# TYPE x_total gauge\nx_total 1\n')).toContain('_total');
});

test('a query of a metric that does not exist is empty', async () => {
  await using prometheus = await Prometheus.start(hastyRules());
  expect(await prometheus.query('sum(idalloc_no_such_metric)')).toEqual([]);
});
