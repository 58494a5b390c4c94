import { expect, test } from 'vitest';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { runIdalloc } from '../support/worker-process.ts';

const KEYS = 200;
const AT_ONCE = 20;

interface Answer {
  readonly status: number;
  readonly replayed: boolean;
  readonly body: Readonly<Record<string, unknown>>;
}

async function post(url: string, key: string, count: number): Promise<Answer> {
  const headers = { 'idempotency-key': key };
  const response = await fetch(`${url}/api/v1/sequences/invoices/2027?count=${count}`, { method: 'POST', headers });
  const replayed = response.headers.get('idempotency-replayed') === 'true';
  return { status: response.status, replayed, body: (await response.json()) as Answer['body'] };
}

/** The answer of the first of these workers that has one, as a caller gets it: with the same key until the status is not 503 or 504. */
async function take(urls: readonly string[], key: string, count: number): Promise<Answer> {
  for (let nth = 0; ; nth += 1) {
    const answer = await post(urls[nth % urls.length] ?? '', key, count).catch(() => undefined); // a killed worker
    if (answer !== undefined && answer.status !== 503 && answer.status !== 504) return answer;
  }
}

test('one key has the same numbers from every worker, also after the owner of its sequence is killed', async () => {
  await using realm = await Realm.create(suiteServers(), {
    partitions: 2,
    numbersOverHttp: true,
    env: SHORT_SESSION,
  });
  const workers = [realm.worker(), realm.worker()];
  await Promise.all(workers.map((worker) => worker.hasPartitions(1)));
  const [one = '', other = ''] = await Promise.all(workers.map((worker) => worker.api()));
  expect(await take([one], 'early', 1)).toMatchObject({ status: 404, body: { code: 'UNKNOWN_SEQUENCE' } });
  const create = ['sequence', 'create', 'invoices/2027', '--format', 'INV-{number:6}', '--json'];
  const { partition } = JSON.parse((await runIdalloc(create, realm.env)).stdout);

  const first = await take([one], 'order-1', 2);
  expect(first).toEqual({
    status: 200,
    replayed: false,
    body: { sequence: 'invoices/2027', numbers: ['INV-000001', 'INV-000002'], first: 1, count: 2, step: 1 },
  });
  expect(await take([other], 'order-1', 2)).toEqual({ ...first, replayed: true });
  expect(await take([other], 'order-1', 3)).toMatchObject({ status: 422, body: { code: 'CONFLICT' } });

  const isOwner = (worker: (typeof workers)[number]) => {
    const joined = worker.lines.findLast(({ msg }) => msg === 'joined the request group');
    return Array.isArray(joined?.partitions) && joined.partitions.includes(partition);
  };
  const owner = workers.findIndex(isOwner);
  const urls = [one, other];
  const taken = new Map<string, Answer>();
  let next = 0;
  const askOn = async () => {
    for (let nth = next++; nth < KEYS; nth = next++) {
      if (nth === KEYS / 4) workers[owner]?.kill('SIGKILL');
      const key = `many-${nth}`;
      taken.set(key, await take(nth % 2 === 0 ? urls : urls.toReversed(), key, 1 + (nth % 5)));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, askOn));
  const runs = [...taken.values()].map(({ body }) => [Number(body.first), Number(body.count)] as const);
  let end = 3;
  for (const [from, count] of runs.sort(([a], [b]) => a - b)) {
    expect(from).toBe(end);
    end += count;
  }

  const later = realm.worker();
  await later.hasPartitions(1);
  const url = await later.api();
  for (const [key, { body }] of [...taken].slice(0, 20)) {
    expect(await take([url], key, Number(body.count))).toEqual({ status: 200, replayed: true, body });
  }
  expect(await take([url], 'order-1', 2)).toEqual({ ...first, replayed: true });
  const series = 'idalloc_http_requests_total{route="/api/v1/sequences/{name}",status="200",caller="anonymous"}';
  expect(await later.metric(series)).toBe(21);
  expect(JSON.parse((await runIdalloc(['audit', '--json'], realm.env)).stdout)).toMatchObject({ findings: [] });
});
