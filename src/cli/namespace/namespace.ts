import { Command, InvalidArgumentError, Option } from 'commander';
import type { CliContext } from '../context.ts';
import { type ConfirmFlags, type JsonFlag, TIME_HELP, timeReader } from '../options.ts';
import type { EtcdRole, RebuildFlags, RightsFlags } from './namespace-run.ts';

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
    .action(async (flags: JsonFlag) => (await import('./namespace-run.ts')).showNamespace(context, flags));
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
    .action(async (options: RebuildFlags) => (await import('./namespace-run.ts')).runRebuild(context, options));
  return new Command('namespace')
    .description('Inspect, rebuild or move the namespace in etcd, adopt a Kafka cluster, and print rights.')
    .addCommand(show)
    .addCommand(rebuild)
    .addCommand(moveCommand(context))
    .addCommand(adoptCommand(context))
    .addCommand(rightsCommand(context));
}

const MOVE_HELP = `
Run it with the workers' variables, and the new ETCD_PREFIX. First stop all workers of the datacenter. It refuses while a worker ID is held
under either prefix, shows both, and asks. It copies what etcd remembers of ledgers, sequences and topics, then gives the datacenter to the new
prefix: workers of the old one refuse with NAMESPACE_MISMATCH. If it is interrupted, run it again.

Then run 'idalloc namespace rebuild' with the new prefix: IDs start above everything that the old namespace reserved. What lies below the old
prefix stays as it is. To undo it, run it with the old prefix; without a rebuild in between, workers then go on as before.

Examples:
  idalloc namespace move
  idalloc namespace move --yes --json`;

/** `idalloc namespace move`: gives the datacenter to a namespace at another prefix of etcd. */
function moveCommand(context: CliContext): Command {
  return new Command('move')
    .description('Move the namespace to ETCD_PREFIX, from the prefix where it is.')
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON: {"from","to","copied","moved"}')
    .addHelpText('after', MOVE_HELP)
    .action(async (flags: ConfirmFlags) => (await import('./move-run.ts')).runMove(context, flags));
}

const ADOPT_HELP = `
For workers that refuse with CLUSTER_CHANGED or LEDGER_COPIED, and after ledger and request topic were created again. It compares each
partition of the ledger with what etcd remembers, shows that and the sequences, and asks. First stop all workers that still use the other
cluster. Run it with the workers' variables. It can't be undone.

Then it states in each partition that the ledger may lack decisions, and binds the namespace to this cluster. Requests from before get the
batch that this ledger has, or FORGOTTEN. Sequences go on behind the numbers that etcd remembers, without repeating one. Waiting workers go on
without a restart. If the command is interrupted, run it again.

Examples:
  idalloc namespace adopt-cluster
  idalloc namespace adopt-cluster --yes --json`;

/**
 * `idalloc namespace adopt-cluster`: lets workers go on with another Kafka cluster, or with a ledger that was copied.
 */
export function adoptCommand(context: CliContext): Command {
  return new Command('adopt-cluster')
    .description('Go on with this Kafka cluster, whatever its ledger lacks.')
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON: {"cluster","bound","partitions","sequences","adopted"}')
    .addHelpText('after', ADOPT_HELP)
    .action(async (flags: ConfirmFlags) => (await import('./adopt-run.ts')).runAdopt(context, flags));
}

const RIGHTS_HELP = `
Roles: worker; operator, for doctor, leases, journal, and sequence list and show; admin, for namespace, leases evict, replay and what
changes sequences. Nothing is changed: the commands for etcdctl are printed. Add --endpoints, certificates, and a user that may manage
users (root). etcd rejects the commands that add an existing role or user; the others still work.

Examples:
  idalloc namespace rights --user id-worker --role worker
  idalloc namespace rights --user alice --role operator --json`;

const ETCD_ROLES: readonly EtcdRole[] = ['worker', 'operator', 'admin'];

/** `idalloc namespace rights`: prints the least rights of a role in etcd, as commands. */
export function rightsCommand(context: CliContext): Command {
  return new Command('rights')
    .description('Print the commands that grant a user the rights it needs in etcd.')
    .requiredOption('--user <name>', 'the user that gets the rights', userName)
    .addOption(new Option('--role <role>', 'what the user does').choices(ETCD_ROLES).makeOptionMandatory())
    .option('--json', 'print one line of JSON: {"user","role","rights","commands"}')
    .addHelpText('after', RIGHTS_HELP)
    .action(async (flags: RightsFlags) => {
      const { runRights } = await import('./namespace-run.ts');
      runRights(context, flags);
    });
}

function userName(text: string): string {
  if (/^[A-Za-z0-9_.@][A-Za-z0-9_.@-]{0,199}$/.test(text)) return text;
  throw new InvalidArgumentError('must be letters, digits, _ . @ -');
}
