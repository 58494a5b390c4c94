import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import type { JsonFlag } from '../options.ts';

const EXAMPLES = `
Run it with a worker's variables, on a worker's machine. It checks variables, certificates, each broker and etcd endpoint, topics and
their configs, permissions, the schema registry, whether etcd compacts, the namespace, sequences, clocks, limits and the disk of the
index. It changes nothing. For sequences it reads as much of the ledger as 'sequence list' does.
The exit code is 1 for a fault, which keeps a worker from running.

Examples:
  idalloc doctor
  idalloc doctor --json`;

/** `idalloc doctor`: what is wrong, and what to do about it. */
export function doctorCommand(context: CliContext): Command {
  return new Command('doctor')
    .description('Check everything that a worker needs, and print what to fix.')
    .option('--json', 'print one line of JSON: {"checks":[{"name","state","detail","fix"}]}')
    .addHelpText('after', EXAMPLES)
    .action(async (flags: JsonFlag) => (await import('./doctor-run.ts')).runDoctor(context, flags));
}
