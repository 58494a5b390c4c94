import type { Command } from 'commander';
import { grant } from '../../adapters/kafka/topics/acls.ts';
import { checkReplyTopicName } from '../../adapters/kafka/topics/plan.ts';
import { aclCommands, aclRules, type Right, type Role, rightsOf } from '../../adapters/kafka/topics/rights.ts';
import { loadKafkaConfig } from '../../config/config.ts';
import type { CliContext } from '../context.ts';
import { withCluster } from '../kafka-session.ts';
import { present } from '../present.ts';

export interface AclFlags {
  readonly principal: string;
  readonly role: Role;
  readonly replyTopic?: readonly string[];
  readonly nestjs?: true;
  readonly apply?: true;
  readonly json?: true;
}

/** Prints or grants the rights. */
export async function runAcls(context: CliContext, flags: AclFlags, command: Command): Promise<void> {
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
  const lines = apply ? rights.map((right) => `${flags.principal} may now ${rightText(right)}`) : commands;
  const view = { principal: flags.principal, role, rights, commands, applied: apply };
  present(context, flags.json, view, () => lines.map((line) => `${line}\n`).join(''));
}

function rightText({ resource, pattern, name, operations }: Right): string {
  const place = pattern === 'prefixed' ? `${resource}s that begin with '${name}'` : `${resource} '${name}'`;
  return `${operations.join(', ')} on ${place}`;
}
