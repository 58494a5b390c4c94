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

async function ask(method: 'GET' | 'POST', url: string, key: string): Promise<Answer> {
  const headers = { 'idempotency-key': key };
  const response = await fetch(url, { method, headers });
  const replayed = response.headers.get('idempotency-replayed') === 'true';
  return { status: response.status, replayed, body: (await response.json()) as Answer['body'] };
}

/**
 * The answer of the first of these workers that has one, as a caller gets it: with the same key until the status is not
 * 503 or 504.
 */
async function until(method: 'GET' | 'POST', urls: readonly string[], path: string, key: string): Promise<Answer> {
  for (let nth = 0; ; nth += 1) {
    // The worker may have been killed.
    const answer = await ask(method, `${urls[nth % urls.length]}${path}`, key).catch(() => undefined);
    if (answer !== undefined && answer.status !== 503 && answer.status !== 504) return answer;
  }
}

const numbersPath = (count: number) => `/api/v1/sequences/invoices/2027?count=${count}`;
const take = (urls: readonly string[], key: string, count: number) => until('POST', urls, numbersPath(count), key);
const lookUp = (url: string, key: string, count: number) => until('GET', [url], numbersPath(count), key);
const ids = (urls: readonly string[], key: string, count: number) =>
  until('GET', urls, `/api/v1/ids?count=${count}`, key);

test('one key has the same numbers, and the same IDs, from every worker, also after the owner of its sequence is killed', async () => {
  await using realm = await Realm.create(suiteServers(), {
    partitions: 2,
    apiReplies: true,
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
  expect(await lookUp(other, 'order-1', 2)).toEqual({ ...first, replayed: true });
  expect(await lookUp(one, 'order-2', 2)).toMatchObject({ status: 404 });

  const batch = await ids([one], 'order-1', 3);
  expect(batch).toMatchObject({ status: 200, replayed: false, body: { ids: { length: 3 } } });
  expect(await ids([other], 'order-1', 3)).toEqual({ ...batch, replayed: true });
  expect(await ids([other], 'order-1', 4)).toMatchObject({
    status: 422,
    body: {
      code: 'CONFLICT',
      detail: expect.stringContaining(
        'Idempotency-Key was used for another request; it differs in count (here 4, there 3)',
      ),
    },
  });

  const isOwner = (worker: (typeof workers)[number]) => {
    const joined = worker.lines.findLast(({ msg }) => msg === 'joined the request group');
    return Array.isArray(joined?.partitions) && joined.partitions.includes(partition);
  };
  const owner = workers.findIndex(isOwner);
  const urls = [one, other];
  const taken = new Map<string, Answer>();
  const given = new Map<string, Answer>();
  let next = 0;
  const askOn = async () => {
    for (let nth = next++; nth < KEYS; nth = next++) {
      if (nth === KEYS / 4) workers[owner]?.kill('SIGKILL');
      const key = `many-${nth}`;
      const [order, count] = [nth % 2 === 0 ? urls : urls.toReversed(), 1 + (nth % 5)];
      // Both workers are asked for the IDs at once, as by a caller whose proxy repeats a request.
      const [numbers, batch, again] = await Promise.all([
        take(order, key, count),
        ids(order, key, count),
        ids(order.toReversed(), key, count),
      ]);
      expect(again.body).toEqual(batch.body);
      taken.set(key, numbers);
      given.set(key, batch);
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
    const batch = given.get(key)?.body;
    expect(await ids([url], key, Number(body.count))).toEqual({ status: 200, replayed: true, body: batch });
  }
  expect(await take([url], 'order-1', 2)).toEqual({ ...first, replayed: true });
  const series = 'idalloc_http_requests_total{route="/api/v1/sequences/{name}",status="200",caller="anonymous"}';
  expect(await later.metric(series)).toBe(21);
  expect(JSON.parse((await runIdalloc(['audit', '--json'], realm.env)).stdout)).toMatchObject({ findings: [] });
});
