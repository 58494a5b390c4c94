import { Command } from 'commander';
import type { TopicFault } from '../adapters/kafka/topic-plan.ts';
import { checkTopics, initTopics } from '../adapters/kafka/topics.ts';
import { loadKafkaConfig } from '../config.ts';
import { type CliContext, EXIT } from './context.ts';
import { commandKafka, withAdmin } from './kafka-session.ts';

const EXAMPLES = `
Existing topics are never altered. Where one differs from what idalloc would make, that is told; where a worker
would refuse to start, the exit code is 1.

Examples:
  KAFKA_BROKERS=kafka-1:9092,kafka-2:9092 idalloc topics init
  KAFKA_BROKERS=localhost:9092 TOPIC_REPLICATION_FACTOR=1 ALLOW_WEAK_LEDGER=1 idalloc topics init --json`;

/** `idalloc topics init`: makes the topics that idalloc needs. */
export function topicsCommand(context: CliContext): Command {
  const init = new Command('init')
    .description('Make the topics that are missing, and check the others.')
    .option('--json', 'print one line of JSON: {"cluster_id","created","differences","warnings","faults"}')
    .addHelpText('after', EXAMPLES)
    .action((options: { json?: true }) => runInit(context, options.json === true));
  return new Command('topics').description('Care for the topics on the brokers.').addCommand(init);
}

async function runInit(context: CliContext, json: boolean): Promise<void> {
  const { env, out, setExitCode } = context;
  const config = loadKafkaConfig(env);
  const { made, report } = await withAdmin(commandKafka(context, config), config, context.stop, async (admin) => {
    return { made: await initTopics(admin, config.topics), report: await checkTopics(admin, config.topics) };
  });
  if (report.faults.length > 0) setExitCode(EXIT.failed);
  if (json) {
    const { clusterId: cluster_id, warnings, faults } = report;
    return out(`${JSON.stringify({ cluster_id, ...made, warnings, faults })}\n`);
  }
  const text = (kind: string) => (fault: TopicFault) => `${kind} ${fault.code}: ${fault.message}`;
  const lines = [
    ...made.created.map((name) => `made ${name}`),
    ...made.differences.map((difference) => `differs ${difference}`),
    ...report.warnings.map(text('warning')),
    ...report.faults.map(text('fault')),
  ];
  out(lines.length === 0 ? 'all topics are there and as planned\n' : `${lines.join('\n')}\n`);
}
