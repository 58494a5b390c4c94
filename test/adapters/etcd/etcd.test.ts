import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type ClosableEtcd, connectEtcd } from '../../../src/adapters/etcd/etcd.ts';

const TIMING = { callMs: 200, hedgeMs: 50 };

describe('the etcd adapter', () => {
  const opened: Array<() => void> = [];
  afterEach(() => {
    for (const close of opened.splice(0)) close();
    vi.unstubAllEnvs();
  });

  /** Accepts connections and never answers, as a frozen server does. */
  async function frozenServer(): Promise<string> {
    const sockets: Socket[] = [];
    const server: Server = createServer((socket) => sockets.push(socket)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    opened.push(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    return `127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  function connect(endpoints: readonly string[]): ClosableEtcd {
    const etcd = connectEtcd({ endpoints, timing: TIMING });
    opened.push(() => etcd.close());
    return etcd;
  }

  const calls: ReadonlyArray<readonly [string, (etcd: ClosableEtcd) => Promise<unknown>]> = [
    ['range', (etcd) => etcd.range('/a/')],
    ['get', (etcd) => etcd.get(['/a'])],
    ['transact', (etcd) => etcd.transact([], [])],
    ['grantLease', (etcd) => etcd.grantLease(1n, 30)],
    ['keepAlive', (etcd) => etcd.keepAlive(1n)],
    ['revokeLease', (etcd) => etcd.revokeLease(1n)],
  ];

  it.each(calls)('%s on frozen servers fails within its limit and names them', async (_name, call) => {
    const endpoints = [await frozenServer(), await frozenServer()];
    await expect(call(connect(endpoints))).rejects.toMatchObject({
      code: 'ETCD_UNAVAILABLE',
      message: expect.stringContaining(`within 200 ms (${endpoints[0]}: no response; ${endpoints[1]}: no response)`),
    });
  });

  it('leaves frozen servers out of the statuses, and reports each within its limit', async () => {
    const endpoints = [await frozenServer(), await frozenServer()];
    const failed: string[] = [];
    const etcd = connectEtcd({
      endpoints,
      timing: TIMING,
      onError: ({ what, endpoint, error }) => failed.push(`${what}, ${endpoint}: ${error}`),
    });
    opened.push(() => etcd.close());
    expect((await etcd.statuses()).size).toBe(0);
    expect(failed.sort()).toEqual(endpoints.map((endpoint) => `a status, ${endpoint}: no response in 200 ms`).sort());
  });

  it.each(['http_proxy', 'https_proxy', 'grpc_proxy'])('connects directly although %s names a proxy', async (name) => {
    for (const exception of ['no_proxy', 'no_grpc_proxy']) vi.stubEnv(exception, '');
    vi.stubEnv(name, 'http://127.0.0.1:1');
    const server = createServer().listen(0, '127.0.0.1');
    opened.push(() => server.close());
    await once(server, 'listening');
    const reached = once(server, 'connection');
    const called = connect([`http://127.0.0.1:${(server.address() as AddressInfo).port}`]).range('/a/');
    await Promise.race([reached, called]);
    const [socket] = (await reached) as [Socket];
    socket.destroy();
    await expect(called).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
  });

  it('rejects more operations than etcd accepts in one transaction before sending', async () => {
    const keys = Array.from({ length: 129 }, (_, index) => `/k/${index}`);
    await expect(connect(['127.0.0.1:1']).get(keys)).rejects.toThrow(RangeError);
  });
});
