import { Command, InvalidArgumentError } from 'commander';
import { checkSequence } from '../../codec/request-checks.ts';
import { formatFault } from '../../codec/sequence-format.ts';
import { IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { type ConfirmFlags, type JsonFlag, wholeNumber } from '../options.ts';
import type { ChangeFlags, CreateFlags, ListFlags, RestartFlags } from './sequence-run.ts';

const MAX = Number.MAX_SAFE_INTEGER;
const NUMBER = wholeNumber(0, MAX);
const STEP = wholeNumber(1, 2 ** 31 - 1);
const FORMAT_HELP = "how readers write a number, such as 'INV-{number:6}' (default: plain digits)";
const NAME_HELP = '1 to 64 letters, digits, and . _ / -';

const HELP = `
A sequence gives out consecutive numbers without gaps or duplicates, through crashes, retries and replays. It lives in one partition
of the ledger; its name decides which. etcd holds how far it has gone as well, so that neither can lose that alone. An order is
written to etcd, then to the ledger, and needs the rights of an admin on both; workers follow it at once. If the command ends in
between, a worker completes the order. Use a name for each period, such as invoices/2027, created ahead.

Examples:
  idalloc sequence create invoices/2027 --format 'INV-{number:6}'
  idalloc sequence show invoices/2027
  idalloc request --sequence invoices/2027 --correlation-id order-4711`;

const CREATE_HELP = `
A name is created once: etcd and the ledger remember it. Only where both have lost their memory is a known name new again; then
--start must be above every number that was received.

Examples:
  idalloc sequence create tickets
  idalloc sequence create invoices/2027 --start 1000 --step 1 --max 999999 --format 'INV-{number:6}'
  idalloc sequence create tickets --start 48213`;

const LIST_HELP = `
It compares what the ledger shows with what etcd holds, and says what a difference means. Workers and orders settle all but a stopped
sequence, for which the exit code is 1.

Workers state each sequence that they serve again when a quarter of LEDGER_RETENTION_MS has passed. So only that much of each partition is
read, and some hours; all of it where no worker has run for two hours. --all always reads all: it also lists sequences that no worker
answers for, and those of workers with a longer LEDGER_RETENTION_MS than this command and the topic.

Examples:
  idalloc sequence list
  idalloc sequence list --all
  idalloc sequence list --json`;

const SHOW_HELP = `
'agree' means that the ledger shows all that etcd holds. Otherwise a line below says what differs, and who settles it; for a stopped
sequence, which only 'namespace rebuild' settles, the exit code is 1.

Examples:
  idalloc sequence show invoices/2027
  idalloc sequence show invoices/2027 --json`;

const RESTART_HELP = `
The numbers that are left out are a gap on purpose: it names them and asks, and the journal keeps them. A request that is decided between the
question and the order still gets the next of them.

Examples:
  idalloc sequence restart invoices/2027 --at 5000
  idalloc sequence restart invoices/2027 --at 5000 --yes --json`;

const REDEFINE_HELP = `
It takes effect for all numbers that are given out from then on.

Examples:
  idalloc sequence redefine invoices/2027 --max 9999999
  idalloc sequence redefine invoices/2027 --format 'RE-{number:7}'`;

const CLOSE_HELP = `
A closed sequence refuses new requests as SEQUENCE_CLOSED, for good; those that have numbers get them again.

Examples:
  idalloc sequence close invoices/2026
  idalloc sequence close invoices/2026 --yes --json`;

/** `idalloc sequence`: the named sequences of a pair of topics. */
export function sequenceCommand(context: CliContext): Command {
  const run = async () => await import('./sequence-run.ts');
  const create = new Command('create')
    .description('Create a sequence.')
    .argument('<name>', NAME_HELP, sequenceName)
    .option('--start <n>', 'the first number', NUMBER, 1)
    .option('--step <n>', 'the distance between neighbouring numbers (default: 1)', STEP)
    .option('--max <n>', 'the largest number (default: the largest possible, about 9 * 10^15)', NUMBER)
    .option('--format <text>', FORMAT_HELP, format)
    .option('--json', 'print one line of JSON, as show does')
    .addHelpText('after', CREATE_HELP)
    .action(async (name: string, flags: CreateFlags) => (await run()).createSequence(context, name, flags));
  const list = new Command('list')
    .description('List the sequences with their next numbers.')
    .option('--all', 'read all that the ledger has')
    .option('--names', 'print only the names that etcd remembers, one a line: it asks neither Kafka nor workers')
    .option(
      '--json',
      'print one line of JSON: {"sequences":[…],"since"}, each as show prints it; since is null with --all; with --names {"names"}',
    )
    .addHelpText('after', LIST_HELP)
    .action(async (flags: ListFlags) => {
      if (flags.names === true) return (await import('./sequence-names.ts')).listNames(context, flags.json);
      return (await run()).listSequences(context, flags);
    });
  const show = new Command('show')
    .description('Show a sequence with its next number.')
    .argument('<name>', NAME_HELP, sequenceName)
    .option(
      '--json',
      'print one line of JSON: {"sequence","partition","next","step","max","format","closed","edition","ledger_next","etcd_next","stated_at","pending","accord","note"}',
    )
    .addHelpText('after', SHOW_HELP)
    .action(async (name: string, flags: JsonFlag) => (await run()).showSequence(context, name, flags));
  const restart = new Command('restart')
    .description('Continue a sequence at a higher number, and leave out those before.')
    .argument('<name>', NAME_HELP, sequenceName)
    .requiredOption('--at <n>', 'the next number', NUMBER)
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON, as show does, with "left_out": {"from","to","count"} or null')
    .addHelpText('after', RESTART_HELP)
    .action(async (name: string, flags: RestartFlags) => (await run()).restartSequence(context, name, flags));
  const redefine = new Command('redefine')
    .description('Change the step, the largest number or the format of a sequence.')
    .argument('<name>', NAME_HELP, sequenceName)
    .option('--step <n>', 'the distance between neighbouring numbers', STEP)
    .option('--max <n>', 'the largest number', NUMBER)
    .option('--format <text>', FORMAT_HELP, format)
    .option('--json', 'print one line of JSON, as show does')
    .addHelpText('after', REDEFINE_HELP)
    .action(async (name: string, flags: ChangeFlags, command: Command) => {
      const isChange = [flags.step, flags.max, flags.format].some((value) => value !== undefined);
      if (!isChange) command.error('error: nothing to change: give --step, --max or --format');
      await (await run()).redefineSequence(context, name, flags);
    });
  const close = new Command('close')
    .description('Close a sequence: it gives out no more numbers.')
    .argument('<name>', NAME_HELP, sequenceName)
    .option('--yes', 'do not ask for confirmation')
    .option('--json', 'print one line of JSON, as show does')
    .addHelpText('after', CLOSE_HELP)
    .action(async (name: string, flags: ConfirmFlags) => (await run()).closeSequence(context, name, flags));
  const family = new Command('sequence').description(
    'Create, show and change named sequences, for numbers without gaps.',
  );
  for (const command of [create, list, show, restart, redefine, close]) family.addCommand(command);
  return family.addHelpText('after', HELP);
}

export function sequenceName(text: string): string {
  try {
    return checkSequence(text);
  } catch (error) {
    if (error instanceof IdallocError) throw new InvalidArgumentError(`is not a name: use ${NAME_HELP}.`);
    throw error;
  }
}

function format(text: string): string {
  const fault = formatFault(text);
  if (fault !== undefined) throw new InvalidArgumentError(`is not a format: ${fault}.`);
  if (text.length > 64) throw new InvalidArgumentError('has more than 64 characters.');
  return text;
}
