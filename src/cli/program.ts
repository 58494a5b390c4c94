import { Command, CommanderError } from 'commander';
import { describeError, IdallocError } from '../errors.ts';
import { auditCommand } from './audit/audit.ts';
import { type CliContext, EXIT, EXIT_HELP, exitCodeOf } from './context.ts';
import { deadLettersCommand } from './dead-letters/dead-letters.ts';
import { decodeCommand } from './decode.ts';
import { doctorCommand } from './doctor/doctor.ts';
import { layoutCommand } from './layout.ts';
import { leasesCommand } from './leases.ts';
import { namespaceCommand } from './namespace/namespace.ts';
import { rangeCommand } from './range.ts';
import { replayCommand } from './replay/replay.ts';
import { requestCommand } from './request.ts';
import { message, visible } from './table.ts';
import { topicsCommand } from './topics/topics.ts';
import { traceCommand } from './trace/trace.ts';
import { workerCommand } from './worker.ts';

/**
 * Runs one command line (without the names of node and script) and returns the exit code. An IdallocError is printed
 * in one line; any other error is a bug and is rethrown.
 */
export async function runCli(args: readonly string[], version: string, around: CliContext): Promise<number> {
  const context = guarded(around);
  try {
    await program(version, context).parseAsync(args, { from: 'user' });
    return EXIT.ok;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    if (!(error instanceof IdallocError)) throw error;
    context.err(message(describeError(error)));
    return exitCodeOf(error);
  }
}

/** Text from records and servers can't control the terminal, or hide on it. */
function guarded(context: CliContext): CliContext {
  const { out, err } = context;
  return { ...context, out: (text) => out(visible(text)), err: (text) => err(visible(text)) };
}

/** All commands with their options; the reference page of the command line is generated from it as well. */
export function program(version: string, context: CliContext): Command {
  const root = new Command('idalloc')
    .description('Allocates 64-bit, time-ordered IDs in response to requests on a Kafka topic.')
    .version(version)
    .enablePositionalOptions()
    .addHelpText('after', EXIT_HELP);
  for (const command of [
    workerCommand,
    requestCommand,
    decodeCommand,
    rangeCommand,
    layoutCommand,
    auditCommand,
    traceCommand,
    replayCommand,
    leasesCommand,
    deadLettersCommand,
    namespaceCommand,
    topicsCommand,
    doctorCommand,
  ]) {
    root.addCommand(command(context));
  }
  prepare(root, context);
  return root;
}

/** commander passes settings on only to subcommands that it creates itself. */
function prepare(command: Command, context: CliContext): void {
  command.exitOverride().showHelpAfterError(`(try '${pathOf(command)} --help')`);
  const outputError = (text: string) => context.err(message(text));
  command.configureOutput({ writeOut: context.out, writeErr: context.err, outputError });
  for (const child of command.commands) prepare(child, context);
}

function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}
