import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { TIME_HELP, timeReader } from '../options.ts';
import type { JournalFlags } from './journal-run.ts';

const HELP = `
Commands that change what workers promise enter themselves before they act, and their outcome afterwards: sequence create, restart,
redefine and close, namespace rebuild, move and adopt-cluster, leases evict, and replay. The entries are in etcd, in the order in which etcd took
them; the newest 10,000 are kept. An outcome stays unknown while the command runs, if it was killed, if a server did not answer it, and if it failed
halfway: look whether it took effect. Times are of the clock of the machine on which the command ran. The exit code is 1 if an entry can't be read.

Examples:
  idalloc journal
  idalloc journal --from 30d --json`;

/** `idalloc journal`: which operator gave which command, and when. */
export function journalCommand(context: CliContext): Command {
  return new Command('journal')
    .description('Show which operator changed what, and when.')
    .option('--from <time>', `only commands from this time on: ${TIME_HELP}`, timeReader(context.now))
    .option(
      '--json',
      'print one line of JSON: {"entries":[{"number","at","who","command","arguments","outcome","code","note"} or {"number","fault"}]}',
    )
    .addHelpText('after', HELP)
    .action(async (flags: JournalFlags) => (await import('./journal-run.ts')).showJournal(context, flags));
}
