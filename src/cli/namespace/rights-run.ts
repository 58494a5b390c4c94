import { quoted } from '../../adapters/kafka/topics/rights.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { claimKey } from '../../identity/bindings.ts';
import { journalKeys, ledgersRoot, namespaceKeys } from '../../identity/keys.ts';
import type { CliContext } from '../context.ts';
import { present } from '../present.ts';

export type EtcdRole = 'worker' | 'operator' | 'admin';

export interface RightsFlags {
  readonly user: string;
  readonly role: EtcdRole;
  readonly json?: true;
}

/** A right in etcd on one key, or on all keys with this prefix. */
export interface EtcdRight {
  readonly permission: 'read' | 'readwrite';
  readonly key: string;
  readonly isPrefix: boolean;
}

/**
 * The least rights of each role: on the datacenter's keys, on what etcd remembers of its ledgers, on the key that all namespaces of the ID
 * space share, and on the journal, which is none of the workers' business.
 */
export function etcdRightsOf(role: EtcdRole, config: Pick<Config, 'idSpace' | 'datacenterId' | 'etcd'>): EtcdRight[] {
  const permission = role === 'operator' ? 'read' : 'readwrite';
  const { etcd, datacenterId } = config;
  const roots = [namespaceKeys(etcd.prefix, datacenterId).root, ledgersRoot(etcd.prefix, datacenterId)];
  if (role !== 'worker') roots.push(journalKeys(etcd.prefix, datacenterId).root);
  return [
    ...roots.map((key) => ({ permission, key, isPrefix: true }) as const),
    { permission, key: claimKey(config.idSpace, datacenterId), isPrefix: false },
  ];
}

/** Prints the rights of a role, as commands. */
export function runRights(context: CliContext, { user, role, json }: RightsFlags): void {
  const rights = etcdRightsOf(role, loadWorkerConfig(context.env));
  const commands = etcdCommands(user, rights);
  present(context, json, { user, role, rights, commands }, () => commands.map((command) => `${command}\n`).join(''));
}

/** Each user gets a role of the same name. */
function etcdCommands(user: string, rights: readonly EtcdRight[]): string[] {
  const grants = rights.map(
    ({ permission, key, isPrefix }) =>
      `etcdctl role grant-permission ${isPrefix ? '--prefix ' : ''}${user} ${permission} ${quoted(key)}`,
  );
  return [`etcdctl role add ${user}`, ...grants, `etcdctl user add ${user}`, `etcdctl user grant-role ${user} ${user}`];
}
