import { Command, InvalidArgumentError, Option } from 'commander';
import { quoted } from '../../adapters/kafka/topics/rights.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { claimKey } from '../../identity/bindings.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import type { CliContext } from '../context.ts';

const HELP = `
Roles: worker; operator, for doctor and leases; admin, for namespace and leases evict. Nothing is changed: the commands of
etcd's own tool are printed, which take --endpoints, certificates and a user that may manage users (root). A role and a
user that are there already are refused by etcd; the other commands still do their work.

Examples:
  idalloc namespace rights --user id-worker --role worker
  idalloc namespace rights --user alice --role operator --json`;

const ROLES = ['worker', 'operator', 'admin'] as const;
type EtcdRole = (typeof ROLES)[number];

/** What a user of etcd may do with one key, or with all that begin so. */
export interface EtcdRight {
  readonly permission: 'read' | 'readwrite';
  readonly key: string;
  readonly isPrefix: boolean;
}

/** The least rights of each role: on the datacenter's own keys, and on the one key in which namespaces meet. */
export function etcdRightsOf(role: EtcdRole, config: Pick<Config, 'idSpace' | 'datacenterId' | 'etcd'>): EtcdRight[] {
  const permission = role === 'operator' ? 'read' : 'readwrite';
  const { root } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  return [
    { permission, key: root, isPrefix: true },
    { permission, key: claimKey(config.idSpace, config.datacenterId), isPrefix: false },
  ];
}

/** `idalloc namespace rights`: the least rights of a user of etcd, as commands. */
export function rightsCommand(context: CliContext): Command {
  return new Command('rights')
    .description('Print the least rights of a user in etcd.')
    .requiredOption('--user <name>', 'whom the rights are for', userName)
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

/** One role for one user, of the same name. */
function etcdCommands(user: string, rights: readonly EtcdRight[]): string[] {
  const grants = rights.map(
    ({ permission, key, isPrefix }) =>
      `etcdctl role grant-permission ${isPrefix ? '--prefix ' : ''}${user} ${permission} ${quoted(key)}`,
  );
  return [`etcdctl role add ${user}`, ...grants, `etcdctl user add ${user}`, `etcdctl user grant-role ${user} ${user}`];
}
