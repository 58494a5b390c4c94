import { Command, InvalidArgumentError, Option } from 'commander';
import { quoted } from '../../adapters/kafka/topics/rights.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { claimKey } from '../../identity/bindings.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import type { CliContext } from '../context.ts';

const HELP = `
Roles: worker; operator, for doctor and leases; admin, for namespace and leases evict. Nothing is changed: the commands
for etcdctl are printed. Add --endpoints, certificates, and a user that may manage users (root). etcd rejects the commands
that add an existing role or user; the others still work.

Examples:
  idalloc namespace rights --user id-worker --role worker
  idalloc namespace rights --user alice --role operator --json`;

const ROLES = ['worker', 'operator', 'admin'] as const;
type EtcdRole = (typeof ROLES)[number];

/** A right in etcd on one key, or on all keys with this prefix. */
export interface EtcdRight {
  readonly permission: 'read' | 'readwrite';
  readonly key: string;
  readonly isPrefix: boolean;
}

/** The least rights of each role: on the datacenter's keys, and on the key that all namespaces of the ID space share. */
export function etcdRightsOf(role: EtcdRole, config: Pick<Config, 'idSpace' | 'datacenterId' | 'etcd'>): EtcdRight[] {
  const permission = role === 'operator' ? 'read' : 'readwrite';
  const { root } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  return [
    { permission, key: root, isPrefix: true },
    { permission, key: claimKey(config.idSpace, config.datacenterId), isPrefix: false },
  ];
}

/** `idalloc namespace rights`: prints the least rights of a role in etcd, as commands. */
export function rightsCommand(context: CliContext): Command {
  return new Command('rights')
    .description('Print the commands that grant a user the rights it needs in etcd.')
    .requiredOption('--user <name>', 'the user that gets the rights', userName)
    .addOption(new Option('--role <role>', 'what the user does').choices(ROLES).makeOptionMandatory())
    .option('--json', 'print one line of JSON: {"user","role","rights","commands"}')
    .addHelpText('after', HELP)
    .action(({ user, role, json }: { user: string; role: EtcdRole; json?: true }) => {
      const rights = etcdRightsOf(role, loadWorkerConfig(context.env));
      const commands = etcdCommands(user, rights);
      if (json === true) return context.out(`${JSON.stringify({ user, role, rights, commands })}\n`);
      context.out(commands.map((command) => `${command}\n`).join(''));
    });
}

function userName(text: string): string {
  if (/^[A-Za-z0-9_.@][A-Za-z0-9_.@-]{0,199}$/.test(text)) return text;
  throw new InvalidArgumentError('must be letters, digits, _ . @ -');
}

/** Each user gets a role of the same name. */
function etcdCommands(user: string, rights: readonly EtcdRight[]): string[] {
  const grants = rights.map(
    ({ permission, key, isPrefix }) =>
      `etcdctl role grant-permission ${isPrefix ? '--prefix ' : ''}${user} ${permission} ${quoted(key)}`,
  );
  return [`etcdctl role add ${user}`, ...grants, `etcdctl user add ${user}`, `etcdctl user grant-role ${user} ${user}`];
}
