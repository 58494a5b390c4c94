import { Command, InvalidArgumentError, Option } from 'commander';
import { grant } from '../../adapters/kafka/topics/acls.ts';
import { checkReplyTopicName } from '../../adapters/kafka/topics/plan.ts';
import { aclCommands, aclRules, type Right, ROLES, type Role, rightsOf } from '../../adapters/kafka/topics/rights.ts';
import { loadKafkaConfig } from '../../config/config.ts';
import type { CliContext } from '../context.ts';
import { withCluster } from '../kafka-session.ts';

const HELP = `
Roles: worker; client, a service that sends requests (name its reply topics); operator, for commands that look, and for
replay; admin, for topics init, deadletters resend and namespace. Without --apply nothing is changed, and the commands
of Kafka's own tools are printed. With --apply the rights are granted as the user that is configured, who needs Alter on
the cluster. No right is ever taken away. Rights in etcd: idalloc namespace rights.

Examples:
  idalloc topics acls --principal User:id-worker --role worker
  idalloc topics acls --principal User:orders --role client --reply-topic id.replies.orders --apply
  idalloc topics acls --principal User:alice --role operator --json`;

interface AclFlags {
  readonly principal: string;
  readonly role: Role;
  readonly replyTopic?: readonly string[];
  readonly nestjs?: true;
  readonly apply?: true;
  readonly json?: true;
}

/** `idalloc topics acls`: the least rights of a role, as commands or granted. */
export function aclsCommand(context: CliContext): Command {
  return new Command('acls')
    .description('Print or grant the least rights of a user on topics and group.')
    .requiredOption('--principal <type:name>', 'whom the rights are for, such as User:id-worker', principal)
    .addOption(new Option('--role <role>', 'what the user does').choices(ROLES).makeOptionMandatory())
    .option('--reply-topic <topic...>', 'of a client: where it waits for its replies')
    .option('--nestjs', "also for replies to NestJS, on '<request topic>.reply'")
    .option('--apply', 'grant them')
    .option('--json', 'print one line of JSON: {"principal","role","rights","commands","applied"}')
    .addHelpText('after', HELP)
    .action((flags: AclFlags, command: Command) => run(context, flags, command));
}

function principal(text: string): string {
  if (/^[A-Za-z]+:[^\p{Cc}]{1,1000}$/u.test(text)) return text;
  throw new InvalidArgumentError('must look like User:name.');
}

async function run(context: CliContext, flags: AclFlags, command: Command): Promise<void> {
  const { role, replyTopic: replyTopics = [], nestjs = false, apply = false } = flags;
  const hasTopic = replyTopics.length > 0 || nestjs;
  if (role === 'client' && !hasTopic) command.error('error: a client reads its replies somewhere: give --reply-topic');
  if (role !== 'client' && replyTopics.length > 0) command.error('error: only a client has a --reply-topic of its own');
  const config = loadKafkaConfig(context.env);
  const { topics, groupId, kafka } = config;
  for (const name of replyTopics) checkReplyTopicName(name, topics);
  const rights = rightsOf(role, { topics, groupId, replyTopics, nestjs });
  if (apply) await withCluster(context, config, (source) => grant(source, aclRules(flags.principal, rights)));
  const commands = aclCommands(kafka.brokers, flags.principal, rights);
  if (flags.json === true) {
    const view = { principal: flags.principal, role, rights, commands, applied: apply };
    return context.out(`${JSON.stringify(view)}\n`);
  }
  const lines = apply ? rights.map((right) => `${flags.principal} may now ${rightText(right)}`) : commands;
  context.out(lines.map((line) => `${line}\n`).join(''));
}

function rightText({ resource, pattern, name, operations }: Right): string {
  const place = pattern === 'prefixed' ? `${resource}s that begin with '${name}'` : `${resource} '${name}'`;
  return `${operations.join(', ')} on ${place}`;
}
