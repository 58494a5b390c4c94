import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import type { CliContext } from '../../../src/cli/context.ts';
import { askAll, placeOfHolder } from '../../../src/cli/status/ask.ts';
import { rowOf } from '../../../src/cli/status/status-run.ts';
import { cli } from '../harness.ts';

const STATUS = {
  now_ms: 61_000,
  started_ms: 1_000,
  version: '1.2.3',
  ready: true,
  reason: null,
  detail: null,
  warning: null,
  identity: { worker_id: 7, fence: '41', lease_margin_ms: 14_000 },
  partitions: [
    { owned: true, copy_lag: 3, oldest_request_ms: 1_500 },
    { owned: false, copy_lag: 20, oldest_request_ms: 9_000 },
  ],
};
const NOT_READY = { ...STATUS, ready: false, reason: 'KAFKA_UNAVAILABLE', detail: 'no broker has answered for 9 s' };

const open: Server[] = [];

afterEach(async () => {
  for (const server of open.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

/** The address of a server that answers so. */
async function serving(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const worker = (status: object, code = 200) =>
  serving((request, response) => {
    response.writeHead(request.url === '/status' ? code : 404).end(JSON.stringify(status));
  });

/** An address at which nobody listens any more. */
async function deserted(): Promise<string> {
  const address = await serving(() => undefined);
  await new Promise((resolve) => open.pop()?.close(resolve));
  return address;
}

describe('idalloc status', () => {
  test('shows a row for each worker, and fails unless each is ready', async () => {
    const addresses = [await worker(STATUS), await worker(NOT_READY), await deserted()];
    const { code, out, err } = await cli(['status', ...addresses]);
    expect([code, err]).toEqual([1, '']);
    const [titles, ...rows] = out.split('\n').map((line) => line.split(/ {2,}/));
    expect(titles).toEqual('address,state,version,worker,lease,up,owned,standby,lag,oldest'.split(','));
    expect(rows[0]?.slice(1)).toEqual(['ready', '1.2.3', '7', '14.0 s', '1.0 min', '1', '1', '20', '1.5 s']);
    expect(rows[1]?.[1]).toBe('KAFKA_UNAVAILABLE');
    expect(rows[2]?.slice(1)).toEqual(['UNREACHABLE', '-', '-', '-', '-', '-', '-', '-', '-']);
    expect(out).toContain(`${addresses[1]}: no broker has answered for 9 s\n`);
    expect(out).toMatch(new RegExp(`${addresses[2]}: .*ECONNREFUSED`));
    expect(out).toContain('1 of 3 workers ready, 1 not ready, 1 unreachable\n');
  });

  test('has a line for a worker only if there is something to say', async () => {
    const addresses = [await worker({ ...STATUS, detail: 'fine' }), await worker({ reason: 'STARTING' }, 503)];
    const { out } = await cli(['status', ...addresses]);
    expect(out.trimEnd().split('\n').slice(1)).toEqual([
      expect.stringMatching(/ready/),
      expect.stringMatching(/STARTING/),
      '1 of 2 workers ready, 1 not ready, 0 unreachable',
    ]);
  });

  test('prints the same as JSON, and succeeds if all are ready', async () => {
    const address = await worker(STATUS);
    const { code, out } = await cli(['status', address, address, '--json']);
    expect(code).toBe(0);
    expect(JSON.parse(out)).toEqual({
      workers: [
        {
          address,
          reachable: true,
          ready: true,
          reason: null,
          detail: null,
          warning: null,
          version: '1.2.3',
          worker_id: 7,
          fence: '41',
          lease_margin_ms: 14_000,
          uptime_ms: 60_000,
          owned_partitions: 1,
          standby_partitions: 1,
          copy_lag: 20,
          oldest_request_ms: 1_500,
        },
      ],
      ready: 1,
      not_ready: 0,
      unreachable: 0,
    });
  });

  test('asks every address of a name, at the port of OPS_PORT, --port or the name', async () => {
    const port = (await worker(STATUS)).replace(/.*:/, '');
    const answered = async (args: readonly string[], env = {}) => {
      const { out } = await cli(['status', ...args, '--json'], env);
      const { workers } = JSON.parse(out) as { workers: { address: string; reachable: boolean }[] };
      return workers.filter(({ reachable }) => reachable).map(({ address }) => address);
    };
    const address = `127.0.0.1:${port}`;
    expect(await answered([], { OPS_PORT: port, OPS_HOST: '0.0.0.0' })).toEqual([address]);
    expect(await answered(['localhost'], { OPS_PORT: port })).toEqual([address]);
    expect(await answered(['localhost', '--port', port])).toEqual([address]);
    expect(await answered([`localhost:${port}`], { OPS_PORT: '1' })).toEqual([address]);
  });

  test('has a row for a name that nobody knows, and refuses what is no name', async () => {
    const unknown = await cli(['status', 'workers.invalid', '--json']);
    expect(JSON.parse(unknown.out)).toMatchObject({ workers: [{ reason: 'UNREACHABLE' }], unreachable: 1 });
    const wrong = await cli(['status', 'http://localhost/']);
    expect([wrong.code, wrong.err]).toEqual([78, expect.stringContaining('is no name or address of a worker')]);
    expect(await cli(['status'], { OPS_PORT: '0' })).toMatchObject({ code: 78 });
  });

  test('--all needs etcd, and says so', async () => {
    expect(await cli(['status', '--all'])).toMatchObject({ code: 78, err: expect.stringContaining('ETCD_ENDPOINTS') });
  });

  test('asks a holder of this machine where only that reaches it, if its address refuses', async () => {
    const [within, refusing] = [await worker(STATUS), await deserted()];
    const context = { stop: new AbortController().signal } as CliContext;
    const places = [{ address: refusing, otherwise: within }, { address: refusing }];
    expect(await askAll(context, places, '/status')).toEqual([
      { code: 200, body: JSON.stringify(STATUS) },
      { fault: expect.stringContaining('ECONNREFUSED') },
    ]);
    const here = { env: { OPS_HOST: '0.0.0.0' }, hostIp: () => '192.0.2.1' };
    expect(placeOfHolder(here, { host: '192.0.2.1', port: 9 })).toEqual({
      address: '192.0.2.1:9',
      otherwise: '127.0.0.1:9',
    });
    expect(placeOfHolder(here, { host: '192.0.2.2', port: 9 })).toEqual({ address: '192.0.2.2:9' });
  });

  test('ends with the signal that stops it, though a worker never answers', async () => {
    const stop = new AbortController();
    const silent = await serving(() => stop.abort());
    expect(await cli(['status', silent], {}, stop.signal)).toMatchObject({ code: 130 });
  });
});

describe('the row of a worker', () => {
  test('of one that starts has the reason', () => {
    const body = JSON.stringify({ status: 'not ready', reason: 'STARTING' });
    expect(rowOf('a:1', { code: 503, body })).toMatchObject({ reachable: true, ready: false, reason: 'STARTING' });
  });

  test.for(['', 'null', '[]', '<html>', '{"ready":true}', '{"ready":1,"partitions":[]}'])(
    'of another program that answers %s is unreadable',
    (body) => {
      expect(rowOf('a:1', { code: 200, body })).toMatchObject({ ready: false, reason: 'UNREADABLE' });
    },
  );

  test('takes no value of another type', () => {
    const body = JSON.stringify({ ready: true, partitions: [null, 1], identity: [], version: 3, now_ms: 'x' });
    const row = rowOf('a:1', { code: 200, body });
    expect(row).toMatchObject({ ready: true, version: null, worker_id: null, uptime_ms: null, copy_lag: 0 });
  });
});
