import { tmpdir } from 'node:os';
import { Command } from 'commander';
import { LEDGER_FLAG, LEDGER_HELP } from '../audit/audit.ts';
import type { CliContext } from '../context.ts';
import { repeated, TIME_HELP, timeReader, wholeNumber } from '../options.ts';
import type { ReplayOptions } from './replay-run.ts';

const EXAMPLES = `
Stop all workers first: the command refuses while the group has members. It asks, states in the ledger up to where each
partition was answered, and resets the group's offsets, never forward. Restart the workers when prompted, without QUOTAS.
Each request gets its batch or its numbers again. One without a decision was refused, and is refused again as
ANSWERED_BEFORE: nothing new is given out. A request that is sent again is a new record, and is decided. So the command
refuses while large requests or requests for numbers wait, or after another program has moved the group's offsets.
--decide-refused decides refused requests after all. Then it lists what that may take, and asks: they get IDs, or the
next numbers of their sequences, unless the reason of the refusal still holds. Look with --dry-run before.
It waits until the workers have reached their former offsets, and have answered what they forwarded meanwhile, and
compares every reply with the ledger and the earlier reply. The exit code is 1 if one differs, or if anything was newly
given without --decide-refused.

Examples:
  idalloc replay --from 2h --dry-run
  idalloc replay --from 2026-06-02T16:00:00Z
  idalloc replay --partition 3 --offset 1200 --yes --json
  idalloc replay --from 1d --decide-refused --dry-run
  idalloc replay --from 1d --yes --no-wait`;

/** `idalloc replay`: reads requests again, and checks that each gets its first answer. */
export function replayCommand(context: CliContext): Command {
  const command = new Command('replay')
    .description('Read requests again, and check that nothing is decided anew.')
    .option('--from <time>', `read again from this time: ${TIME_HELP}`, timeReader(context.now))
    .option('--offset <n>', 'read again from this offset; needs --partition', wholeNumber(0, 2 ** 53 - 1))
    .option('--partition <n>', 'only this request partition', wholeNumber(0, 2 ** 31 - 1))
    .option('--decide-refused', 'decide requests that were refused: they may take IDs and numbers')
    .option('--dry-run', 'only show what would be read again, and which requests have no decision')
    .option('--yes', 'do not ask for confirmation')
    .option('--no-wait', "reset the group's offsets and exit")
    .option('--no-verify', 'wait for the workers, but do not check their replies')
    .option('--max <n>', 'most newly given batches and numbers to list; all are counted', wholeNumber(1, 100_000), 100)
    .option('--stall-ms <ms>', 'give up after this time without progress', wholeNumber(1_000, 86_400_000), 600_000)
    .option('--temp-dir <directory>', 'where replies are sorted', tmpdir())
    .option(LEDGER_FLAG, LEDGER_HELP, repeated)
    .option(
      '--json',
      'print one line of JSON: {"plan","undecided","read_again","forwarded","repeated","without_first","numbers","refused_again","newly_given","dead_letters","findings"}',
    )
    .addHelpText('after', EXAMPLES);
  return command.action(async (options: ReplayOptions) => {
    const { from, offset, partition } = options;
    if ((from === undefined) === (offset === undefined)) command.error('error: use either --from or --offset');
    if (offset !== undefined && partition === undefined) command.error('error: --offset needs --partition');
    const { runReplay } = await import('./replay-run.ts');
    await runReplay(context, options, command);
  });
}
