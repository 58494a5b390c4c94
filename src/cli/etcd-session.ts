import { connectEtcd, type EtcdClient } from '../adapters/etcd/etcd.ts';
import type { EtcdConfig } from '../config/config.ts';

/** Runs `use` with an etcd client, which is closed afterwards. */
export async function withEtcd<T>({ etcd }: EtcdConfig, use: (etcd: EtcdClient) => Promise<T>): Promise<T> {
  const client = connectEtcd(etcd);
  try {
    return await use(client);
  } finally {
    client.close();
  }
}
