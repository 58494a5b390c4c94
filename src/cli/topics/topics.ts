import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { aclsCommand } from './acls.ts';
import type { InitOptions } from './topics-run.ts';

const INIT_HELP = `
Existing topics are never altered; differences are reported. The exit code is 1 if a worker would refuse to start. With SCHEMA_REGISTRY_URL the schemas are registered as well: the request's under subject '<request topic>-value',
the reply's under 'idalloc.IdReply', and with numbers of a sequence under 'idalloc.IdReply-2'; if the registry rejects one, the exit code is 1.

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
    .action(async (options: InitOptions) => {
      const { runInit } = await import('./topics-run.ts');
      await runInit(context, options);
    });
  const check = new Command('check')
    .description('Check whether a worker can start on the topics, and print what to fix.')
    .option('--json', 'print one line of JSON: {"cluster_id","differences","warnings","faults","fixes","hidden"}')
    .addHelpText('after', CHECK_HELP)
    .action(async (options: { json?: true }) => {
      const { runCheck } = await import('./topics-run.ts');
      await runCheck(context, options.json === true);
    });
  return new Command('topics')
    .description('Create and check the topics, and grant rights on them.')
    .addCommand(init)
    .addCommand(check)
    .addCommand(aclsCommand(context));
}
