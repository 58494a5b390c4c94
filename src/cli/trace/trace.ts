import { Command, InvalidArgumentError } from 'commander';
import { idOfText } from '../../codec/request-checks.ts';
import { IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { ID_TEXTS, wholeNumber, withFormOptions, withLayoutOptions } from '../options.ts';
import { sequenceName } from '../sequence/sequence.ts';
import type { TraceOptions } from './trace-run.ts';

const EXAMPLES = `
The entry was appended at most 15 minutes after the ID's time, so only that part of the ledger is read. A number of a sequence is searched in all that the ledger has of its partition. --all-replies also
finds the replies that a replay wrote later. In JSON, correlation_id is the request ID if there is one; that of each reply is
what its sender gave this try.

--correlation-id finds what a document has: the numbers of --sequence, or its IDs. It takes the request ID where requests have one, and
bytes in hexadecimal after 0x, as they are printed. It reads the ledger of its partition, decides nothing, and exits with 1 if there is
nothing. The correlation ID of IDs over HTTP is http/CALLER/KEY, of numbers the Idempotency-Key itself.

Examples:
  idalloc trace 55325805773398016
  idalloc trace ord_01H4EGVW0J8004
  idalloc trace 0x00c48e86f8092000 --all-replies --json
  idalloc trace --sequence invoices/2027 --number 1
  idalloc trace --sequence invoices/2027 --correlation-id order-4710
  idalloc trace --correlation-id order-4711 --json`;

/** `idalloc trace`: finds the request that an ID was allocated for. */
export function traceCommand(context: CliContext): Command {
  const command = new Command('trace')
    .description('Show what request an ID or a number was given to, or what a correlation ID has.')
    .argument('[id]', ID_TEXTS);
  return withLayoutOptions(withFormOptions(command, 'form that the ID is in (default: detected)'))
    .option('--all-replies', 'find replies up to the end of the reply topic')
    .option('--sequence <name>', 'trace a number of this sequence, or the numbers of --correlation-id', sequenceName)
    .option('--number <n>', 'the number', wholeNumber(0, Number.MAX_SAFE_INTEGER))
    .option('--correlation-id <text>', 'show what it has: IDs, or with --sequence numbers', requestId)
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action(async (text: string | undefined, options: TraceOptions) => {
      const { sequence, number, correlationId } = options;
      const isOne = [text, number, correlationId].filter((given) => given !== undefined).length === 1;
      if (isOne && correlationId !== undefined) {
        const { traceRequest } = await import('./trace-run.ts');
        return await traceRequest(context, correlationId, options);
      }
      if (isOne && number !== undefined && sequence !== undefined) {
        const { traceNumber } = await import('./trace-run.ts');
        return await traceNumber(context, { ...options, sequence, number });
      }
      if (!isOne || text === undefined || sequence !== undefined) {
        return command.error('error: give an ID, or --sequence and --number, or --correlation-id');
      }
      const { runTrace } = await import('./trace-run.ts');
      await runTrace(context, text, options, command);
    });
}

function requestId(text: string): Buffer {
  try {
    return idOfText(text);
  } catch (error) {
    if (error instanceof IdallocError) throw new InvalidArgumentError('must have 1 to 256 bytes.');
    throw error;
  }
}
