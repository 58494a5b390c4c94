import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { type FormFlags, ID_TEXTS, withFormOptions } from '../form-options.ts';
import { type LayoutOptions, withLayoutOptions } from '../layout-options.ts';

export interface TraceOptions extends LayoutOptions, FormFlags {
  readonly allReplies?: true;
  readonly json?: true;
}

const EXAMPLES = `
The entry was appended at most 15 minutes after the ID's time, so only that part of the ledger is read. --all-replies also
finds the replies that a replay wrote later. In JSON, correlation_id is the request ID if there is one; that of each reply is
what its sender gave this try.

Examples:
  idalloc trace 55325805773398016
  idalloc trace ord_01H4EGVW0J8004
  idalloc trace 0x00c48e86f8092000 --all-replies --json`;

/** `idalloc trace`: finds the request that an ID was allocated for. */
export function traceCommand(context: CliContext): Command {
  const command = new Command('trace')
    .description('Show the request that an ID was allocated for, with worker, ledger entry and replies.')
    .argument('<id>', ID_TEXTS);
  return withLayoutOptions(withFormOptions(command, 'form that the ID is in (default: detected)'))
    .option('--all-replies', 'find replies up to the end of the reply topic')
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action(async (text: string, options: TraceOptions) => {
      const { runTrace } = await import('./trace-run.ts');
      await runTrace(context, text, options, command);
    });
}
