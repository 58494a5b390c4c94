import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import type { AdoptFlags } from './adopt-run.ts';

const HELP = `
For workers that refuse with CLUSTER_CHANGED or LEDGER_COPIED, and after ledger and request topic were created again. It compares each
partition of the ledger with what etcd remembers, shows that and the sequences, and asks. First stop all workers that still use the other
cluster. Run it with the workers' variables. It can't be undone.

Then it states in each partition that the ledger may lack decisions, and binds the namespace to this cluster. Requests from before get the
batch that this ledger has, or FORGOTTEN. Sequences go on behind the numbers that etcd remembers, without repeating one. Waiting workers go on
without a restart. If the command is interrupted, run it again.

Examples:
  idalloc namespace adopt-cluster
  idalloc namespace adopt-cluster --yes --json`;

/** `idalloc namespace adopt-cluster`: lets workers go on with another Kafka cluster, or with a ledger that was copied. */
export function adoptCommand(context: CliContext): Command {
  return new Command('adopt-cluster')
    .description('Go on with this Kafka cluster, whatever its ledger lacks.')
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON: {"cluster","bound","partitions","sequences","adopted"}')
    .addHelpText('after', HELP)
    .action(async (flags: AdoptFlags) => {
      const { runAdopt } = await import('./adopt-run.ts');
      await runAdopt(context, flags);
    });
}
