import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { type ClosableEtcd, connectEtcd } from '../../../src/adapters/etcd/etcd.ts';

const TIMING = { callMs: 200, hedgeMs: 50 };

describe('the etcd adapter', () => {
  const opened: Array<() => void> = [];
  afterEach(() => {
    for (const close of opened.splice(0)) close();
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

  it('rejects more operations than etcd accepts in one transaction before sending', async () => {
    const keys = Array.from({ length: 129 }, (_, index) => `/k/${index}`);
    await expect(connect(['127.0.0.1:1']).get(keys)).rejects.toThrow(RangeError);
  });
});
