import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { type Etcd3, EtcdInvalidAuthTokenError, EtcdPermissionDeniedError } from 'etcd3';
import { afterEach, describe, expect, it } from 'vitest';
import { withEtcd } from '../../../src/adapters/etcd/etcd.ts';
import { EtcdMember } from '../../../src/adapters/etcd/member.ts';

const TIMING = { callMs: 200, hedgeMs: 50 };
const AUTH = { username: 'worker', password: () => 'secret' };
const TOKEN_EXPIRED = new EtcdInvalidAuthTokenError('invalid auth token');

describe('a call of an etcd member', () => {
  const members: EtcdMember[] = [];
  afterEach(() => {
    for (const member of members.splice(0)) member.close();
  });

  /** Calls a member whose etcd gives these answers in turn; returns the outcome, and which clients were used. */
  async function called(auth: typeof AUTH | undefined, ...answers: readonly (Error | string)[]) {
    const member = new EtcdMember('127.0.0.1:1', { auth }, TIMING);
    members.push(member);
    const clients: Etcd3[] = [];
    const call = member.call(async (client) => {
      clients.push(client);
      const answer = answers[clients.length - 1];
      if (answer instanceof Error) throw answer;
      return answer;
    });
    return { outcome: await call.catch((error: unknown) => error), clients };
  }

  it('that is refused for its login is made once more, with a new login', async () => {
    const { outcome, clients } = await called(AUTH, TOKEN_EXPIRED, 'done');
    expect([outcome, clients.length, new Set(clients).size]).toEqual(['done', 2, 2]);
  });

  it('fails if the new login is refused as well', async () => {
    const { outcome, clients } = await called(AUTH, TOKEN_EXPIRED, TOKEN_EXPIRED, 'done');
    expect([outcome, clients.length]).toEqual([TOKEN_EXPIRED, 2]);
  });

  it.each([
    ['for another reason', AUTH, new EtcdPermissionDeniedError('permission denied')],
    ['where there is no login', undefined, TOKEN_EXPIRED],
  ])('that is refused %s is not made again', async (_, auth, error) => {
    const { outcome, clients } = await called(auth, error, 'done');
    expect([outcome, clients.length]).toEqual([error, 1]);
  });
});

it('a client that is used for one piece of work stays open until that ends', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const endpoint = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const outcome = await withEtcd({ endpoints: [endpoint], timing: TIMING }, async (etcd) => {
    const reached = once(server, 'connection').then(([socket]) => socket.destroy());
    return await Promise.race([reached.then(() => 'reached'), etcd.range('/a/').catch(() => 'failed')]);
  });
  server.close();
  expect(outcome).toBe('reached');
});
