import { Command } from 'commander';
import type { CliContext } from './context.ts';
import type { LeaseListOptions } from './leases-run.ts';
import { type ConfirmFlags, wholeNumber } from './options.ts';

const LIST_HELP = `
A ceiling is the time below which a worker ID may have been used; its next holder starts there.

Examples:
  idalloc leases
  idalloc leases --all --json`;

const EVICT_HELP = `
For a worker that can't be reached; stop others instead. Its ceiling stays, so no ID can be allocated twice. The worker
notices at its next heartbeat, stops allocating and takes another worker ID.

Examples:
  idalloc leases evict 7
  idalloc leases evict 7 --yes --json`;

/** `idalloc leases`: who holds which worker ID. */
export function leasesCommand(context: CliContext): Command {
  const evict = new Command('evict')
    .description('Evict the holder of a worker ID.')
    .argument('<worker-id>', 'as listed', wholeNumber(0, 2 ** 32))
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON: {"worker_id","fence","evicted"}')
    .addHelpText('after', EVICT_HELP)
    .action(async (workerId: number, options: ConfirmFlags) =>
      (await import('./leases-run.ts')).runEvict(context, workerId, options),
    );
  return new Command('leases')
    .enablePositionalOptions() // options after evict belong to evict
    .description('Show who holds which worker ID, and how far each ceiling is.')
    .option('--all', 'also worker IDs that were never used')
    .option('--json', 'print one line of JSON: the namespace and {"leases":[…]}')
    .addHelpText('after', LIST_HELP)
    .addCommand(evict)
    .action(async (options: LeaseListOptions) => (await import('./leases-run.ts')).listLeases(context, options));
}
