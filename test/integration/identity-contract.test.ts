import { expect } from 'vitest';
import { connectEtcd } from '../../src/adapters/etcd/etcd.ts';
import { etcdContract } from '../identity/etcd-contract.ts';
import { suiteServers } from '../support/servers.ts';
import { unique } from '../support/unique.ts';

/** etcd looks for expired leases twice a second, and deletes their keys through its log. */
const EXPIRY_SLACK_MS = 10_000;

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
