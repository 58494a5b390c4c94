import { Command } from 'commander';
import type { TopicFault } from '../../adapters/kafka/topics/judge.ts';
import { checkTopics, initTopics } from '../../adapters/kafka/topics/topics.ts';
import { openRegistry } from '../../adapters/registry/schema-registry.ts';
import { loadKafkaConfig } from '../../config/config.ts';
import { type CliContext, EXIT } from '../context.ts';
import { withCluster } from '../kafka-session.ts';
import { registryFault } from '../registry.ts';
import { palette } from '../terminal.ts';
import { aclsCommand } from './acls.ts';

const INIT_HELP = `
Existing topics are never altered; differences from the plan are reported. The exit code is 1 if a worker would refuse to
start. With SCHEMA_REGISTRY_URL the schemas are registered as well: the request's under subject '<request topic>-value',
the reply's under 'idalloc.IdReply'; if the registry rejects one, the exit code is 1.

Examples:
  KAFKA_BROKERS=kafka-1:9092,kafka-2:9092 idalloc topics init
  KAFKA_BROKERS=kafka-1:9092 idalloc topics init --reply-topic id.replies.orders id.replies.billing
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
    .option('--json', 'print one line of JSON: {"cluster_id","created","differences","warnings","faults"}')
    .addHelpText('after', INIT_HELP)
    .action((options: InitOptions) => runInit(context, options));
  const check = new Command('check')
    .description('Check whether a worker can start on the topics, and print what to fix.')
    .option('--json', 'print one line of JSON: {"cluster_id","differences","warnings","faults","fixes","hidden"}')
    .addHelpText('after', CHECK_HELP)
    .action((options: { json?: true }) => runCheck(context, options.json === true));
  return new Command('topics')
    .description('Create and check the topics, and grant rights on them.')
    .addCommand(init)
    .addCommand(check)
    .addCommand(aclsCommand(context));
}

interface InitOptions {
  readonly replyTopic?: readonly string[];
  readonly json?: true;
}

async function runInit(context: CliContext, { replyTopic: replyTopics = [], json }: InitOptions): Promise<void> {
  const { env, out, setExitCode } = context;
  const config = loadKafkaConfig(env);
  const { made, report } = await withCluster(context, config, async (source) => ({
    made: await initTopics(source, config.topics, replyTopics),
    report: await checkTopics(source, config.topics),
  }));
  const schemas = await openRegistry(config.registry)?.register(config.topics.requests);
  if (report.faults.length > 0) setExitCode(EXIT.failed);
  if (json === true) {
    const { clusterId: cluster_id, warnings, faults } = report;
    return out(`${JSON.stringify({ cluster_id, ...made, warnings, faults, ...(schemas && { schemas }) })}\n`);
  }
  const lines = [
    ...made.created.map((name) => `created ${name}`),
    ...made.differences.map((difference) => `differs ${difference}`),
    ...Object.entries(schemas ?? {}).map(([subject, id]) => `schema ${id} is registered for subject ${subject}`),
    ...report.warnings.map(textOf('warning')),
    ...report.faults.map(textOf('fault')),
  ];
  out(lines.length === 0 ? 'all topics exist and are as planned\n' : `${lines.join('\n')}\n`);
}

async function runCheck(context: CliContext, json: boolean): Promise<void> {
  const config = loadKafkaConfig(context.env);
  const {
    clusterId,
    warnings,
    faults,
    differences,
    remedies: fixes,
    hidden,
  } = await withCluster(context, config, (source) => checkTopics(source, config.topics));
  const registry = await registryFault(config);
  if (faults.length > 0 || registry !== undefined) context.setExitCode(EXIT.failed);
  if (json) {
    const view = { cluster_id: clusterId, differences, warnings, faults, fixes, hidden, ...(registry && { registry }) };
    return context.out(`${JSON.stringify(view)}\n`);
  }
  const paint = palette(context);
  const lines = [
    ...differences.map((difference) => `differs ${difference}`),
    ...hidden.map((name) => `not checked ${name}: not permitted`),
    ...warnings.map(textOf('warning')).map(paint.yellow),
    ...faults.map(textOf('fault')).map(paint.red),
    ...(registry === undefined ? [] : [paint.red(`fault registry: ${registry.message}; fix: ${registry.fix}`)]),
    ...(fixes.length === 0 ? [] : ['fix:', ...fixes.map((fix) => `  ${fix}`)]),
    faults.length === 0
      ? paint.green('a worker can start on these topics')
      : paint.red("a worker can't start on these topics"),
  ];
  context.out(`${lines.join('\n')}\n`);
}

function textOf(kind: string): (fault: TopicFault) => string {
  return ({ code, message }) => `${kind} ${code}: ${message}`;
}
