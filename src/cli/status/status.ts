import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { type JsonFlag, wholeNumber } from '../options.ts';
import type { WorkerChoice } from './ask.ts';

const HELP = `
It asks the status page of each worker, at the ops port. Without a worker and without --all, that is the worker of this machine, at
OPS_HOST and OPS_PORT. A name stands for all its addresses: that of the chart's service <release>-idalloc-ops has every worker, ready or not.
--all adds each holder of a worker ID in etcd by the address in its lease; a worker without a worker ID is not among them, so name it, or
the service. Workers answer other machines only if OPS_HOST lets them, as 0.0.0.0 does. A holder of this machine that refuses there is
asked at OPS_HOST.

A worker that does not answer within 5 s is a row as any other. Names need no etcd: use them if etcd is away. The exit code is 0 if each worker
is ready, 1 if one is not or does not answer, and 69 if etcd does not answer.

Examples:
  idalloc status
  idalloc status --all
  idalloc status ids-idalloc-ops.ids.svc
  idalloc status 10.0.0.7 10.0.0.8:9464 --json`;

/** `idalloc status`: what each worker does, in one view. */
export function statusCommand(context: CliContext): Command {
  return workersOf(new Command('status').description('Show whether workers serve, and why one does not.'))
    .option(
      '--json',
      'print one line of JSON: {"workers":[{"address","reachable","ready","reason","worker_id",…}],"ready","not_ready","unreachable"}',
    )
    .addHelpText('after', HELP)
    .action(async (names: readonly string[], flags: WorkerChoice & JsonFlag) =>
      (await import('./status-run.ts')).runStatus(context, names, flags),
    );
}

/** Adds the argument and the options that choose workers. */
export function workersOf(command: Command): Command {
  return command
    .argument('[worker...]', 'workers: a name or an address, with the ops port if it is another one')
    .option('--all', 'also every holder of a worker ID in etcd')
    .option('--port <port>', "the workers' ops port (default: OPS_PORT, or 9464)", wholeNumber(1, 65_535));
}
