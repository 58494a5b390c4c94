import { Command, CommanderError } from 'commander';
import { describeError, IdallocError } from '../errors.ts';
import { type CliContext, EXIT, EXIT_HELP, exitCodeOf } from './context.ts';
import { jsonLine, message, wrapped } from './output.ts';
import { terminalText } from './terminal.ts';
import { checkedWords, describeHelp, makeStrict, pathOf } from './usage.ts';

/**
 * The commands, in the order of the help. The file of a command has its options and help texts. It is loaded when a
 * command line needs it, and loads what does the work when the command runs: a start costs only what it uses.
 */
const COMMANDS: Readonly<Record<string, () => Promise<(context: CliContext) => Command>>> = {
  worker: async () => (await import('./worker.ts')).workerCommand,
  request: async () => (await import('./request.ts')).requestCommand,
  decode: async () => (await import('./decode.ts')).decodeCommand,
  range: async () => (await import('./range.ts')).rangeCommand,
  layout: async () => (await import('./layout.ts')).layoutCommand,
  audit: async () => (await import('./audit/audit.ts')).auditCommand,
  sequence: async () => (await import('./sequence/sequence.ts')).sequenceCommand,
  trace: async () => (await import('./trace/trace.ts')).traceCommand,
  replay: async () => (await import('./replay/replay.ts')).replayCommand,
  journal: async () => (await import('./journal/journal.ts')).journalCommand,
  leases: async () => (await import('./leases.ts')).leasesCommand,
  deadletters: async () => (await import('./dead-letters/dead-letters.ts')).deadLettersCommand,
  namespace: async () => (await import('./namespace/namespace.ts')).namespaceCommand,
  topics: async () => (await import('./topics/topics.ts')).topicsCommand,
  status: async () => (await import('./status/status.ts')).statusCommand,
  doctor: async () => (await import('./doctor/doctor.ts')).doctorCommand,
  bundle: async () => (await import('./bundle/bundle.ts')).bundleCommand,
  completion: async () => (await import('./completion.ts')).completionCommand,
};

/** This command describes all others, so that it needs all of them. */
const NEEDS_ALL = 'completion';
/** Asked for these, the program needs no command. */
const VERSION_FLAGS = ['-V', '--version'];

/**
 * Runs one command line (without the names of node and script) and returns the exit code. An IdallocError is printed
 * in one line, with --json on stdout as well; any other error is a bug and is rethrown.
 */
export async function runCli(args: readonly string[], around: CliContext): Promise<number> {
  const context = guarded(around);
  try {
    const root = await program(context, args[0]);
    await root.parseAsync(checkedWords(root, args), { from: 'user' });
    return EXIT.ok;
  } catch (error) {
    const isForPrograms = args.includes('--json');
    if (error instanceof CommanderError) {
      if (error.exitCode === 0) return EXIT.ok;
      const why = error.message.replace(/^error: /, '');
      if (isForPrograms) context.out(jsonLine({ error: { code: 'USAGE', message: why } }));
      return EXIT.usage;
    }
    if (!(error instanceof IdallocError)) throw error;
    const { code, message: why } = error;
    if (isForPrograms) context.out(jsonLine({ error: { code, message: why } }));
    context.err(message(describeError(error)));
    return exitCodeOf(error);
  }
}

/** Text from records and servers can't control the terminal, or hide on it. */
function guarded(context: CliContext): CliContext {
  const { out, err, ask } = context;
  return {
    ...context,
    out: (text) => out(terminalText(text)),
    err: (text) => err(terminalText(text)),
    ask: (question) => ask(terminalText(question)),
  };
}

/**
 * The command line's commands with their options; the reference page of the command line is generated from it as well.
 * If `first`, the first argument, names a command or asks for the version, nothing else is loaded.
 */
export async function program(context: CliContext, first = ''): Promise<Command> {
  const root = new Command('idalloc')
    .description('Allocates 64-bit, time-ordered IDs in response to requests on a Kafka topic.')
    .version(context.version, VERSION_FLAGS.join(', '), 'print the version')
    .enablePositionalOptions()
    .addHelpText('after', EXIT_HELP);
  const needsNoOther = (Object.hasOwn(COMMANDS, first) && first !== NEEDS_ALL) || VERSION_FLAGS.includes(first);
  const wanted = Object.entries(COMMANDS).filter(([name]) => !needsNoOther || name === first);
  const loaded = await Promise.all(wanted.map(([, load]) => load()));
  for (const command of loaded) root.addCommand(command(context));
  prepare(root, context);
  return root;
}

/** Longer lines are hard to read, however wide the terminal is. */
const MOST_COLUMNS = 120;
/** Where there is no terminal. */
const USUAL_COLUMNS = 80;

/**
 * commander passes settings on only to subcommands that it creates itself. It fits its own part of a help to the
 * terminal, but not the texts that are added to it.
 */
function prepare(command: Command, context: CliContext): void {
  command.exitOverride().showHelpAfterError(`(try '${pathOf(command)} --help')`);
  makeStrict(command);
  describeHelp(command);
  const columns = (isTerminal: boolean) =>
    isTerminal && context.terminal.columns !== undefined ? Math.min(context.terminal.columns, MOST_COLUMNS) : undefined;
  command.configureOutput({
    writeOut: (text) => {
      const width = columns(context.terminal.output);
      context.out(width === undefined ? text : wrapped(text, width));
    },
    writeErr: context.err,
    outputError: (text) => context.err(message(text)),
    getOutHelpWidth: () => columns(context.terminal.output) ?? USUAL_COLUMNS,
    getErrHelpWidth: () => columns(context.terminal.errors) ?? USUAL_COLUMNS,
  });
  for (const child of command.commands) prepare(child, context);
}
