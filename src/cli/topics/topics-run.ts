import type { Command } from 'commander';
import type { TopicFault } from '../../adapters/kafka/topics/judge.ts';
import { checkReplyTopicName } from '../../adapters/kafka/topics/plan.ts';
import { aclCommands, aclRules, type Right, type Role, rightsOf } from '../../adapters/kafka/topics/rights.ts';
import { checkTopics, grant, initTopics, type TopicsReport } from '../../adapters/kafka/topics/topics.ts';
import { openRegistry, type RegisteredSchema } from '../../adapters/registry/schema-registry.ts';
import { type KafkaConfig, loadKafkaConfig } from '../../config/config.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { type CliContext, EXIT } from '../context.ts';
import { withCluster } from '../kafka-session.ts';
import type { JsonFlag } from '../options.ts';
import { present } from '../output.ts';
import { palette } from '../terminal.ts';

export interface InitOptions extends JsonFlag {
  readonly replyTopic?: readonly string[];
  readonly managed?: true;
}

/** Creates the missing topics, and checks all. */
export async function runInit(context: CliContext, options: InitOptions): Promise<void> {
  const { replyTopic: replyTopics = [], managed = false, json } = options;
  const { env, out, setExitCode } = context;
  const config = loadKafkaConfig(env);
  const { made, report } = await withCluster(context, config, async (source) => ({
    made: await initTopics(source, config.topics, replyTopics, managed),
    report: await checkTopics(source, config.topics),
  }));
  const registered = await openRegistry(config.registry)?.register(config.topics.requests);
  const { clusterId: cluster_id, faults } = report;
  const warnings = [...report.warnings, ...report.added];
  if (faults.length > 0) setExitCode(EXIT.failed);
  const view = { cluster_id, ...made, warnings, faults, schemas: registered && schemasJson(registered) };
  const lines = [
    ...made.created.map((name) => `created ${name}`),
    ...made.refused.map((refusal) => `refused ${refusal}`),
    ...made.differences.map((difference) => `differs ${difference}`),
    ...(registered ?? []).map(({ subject, id }) => `schema ${id} is registered for subject ${subject}`),
    ...warnings.map(textOf('warning')),
    ...faults.map(textOf('fault')),
  ];
  const text = lines.length === 0 ? 'all topics exist with the expected settings' : lines.join('\n');
  present({ out }, json, view, () => `${text}\n`);
}

/** The id of the first schema of each subject: all workers read it, and most requesters write it. */
function schemasJson(registered: readonly RegisteredSchema[]): Readonly<Record<string, number>> {
  const ids: Record<string, number> = {};
  for (const { subject, id } of registered) ids[subject] ??= id;
  return ids;
}

/** Checks the topics. */
export async function runCheck(context: CliContext, { json }: JsonFlag): Promise<void> {
  const config = loadKafkaConfig(context.env);
  const report = await withCluster(context, config, (source) => checkTopics(source, config.topics));
  const registry = await registryFault(config);
  const { clusterId, faults, added, differences, remedies: fixes, hidden } = report;
  const warnings = [...report.warnings, ...added];
  if (faults.length > 0 || registry !== undefined) context.setExitCode(EXIT.failed);
  const view = { cluster_id: clusterId, differences, warnings, faults, fixes, hidden, registry };
  const paint = palette(context);
  const lines = [
    ...differences.map((difference) => `differs ${difference}`),
    ...hidden.map((name) => `not checked ${name}: not permitted`),
    ...warnings.map(textOf('warning')).map(paint.yellow),
    ...faults.map(textOf('fault')).map(paint.red),
    ...(registry === undefined ? [] : [paint.red(`fault registry: ${registry.message}; fix: ${registry.fix}`)]),
    ...(fixes.length === 0 ? [] : ['fix:', ...fixes.map((fix) => `  ${fix}`)]),
    verdict(paint, report),
  ];
  present(context, json, view, () => `${lines.join('\n')}\n`);
}

function verdict(paint: ReturnType<typeof palette>, { faults, added }: TopicsReport): string {
  if (faults.length > 0) return paint.red("a worker can't start on these topics");
  if (added.length === 0) return paint.green('a worker can start on these topics');
  return paint.yellow('a worker can start on these topics if partitions were added after its namespace was created');
}

function textOf(kind: string): (fault: TopicFault) => string {
  return ({ code, message }) => `${kind} ${code}: ${message}`;
}

export interface AclFlags extends JsonFlag {
  readonly principal: string;
  readonly role: Role;
  readonly replyTopic?: readonly string[];
  readonly nestjs?: true;
  readonly apply?: true;
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

export interface RegistryFault {
  readonly message: string;
  readonly fix: string;
}

/** Why requests in the registry's framing can't be served; undefined if they can, or without a registry. */
export async function registryFault(config: KafkaConfig): Promise<RegistryFault | undefined> {
  try {
    const missing = (await openRegistry(config.registry)?.missing(config.topics.requests)) ?? [];
    if (missing.length === 0) return undefined;
    return { message: `no schema of this version for ${missing.join(', ')}`, fix: 'idalloc topics init' };
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    return { message: describeError(error), fix: 'start it, or correct SCHEMA_REGISTRY_URL and its login' };
  }
}
