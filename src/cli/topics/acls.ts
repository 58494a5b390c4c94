import { Command, InvalidArgumentError, Option } from 'commander';
import { grant } from '../../adapters/kafka/topics/acls.ts';
import { checkReplyTopicName } from '../../adapters/kafka/topics/plan.ts';
import { aclCommands, aclRules, type Right, ROLES, type Role, rightsOf } from '../../adapters/kafka/topics/rights.ts';
import { loadKafkaConfig } from '../../config/config.ts';
import type { CliContext } from '../context.ts';
import { withCluster } from '../kafka-session.ts';

const HELP = `
Roles: worker; client, a service that sends requests (name its reply topics); operator, for commands that only read, and
for replay; admin, for topics init, deadletters resend and namespace. Without --apply nothing is changed: the commands
for Kafka's own tools are printed. With --apply the configured user grants the rights, and needs Alter on the cluster.
Rights are never revoked. For rights in etcd, see idalloc namespace rights.

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
    .action((flags: AclFlags, command: Command) => run(context, flags, command));
}

function principal(text: string): string {
  if (/^[A-Za-z]+:[^\p{Cc}]{1,1000}$/u.test(text)) return text;
  throw new InvalidArgumentError('must look like User:name.');
}

async function run(context: CliContext, flags: AclFlags, command: Command): Promise<void> {
  const { role, replyTopic: replyTopics = [], nestjs = false, apply = false } = flags;
  const hasTopic = replyTopics.length > 0 || nestjs;
  if (role === 'client' && !hasTopic)
    command.error('error: a client needs a topic for its replies: add --reply-topic or --nestjs');
  if (role !== 'client' && replyTopics.length > 0) command.error('error: --reply-topic is for --role client only');
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
