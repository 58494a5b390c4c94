import { Command, InvalidArgumentError, Option } from 'commander';
import { ROLES } from '../../adapters/kafka/topics/rights.ts';
import type { CliContext } from '../context.ts';
import type { AclFlags } from './acls-run.ts';

const HELP = `
Roles: worker; client, a service that sends requests (name its reply topics); operator, for commands that only read, and
for replay; admin, for topics init, deadletters resend and namespace. Without --apply nothing is changed: the commands
for Kafka's own tools are printed. With --apply the configured user grants the rights, and needs Alter on the cluster.
Rights are never revoked. For rights in etcd, see idalloc namespace rights.

Examples:
  idalloc topics acls --principal User:id-worker --role worker
  idalloc topics acls --principal User:orders --role client --reply-topic id.replies.orders --apply
  idalloc topics acls --principal User:alice --role operator --json`;

/** `idalloc topics acls`: prints or grants the least rights of a role. */
export function aclsCommand(context: CliContext): Command {
  return new Command('acls')
    .description('Print or grant the rights that a user needs on the topics and the group.')
    .requiredOption('--principal <type:name>', 'the user that gets the rights, such as User:id-worker', principal)
    .addOption(new Option('--role <role>', 'what the user does').choices(ROLES).makeOptionMandatory())
    .option('--reply-topic <topic...>', 'client only: where it receives its replies')
    .option('--nestjs', "also the rights for replies to NestJS, on '<request topic>.reply'")
    .option('--apply', 'grant the rights, instead of printing commands')
    .option('--json', 'print one line of JSON: {"principal","role","rights","commands","applied"}')
    .addHelpText('after', HELP)
    .action(async (flags: AclFlags, command: Command) => {
      const { runAcls } = await import('./acls-run.ts');
      await runAcls(context, flags, command);
    });
}

function principal(text: string): string {
  if (/^[A-Za-z]+:[^\p{Cc}]{1,1000}$/u.test(text)) return text;
  throw new InvalidArgumentError('must look like User:name.');
}
