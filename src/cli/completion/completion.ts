import { Argument, Command } from 'commander';
import type { CliContext } from '../context.ts';
import { SHELLS, type Shell } from './scripts.ts';

const EXAMPLES = `
The script completes commands, options and the values that an option has a choice of.

Examples:
  eval "$(idalloc completion bash)"        in ~/.bashrc
  eval "$(idalloc completion zsh)"         in ~/.zshrc, after compinit
  idalloc completion fish >~/.config/fish/completions/idalloc.fish`;

/** `idalloc completion`: prints a script for a shell. It describes the whole program, which its parent must have loaded. */
export function completionCommand({ out }: CliContext): Command {
  const command = new Command('completion')
    .description('Print a script by which a shell completes commands and options.')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SHELLS)))
    .addHelpText('after', EXAMPLES)
    .action((shell: Shell) => {
      if (command.parent === null) throw new Error('the command has no program to describe');
      out(SHELLS[shell](command.parent));
    });
  return command;
}
