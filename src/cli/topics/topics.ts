import { Command, InvalidArgumentError, Option } from 'commander';
import { ROLES } from '../../adapters/kafka/topics/rights.ts';
import type { CliContext } from '../context.ts';
import type { JsonFlag } from '../options.ts';
import type { AclFlags, InitOptions } from './topics-run.ts';

const INIT_HELP = `
Existing topics are never altered; differences are reported. The exit code is 1 if a worker would refuse to start. With SCHEMA_REGISTRY_URL the schemas are registered as well: the request's under subject '<request topic>-value',
the reply's under 'idalloc.IdReply', and with numbers of a sequence under 'idalloc.IdReply-2'; if the registry rejects one, the exit code is 1.
A managed service fixes some settings, and refuses topics that have them. With --managed each setting is tried first, which creates nothing; those that are refused
are listed and not sent. What the service has instead is then checked like any other topic: a fault is still a fault.

Examples:
  KAFKA_BROKERS=kafka-1:9092,kafka-2:9092 idalloc topics init
  KAFKA_BROKERS=kafka-1:9092 idalloc topics init --reply-topic id.replies.orders id.replies.billing
  KAFKA_BROKERS=kafka.example:9092 LEDGER_RETENTION_MS=108000000 idalloc topics init --managed
  KAFKA_BROKERS=localhost:9092 TOPIC_REPLICATION_FACTOR=1 ALLOW_WEAK_LEDGER=1 idalloc topics init --json`;

const CHECK_HELP = `
Changes nothing. A fault keeps a worker from starting, and the exit code is 1; a difference does not. The fixes are
printed as commands for Kafka's own tools; add --bootstrap-server to them. With SCHEMA_REGISTRY_URL it checks the schemas
as well: without them, requests in the registry's framing are not served.

Examples:
  idalloc topics check
  idalloc topics check --json`;

/** `idalloc topics`: creates and checks the topics that idalloc needs. */
export function topicsCommand(context: CliContext): Command {
  const init = new Command('init')
    .description('Create the topics that are missing, and check the others.')
    .option(
      '--reply-topic <topic...>',
      "also create these, for a service's replies, with REQUEST_PARTITIONS partitions",
    )
    .option('--managed', 'send only the settings that the Kafka service accepts')
    .option('--json', 'print one line of JSON: {"cluster_id","created","differences","refused","warnings","faults"}')
    .addHelpText('after', INIT_HELP)
    .action(async (options: InitOptions) => (await import('./topics-run.ts')).runInit(context, options));
  const check = new Command('check')
    .description('Check whether a worker can start on the topics, and print what to fix.')
    .option('--json', 'print one line of JSON: {"cluster_id","differences","warnings","faults","fixes","hidden"}')
    .addHelpText('after', CHECK_HELP)
    .action(async (flags: JsonFlag) => (await import('./topics-run.ts')).runCheck(context, flags));
  return new Command('topics')
    .description('Create and check the topics, and grant rights on them.')
    .addCommand(init)
    .addCommand(check)
    .addCommand(aclsCommand(context));
}

const ACLS_HELP = `
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
    .addHelpText('after', ACLS_HELP)
    .action(async (flags: AclFlags, command: Command) =>
      (await import('./topics-run.ts')).runAcls(context, flags, command),
    );
}

function principal(text: string): string {
  if (/^[A-Za-z]+:[^\p{Cc}]{1,1000}$/u.test(text)) return text;
  throw new InvalidArgumentError('must look like User:name.');
}
