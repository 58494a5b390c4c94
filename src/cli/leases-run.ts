import { withEtcd } from '../adapters/etcd/etcd.ts';
import { decodeDescriptor, decodeLeaseRecord, layoutOfDescriptor } from '../codec/namespace-values.ts';
import { type EtcdConfig, loadEtcdConfig } from '../config/config.ts';
import { type Layout, tickStartMs } from '../core/layout.ts';
import { IdallocError } from '../errors.ts';
import type { KeyValue } from '../identity/identity-ports.ts';
import { namespaceKeys, readSnapshot, type Snapshot } from '../identity/keys.ts';
import type { CliContext } from './context.ts';
import { journaled } from './journal/journal-run.ts';
import type { ConfirmFlags, JsonFlag } from './options.ts';
import { present, spanText, table, timeText } from './output.ts';
import { confirm } from './terminal.ts';

export interface LeaseListOptions extends JsonFlag {
  readonly all?: true;
}

/** Lists the worker IDs. */
export async function listLeases(context: CliContext, options: LeaseListOptions): Promise<void> {
  const config = loadEtcdConfig(context.env);
  const keys = keysOf(config);
  const snapshot = await withEtcd(config.etcd, (etcd) => readSnapshot(etcd, keys));
  const view = viewNamespace(keys.root, snapshot, context.now(), options);
  present(context, options.json, view, () => namespaceText(view));
}

/** Evicts the holder that was shown, after a confirmation, and never a later one. */
export async function runEvict(context: CliContext, workerId: number, { yes, json }: ConfirmFlags): Promise<void> {
  const config = loadEtcdConfig(context.env);
  await withEtcd(config.etcd, async (etcd) => {
    const key = keysOf(config).owner(workerId);
    const owner = (await etcd.get([key])).get(key);
    if (owner === undefined)
      throw new IdallocError('NOT_FOUND', `worker ID ${workerId} is not held: there is no key ${key}`);
    const { assignedWorkerIp, grantedAtMs } = decodeLeaseRecord(owner.value);
    const fence = String(owner.createRevision);
    const since = `since ${timeText(grantedAtMs)}, fence ${fence}`;
    await confirm(context, `Evict ${assignedWorkerIp} from worker ID ${workerId}, held ${since}?`, yes);
    const given = { worker_id: workerId, fence, holder: assignedWorkerIp };
    await journaled({ context, etcd, config }, { command: 'leases evict', arguments: given }, async (note) => {
      const { succeeded } = await etcd.transact([{ key, createRevision: owner.createRevision }], [{ delete: key }]);
      if (!succeeded) throw new IdallocError('NOT_FOUND', `worker ID ${workerId} has a new holder: check again`);
      note(''); // it has lost its worker ID, whatever becomes of its lease
      if (owner.leaseId !== 0n) await etcd.revokeLease(owner.leaseId);
    });
    const result = { worker_id: workerId, fence, evicted: true };
    present(context, json, result, () => `evicted the holder of worker ID ${workerId}, fence ${fence}\n`);
  });
}

function keysOf({ etcd, datacenterId }: EtcdConfig) {
  return namespaceKeys(etcd.prefix, datacenterId);
}

/**
 * The namespace for people and scripts; worker IDs that were never used are left out, unless `all` is set.
 *
 * @throws IdallocError NOT_FOUND for a namespace that does not exist yet, NAMESPACE_DAMAGED for one that can't be read.
 */
export function viewNamespace(root: string, snapshot: Snapshot, nowMs: number, { all }: Pick<LeaseListOptions, 'all'>) {
  const stored = snapshot.descriptor;
  if (stored === undefined) {
    const remedy =
      'the first worker to start creates it; if there are workers, set DATACENTER_ID and ETCD_PREFIX as they do';
    throw new IdallocError('NOT_FOUND', `there is no namespace at ${root} yet: ${remedy}`);
  }
  const descriptor = decodeDescriptor(stored.value);
  const layout = layoutOfDescriptor(descriptor);
  const { layoutName, layoutText, epochMs, datacenterId, pool, uuid } = descriptor;
  const { first, last } = pool;
  const ids = new Set([...snapshot.owners.keys(), ...snapshot.ceilings.keys()]);
  for (let workerId = first; workerId <= last; workerId++) ids.add(workerId);
  const views = [...ids]
    .sort((a, b) => a - b)
    .map((workerId) => viewLease(workerId, snapshot, layout, nowMs))
    .filter(({ holder, ceiling }) => all || holder !== null || ceiling !== null);
  return {
    root,
    layout: layoutName,
    /** The fields of a layout that is not a preset. */
    layout_text: layoutText,
    epoch_ms: epochMs,
    datacenter_id: datacenterId,
    pool,
    uuid,
    leases: views,
  };
}

/** The state of a worker ID in etcd; `holder` is null if nobody holds it. */
function viewLease(workerId: number, snapshot: Snapshot, layout: Layout | undefined, nowMs: number) {
  const owner = snapshot.owners.get(workerId);
  const stored = snapshot.ceilings.get(workerId)?.ticks ?? 0;
  const ceilingMs = stored === 0 || layout === undefined ? null : tickStartMs(layout, stored);
  return {
    worker_id: workerId,
    holder: owner === undefined ? null : viewHolder(owner, nowMs),
    /** The time below which IDs may have been allocated; null if it was never raised, or the layout is unknown. */
    ceiling: ceilingMs === null ? null : timeText(ceilingMs),
    /** How far the ceiling is ahead of this machine's clock; negative: behind. */
    ceiling_ahead_ms: ceilingMs === null ? null : ceilingMs - nowMs,
  };
}

function viewHolder(owner: KeyValue, nowMs: number) {
  const record = decodeLeaseRecord(owner.value);
  return {
    worker_ip: record.assignedWorkerIp,
    granted_at: timeText(record.grantedAtMs),
    age_ms: nowMs - record.grantedAtMs,
    lease_ttl_seconds: record.leaseTtlSeconds,
    lease_id: owner.leaseId.toString(16),
    fence: String(owner.createRevision),
  };
}

const COLUMNS = ['>worker', 'holder', '>held for', '>TTL', '>fence', 'ceiling', '>ahead'];

function namespaceText({ root, datacenter_id, pool, uuid, leases, ...view }: ReturnType<typeof viewNamespace>): string {
  const layout = view.layout_text === undefined ? view.layout : `${view.layout} (${view.layout_text})`;
  const rows = leases.map(({ worker_id, holder, ceiling, ceiling_ahead_ms: ahead }) => [
    String(worker_id),
    holder?.worker_ip ?? '-',
    holder === null ? '' : spanText(holder.age_ms),
    holder === null ? '' : `${holder.lease_ttl_seconds} s`,
    holder?.fence ?? '',
    ceiling ?? '-',
    ahead === null ? '' : spanText(ahead),
  ]);
  const held = leases.filter(({ holder }) => holder !== null).length;
  const size = pool.last - pool.first + 1;
  return [
    `${root} layout ${layout}, datacenter ${datacenter_id}, namespace ${uuid}\n`,
    table(COLUMNS, rows),
    `${held} of ${size} worker IDs (${pool.first}..${pool.last}) are held\n`,
  ].join('');
}
