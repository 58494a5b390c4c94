import { expect, type TestContext, test } from 'vitest';
import { connectEtcd } from '../../src/adapters/etcd/etcd.ts';
import { etcdContract, fullEtcdContract, type LimitedSubject } from '../identity/etcd-contract.ts';
import { headsContract } from '../ledger/heads-contract.ts';
import { OwnEtcd, requireOwnEtcd } from '../support/own-etcd.ts';
import { suiteServers } from '../support/servers.ts';
import { unique } from '../support/unique.ts';

/** etcd looks for expired leases twice a second, and deletes their keys through its log. */
const EXPIRY_SLACK_MS = 60_000;

etcdContract('three members of etcd', () => {
  const port = connectEtcd({ endpoints: suiteServers().etcdEndpoints });
  const prefix = `/contract-${unique()}/`;
  const leased = async () => (await port.range(prefix)).kvs.filter(({ leaseId }) => leaseId !== 0n).length;
  return {
    port,
    prefix,
    outlive: (seconds) => expect.poll(leased, { timeout: seconds * 1_000 + EXPIRY_SLACK_MS, interval: 100 }).toBe(0),
    close: () => port.close(),
  };
});

headsContract('three members of etcd', () => {
  const port = connectEtcd({ endpoints: suiteServers().etcdEndpoints });
  return { port, prefix: `/heads-${unique()}`, close: () => port.close() };
});

/** The suite's etcd must stay usable, so the one that is filled is this test's own. */
async function openSmall(context: Pick<TestContext, 'skip'>): Promise<LimitedSubject> {
  requireOwnEtcd(context);
  const etcd = await OwnEtcd.small();
  const port = connectEtcd({ endpoints: etcd.endpoints });
  return {
    port,
    prefix: '/contract/',
    fill: () => etcd.fill(),
    free: () => etcd.free(),
    close: async () => {
      port.close();
      await etcd[Symbol.asyncDispose]();
    },
  };
}

fullEtcdContract('etcd', openSmall);

test('the adapter shows why the last write failed while reads succeed, the alarm, and the past that it keeps, until it is compacted and takes writes again', async (context) => {
  requireOwnEtcd(context);
  await using etcd = await OwnEtcd.small();
  const port = connectEtcd({ endpoints: etcd.endpoints });
  try {
    await etcd.fill();
    await expect(port.grantLease(1n, 60)).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
    await port.get(['/a']);
    expect(port.lastError?.message).toMatch(/^etcd refused a lease grant .*NOSPACE/);
    const [endpoint = ''] = etcd.endpoints;
    expect((await port.statuses()).get(endpoint)).toMatchObject({ alarms: ['NOSPACE'], hasLeader: true });
    expect(await port.keeps('/filling', 2n)).toBe(true);
    await etcd.free();
    expect(await port.keeps('/filling', 2n)).toBe(false);
    await port.grantLease(1n, 60);
    expect(port.lastError).toBeUndefined();
    expect((await port.statuses()).get(endpoint)).toMatchObject({ alarms: [] });
  } finally {
    port.close();
  }
});
