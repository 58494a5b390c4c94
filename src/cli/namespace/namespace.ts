import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { TIME_HELP, timeReader } from '../times.ts';
import { adoptCommand } from './adopt.ts';
import type { RebuildFlags } from './namespace-run.ts';
import { rightsCommand } from './rights.ts';

const SHOW_HELP = `
If etcd has less than was witnessed, workers refuse with RESTORED, and the exit code is 1.

Examples:
  idalloc namespace show
  idalloc namespace show --json`;

const REBUILD_HELP = `
For workers that refuse with RESTORED or NAMESPACE_DAMAGED. First stop all others of the datacenter. Run it with the
workers' variables: LAYOUT, pool, RESERVATION_MS, topics. It can't be undone. It refuses while a ledger or the witness topic has
IDs of this datacenter in another layout: IDs of two layouts can be equal.

Every ceiling is raised a reservation above the highest ID in the ledgers, all ceilings, all witnesses and the current time.
If that time does not fit what was found, you have to confirm it. If the command is interrupted, run it again.

Numbers of sequences go on where the ledger is. What etcd still holds of them is completed, or dropped where the ledger contradicts it:
workers do that when they next look, by the new UUID of the namespace.

Examples:
  idalloc namespace rebuild
  idalloc namespace rebuild --yes --json
  idalloc namespace rebuild --yes --now 2026-06-02T16:05:00Z
  idalloc namespace rebuild --forged-after 2026-06-02T17:00Z`;

/** `idalloc namespace`: inspects and rebuilds what the workers of a datacenter share. */
export function namespaceCommand(context: CliContext): Command {
  const show = new Command('show')
    .description('Show what etcd and the witness topic hold, and whether etcd was rolled back.')
    .option('--json', 'print one line of JSON: what was found, and "fault" or null')
    .addHelpText('after', SHOW_HELP)
    .action(async (options: { json?: true }) => {
      const { showNamespace } = await import('./namespace-run.ts');
      await showNamespace(context, options.json === true);
    });
  const rebuild = new Command('rebuild')
    .description('Rebuild the namespace, above every ID that was ever allocated.')
    .option('--yes', 'do not ask for confirmation')
    .option(
      '--now <time>',
      `the current time, if there is no terminal to confirm it: ${TIME_HELP}`,
      timeReader(context.now),
    )
    .option('--ledger <topic...>', 'read these ledgers as well: those of other pairs of topics, if etcd was wiped')
    .option('--without-ledger <topic...>', 'ignore these: ledgers of pairs of topics that were deleted')
    .option(
      '--forged-after <time>',
      'ignore witnesses above this time as forged; at least one reservation from now',
      timeReader(context.now),
    )
    .option('--json', 'print one line of JSON: {"uuid","floor","floor_time","found"}')
    .addHelpText('after', REBUILD_HELP)
    .action(async (options: RebuildFlags) => {
      const { runRebuild } = await import('./namespace-run.ts');
      await runRebuild(context, options);
    });
  return new Command('namespace')
    .description('Inspect or rebuild the namespace in etcd, adopt a Kafka cluster, and print rights.')
    .addCommand(show)
    .addCommand(rebuild)
    .addCommand(adoptCommand(context))
    .addCommand(rightsCommand(context));
}
