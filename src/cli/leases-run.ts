import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import { decodeLeaseRecord } from '../codec/lease-record.ts';
import { type EtcdConfig, loadEtcdConfig } from '../config/config.ts';
import { IdallocError } from '../errors.ts';
import { namespaceKeys } from '../identity/keys.ts';
import { readSnapshot } from '../identity/snapshot.ts';
import type { CliContext } from './context.ts';
import { withEtcd } from './etcd-session.ts';
import { journaled } from './journal/journaled.ts';
import { namespaceText, viewNamespace } from './lease-view.ts';
import { present } from './present.ts';
import { timeText } from './table.ts';
import { confirm } from './terminal.ts';

export interface LeaseListOptions {
  readonly all?: true;
  readonly json?: true;
}

export interface EvictOptions {
  readonly yes?: true;
  readonly json?: true;
}

/** Lists the worker IDs. */
export async function listLeases(context: CliContext, options: LeaseListOptions): Promise<void> {
  const config = loadEtcdConfig(context.env);
  const keys = keysOf(config);
  const snapshot = await withEtcd(config, (etcd) => readSnapshot(etcd, keys));
  const view = viewNamespace(keys.root, snapshot, context.now(), options.all === true);
  present(context, options.json, view, () => namespaceText(view));
}

/** Evicts a holder, after a confirmation. */
export async function runEvict(context: CliContext, workerId: number, { yes, json }: EvictOptions): Promise<void> {
  const config = loadEtcdConfig(context.env);
  const fence = await withEtcd(config, (etcd) => evict(context, etcd, config, workerId, yes === true));
  const result = { worker_id: workerId, fence: String(fence), evicted: true };
  present(context, json, result, () => `evicted the holder of worker ID ${workerId}, fence ${fence}\n`);
}

/** Evicts the holder that was shown, never a later one. */
async function evict(
  context: CliContext,
  etcd: ClosableEtcd,
  config: EtcdConfig,
  workerId: number,
  yes: boolean,
): Promise<bigint> {
  const key = keysOf(config).owner(workerId);
  const owner = (await etcd.get([key])).get(key);
  if (owner === undefined)
    throw new IdallocError('NOT_FOUND', `worker ID ${workerId} is not held: there is no key ${key}`);
  const { assignedWorkerIp, grantedAtMs } = decodeLeaseRecord(owner.value);
  const since = `since ${timeText(grantedAtMs)}, fence ${owner.createRevision}`;
  await confirm(context, `Evict ${assignedWorkerIp} from worker ID ${workerId}, held ${since}?`, yes);
  const given = { worker_id: workerId, fence: String(owner.createRevision), holder: assignedWorkerIp };
  await journaled({ context, etcd, config }, { command: 'leases evict', arguments: given }, async (note) => {
    const { succeeded } = await etcd.transact([{ key, createRevision: owner.createRevision }], [{ delete: key }]);
    if (!succeeded) throw new IdallocError('NOT_FOUND', `worker ID ${workerId} has a new holder: check again`);
    note(''); // it has lost its worker ID, whatever becomes of its lease
    if (owner.leaseId !== 0n) await etcd.revokeLease(owner.leaseId);
  });
  return owner.createRevision;
}

function keysOf({ etcd, datacenterId }: EtcdConfig) {
  return namespaceKeys(etcd.prefix, datacenterId);
}
