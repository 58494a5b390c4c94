import { Command, InvalidArgumentError, Option } from 'commander';
import type { CliContext } from '../context.ts';
import type { EtcdRole, RightsFlags } from './rights-run.ts';

const HELP = `
Roles: worker; operator, for doctor, leases, journal, and sequence list and show; admin, for namespace, leases evict, replay and what
changes sequences. Nothing is changed: the commands for etcdctl are printed. Add --endpoints, certificates, and a user that may manage
users (root). etcd rejects the commands that add an existing role or user; the others still work.

Examples:
  idalloc namespace rights --user id-worker --role worker
  idalloc namespace rights --user alice --role operator --json`;

const ROLES: readonly EtcdRole[] = ['worker', 'operator', 'admin'];

/** `idalloc namespace rights`: prints the least rights of a role in etcd, as commands. */
export function rightsCommand(context: CliContext): Command {
  return new Command('rights')
    .description('Print the commands that grant a user the rights it needs in etcd.')
    .requiredOption('--user <name>', 'the user that gets the rights', userName)
    .addOption(new Option('--role <role>', 'what the user does').choices(ROLES).makeOptionMandatory())
    .option('--json', 'print one line of JSON: {"user","role","rights","commands"}')
    .addHelpText('after', HELP)
    .action(async (flags: RightsFlags) => {
      const { runRights } = await import('./rights-run.ts');
      runRights(context, flags);
    });
}

function userName(text: string): string {
  if (/^[A-Za-z0-9_.@][A-Za-z0-9_.@-]{0,199}$/.test(text)) return text;
  throw new InvalidArgumentError('must be letters, digits, _ . @ -');
}
