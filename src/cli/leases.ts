import { Command } from 'commander';
import type { ClosableEtcd } from '../adapters/etcd/etcd.ts';
import { decodeLeaseRecord } from '../codec/lease-record.ts';
import { type EtcdConfig, loadEtcdConfig } from '../config/config.ts';
import { IdallocError } from '../errors.ts';
import { namespaceKeys } from '../identity/keys.ts';
import { readSnapshot } from '../identity/snapshot.ts';
import type { CliContext } from './context.ts';
import { withEtcd } from './etcd-session.ts';
import { namespaceText, viewNamespace } from './lease-view.ts';
import { wholeNumber } from './numbers.ts';
import { timeText } from './table.ts';
import { confirm } from './terminal.ts';

const LIST_HELP = `
A ceiling is the time below which a worker ID may have been used; its next holder starts there. It never falls.

Examples:
  idalloc leases
  idalloc leases --all --json`;

const EVICT_HELP = `
Deletes the owner key and revokes its lease. The ceiling stays, so no ID can be allocated twice. The worker notices at its
next heartbeat, stops allocating and takes another worker ID. Use it for a worker that can't be reached; stop others instead.

Examples:
  idalloc leases evict 7
  idalloc leases evict 7 --yes --json`;

/** `idalloc leases`: who holds which worker ID. */
export function leasesCommand(context: CliContext): Command {
  const evict = new Command('evict')
    .description('Evict the holder of a worker ID.')
    .argument('<worker-id>', 'as listed', wholeNumber(0, 2 ** 32))
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON: {"worker_id","fence","evicted"}')
    .addHelpText('after', EVICT_HELP)
    .action((workerId: number, options: { yes?: true; json?: true }) => runEvict(context, workerId, options));
  return new Command('leases')
    .enablePositionalOptions() // options after evict belong to evict
    .description('Show who holds which worker ID, and how far each ceiling is.')
    .option('--all', 'also worker IDs that were never used')
    .option('--json', 'print one line of JSON: the namespace and {"leases":[…]}')
    .addHelpText('after', LIST_HELP)
    .addCommand(evict)
    .action((options: { all?: true; json?: true }) => runList(context, options));
}

async function runList({ env, out, now }: CliContext, options: { all?: true; json?: true }): Promise<void> {
  const config = loadEtcdConfig(env);
  const keys = keysOf(config);
  const snapshot = await withEtcd(config, (etcd) => readSnapshot(etcd, keys));
  const view = viewNamespace(keys.root, snapshot, now(), options.all === true);
  out(options.json === true ? `${JSON.stringify(view)}\n` : namespaceText(view));
}

async function runEvict(
  context: CliContext,
  workerId: number,
  { yes, json }: { yes?: true; json?: true },
): Promise<void> {
  const config = loadEtcdConfig(context.env);
  const fence = await withEtcd(config, (etcd) => evict(context, etcd, config, workerId, yes === true));
  const result = { worker_id: workerId, fence: String(fence), evicted: true };
  context.out(
    json === true ? `${JSON.stringify(result)}\n` : `evicted the holder of worker ID ${workerId}, fence ${fence}\n`,
  );
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
  const { succeeded } = await etcd.transact([{ key, createRevision: owner.createRevision }], [{ delete: key }]);
  if (!succeeded) throw new IdallocError('NOT_FOUND', `worker ID ${workerId} has a new holder: check again`);
  if (owner.leaseId !== 0n) await etcd.revokeLease(owner.leaseId);
  return owner.createRevision;
}

function keysOf({ etcd, datacenterId }: EtcdConfig) {
  return namespaceKeys(etcd.prefix, datacenterId);
}
