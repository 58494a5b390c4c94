import { Command } from 'commander';
import { describeVariables } from '../config/variables.ts';
import type { CliContext } from './context.ts';

const help = () => `
All settings come from the environment; an empty variable counts as not set:
${describeVariables()}

On SIGTERM or SIGINT the worker serves on for SHUTDOWN_DELAY_MS, finishes the requests in progress, releases its worker
ID and exits; a second signal ends it immediately. The log message 'idalloc ready' means that requests are served.

Examples:
  KAFKA_BROKERS=kafka:9092 ETCD_ENDPOINTS=http://etcd:2379 DATACENTER_ID=0 idalloc worker
  KAFKA_SASL_PASSWORD_FILE=/run/secrets/kafka KAFKA_SASL_MECHANISM=scram-sha-512 … idalloc worker`;

/** `idalloc worker`: serves requests until stopped. */
export function workerCommand(context: CliContext): Command {
  return new Command('worker')
    .description('Serve requests until stopped.')
    .addHelpText('after', help)
    .action(async () => (await import('./worker-run.ts')).runWorker(context));
}
