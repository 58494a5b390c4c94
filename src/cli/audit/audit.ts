import { tmpdir } from 'node:os';
import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { repeated, TIME_HELP, timeReader, wholeNumber, withLayoutOptions } from '../options.ts';
import type { AuditOptions } from './audit-run.ts';
import { FINDINGS } from './found.ts';

const EXAMPLES = `
Reads what the topics of requests, ledger, replies, dead letters and witnesses hold now, and changes nothing. Looks for:
${Object.entries(FINDINGS)
  .map(([code, meaning]) => `  ${code.padEnd(17)} ${meaning}`)
  .join('\n')}
Its last line is 'no problems found', and the exit code 0, only if none was found and every request could be judged. "N requests, N answered"
is the first line; beside it is what waits, and what can't be judged since no answer is there and a topic does not reach back that far. Use --from
where topics keep their records for different times: requests from then on, and with --to before that, are judged.
A request is named by its request ID, or else its correlation ID. Batches of every preset are checked, and those of the custom
layout that the options or LAYOUT_* define. A loser is an entry that came second; its IDs are a gap. A doubled one repeats the decided batch.
Numbers and replies whose decisions the ledger states as lost with its tail are counted, and are no problem: whoever received one keeps it.
Records are sorted on disk, about 900 bytes for each request with its entry and its reply.

Examples:
  idalloc audit
  idalloc audit --ledger-topic id.ledger.2
  idalloc audit --from 2h --to 1h --grace-ms 60000
  idalloc audit --reply-topic id.replies.orders --temp-dir /var/tmp --json`;

export const LEDGER_FLAG = '--ledger-topic <topic>';
export const LEDGER_HELP =
  'read this ledger as well: of another pair of topics that shares these reply topics; repeatable';

/** `idalloc audit`: compares requests, decisions and replies. */
export function auditCommand(context: CliContext): Command {
  const command = new Command('audit').description(
    'Check the whole history: each request answered as it was decided, no ID twice.',
  );
  return withLayoutOptions(command)
    .option(
      '--reply-topic <topic>',
      'check only this reply topic; repeatable (default: all under REPLY_TOPIC_PREFIX)',
      repeated,
    )
    .option(LEDGER_FLAG, LEDGER_HELP, repeated)
    .option('--from <time>', `judge requests from this time on: ${TIME_HELP}`, timeReader(context.now))
    .option('--to <time>', 'judge requests from before this time', timeReader(context.now))
    .option('--grace-ms <ms>', 'how long a request may wait for its answer', wholeNumber(0, 86_400_000), 600_000)
    .option('--max-findings <n>', 'most findings to list; all are counted', wholeNumber(1, 100_000), 100)
    .option('--temp-dir <directory>', 'where batches are sorted', tmpdir())
    .option('--json', 'print one line of JSON, with the findings')
    .addHelpText('after', EXAMPLES)
    .action(async (options: AuditOptions) => (await import('./audit-run.ts')).runAudit(context, options, command));
}
