import { Command } from 'commander';
import type { CliContext } from '../context.ts';
import { ID_TEXTS, withFormOptions } from '../form-options.ts';
import { withLayoutOptions } from '../layout-options.ts';
import { wholeNumber } from '../numbers.ts';
import { sequenceName } from '../sequence/sequence.ts';
import type { TraceOptions } from './trace-run.ts';

const EXAMPLES = `
The entry was appended at most 15 minutes after the ID's time, so only that part of the ledger is read. A number of a sequence is searched in all that the ledger has of its partition. --all-replies also
finds the replies that a replay wrote later. In JSON, correlation_id is the request ID if there is one; that of each reply is
what its sender gave this try.

Examples:
  idalloc trace 55325805773398016
  idalloc trace ord_01H4EGVW0J8004
  idalloc trace 0x00c48e86f8092000 --all-replies --json
  idalloc trace --sequence invoices/2027 --number 1`;

/** `idalloc trace`: finds the request that an ID was allocated for. */
export function traceCommand(context: CliContext): Command {
  const command = new Command('trace')
    .description('Show the request that an ID was allocated for, or that a number of a sequence was given to.')
    .argument('[id]', ID_TEXTS);
  return withLayoutOptions(withFormOptions(command, 'form that the ID is in (default: detected)'))
    .option('--all-replies', 'find replies up to the end of the reply topic')
    .option('--sequence <name>', 'trace a number of this sequence instead of an ID', sequenceName)
    .option('--number <n>', 'the number', wholeNumber(0, Number.MAX_SAFE_INTEGER))
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action(async (text: string | undefined, options: TraceOptions) => {
      const { sequence, number } = options;
      if (text === undefined && sequence !== undefined && number !== undefined) {
        const { traceNumber } = await import('./trace-number.ts');
        await traceNumber(context, { ...options, sequence, number });
        return;
      }
      if (text === undefined || sequence !== undefined || number !== undefined) {
        return command.error('error: give an ID, or --sequence and --number');
      }
      const { runTrace } = await import('./trace-run.ts');
      await runTrace(context, text, options, command);
    });
}
