import { Argument, Command, type Option } from 'commander';
import type { CliContext } from './context.ts';
import { HELP_OPTION } from './usage.ts';

const EXAMPLES = `
The script completes commands, options and the values that an option has a choice of; names of sequences too, which it asks etcd for,
with the variables of the shell.

Examples:
  eval "$(idalloc completion bash)"        in ~/.bashrc
  eval "$(idalloc completion zsh)"         in ~/.zshrc, after compinit
  idalloc completion fish >~/.config/fish/completions/idalloc.fish`;

/**
 * `idalloc completion`: prints a script for a shell. It describes the whole program, which its parent must have loaded.
 */
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

export type Shell = 'bash' | 'zsh' | 'fish';

/** The script for each shell, for all commands below a program. */
export const SHELLS: Readonly<Record<Shell, (program: Command) => string>> = { bash, zsh, fish };

/** A word that can come next, and what it means. */
interface Word {
  readonly word: string;
  readonly meaning: string;
}

/** What can follow a command. */
interface Level {
  /** The words of the command without the program's name, as in `leases evict`. */
  readonly path: string;
  readonly commands: readonly Word[];
  readonly options: readonly Word[];
  /** The options that take a value, each with its choices: none if it takes any text. */
  readonly values: readonly {
    readonly option: string;
    readonly choices: readonly string[];
    readonly isSequence: boolean;
  }[];
  /** The values that its arguments have a choice of. */
  readonly choices: readonly string[];
  /** Whether its argument is the name of a sequence that there is. */
  readonly takesSequence: boolean;
}

const HELP: Word = { word: '--help', meaning: HELP_OPTION.meaning };

/** The names of sequences, one a line, for all shells; nothing while etcd does not answer. */
const SEQUENCES = 'idalloc sequence list --names 2>/dev/null';

function levelsOf(program: Command): Level[] {
  const levels = (command: Command, path: readonly string[]): Level[] => [
    levelOf(command, path.join(' ')),
    ...command.commands.flatMap((child) => levels(child, [...path, child.name()])),
  ];
  return levels(program, []);
}

function levelOf(command: Command, path: string): Level {
  const options = command.options.filter(({ hidden }) => !hidden);
  const takesValue = ({ required, optional }: Option) => required || optional;
  return {
    path,
    commands: command.commands.map((child) => ({ word: child.name(), meaning: child.description() })),
    options: [...options.map((option) => ({ word: nameOf(option), meaning: option.description })), HELP],
    values: options.filter(takesValue).map((option) => ({
      option: nameOf(option),
      choices: option.argChoices ?? [],
      isSequence: nameOf(option) === '--sequence',
    })),
    choices: command.registeredArguments.flatMap(({ argChoices }: Argument) => argChoices ?? []),
    takesSequence: path.startsWith('sequence ') && path !== 'sequence create' && command.registeredArguments.length > 0,
  };
}

function nameOf({ long, short }: Option): string {
  return long ?? short ?? '';
}

/** The paths of all commands but the program, as patterns of a shell's `case`. */
function pathPattern(levels: readonly Level[]): string {
  return levels.flatMap(({ path }) => (path === '' ? [] : [quoted(path)])).join(' | ');
}

/** In single quotes, for bash and zsh. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** In single quotes, for fish. */
function fishQuoted(text: string): string {
  return `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`;
}

/** What bash and zsh do where the value of an option comes next, as cases of a shell's `case`. */
function valueCases(levels: readonly Level[], action: (value: Level['values'][number]) => string): string {
  const cases = levels.flatMap(({ path, values }) =>
    values.map((value) => `    ${quoted(`${path} ${value.option}`)})${action(value)} return ;;`),
  );
  return cases.join('\n');
}

function bash(program: Command): string {
  const levels = levelsOf(program);
  const values = valueCases(levels, ({ choices, isSequence }) => {
    const list = isSequence ? `"$(${SEQUENCES})"` : quoted(choices.join(' '));
    return choices.length === 0 && !isSequence ? '' : ` COMPREPLY=($(compgen -W ${list} -- "$word"));`;
  });
  const words = levels.map(({ path, commands, options, choices, takesSequence }) => {
    const all = [...commands.map(({ word }) => word), ...choices, ...options.map(({ word }) => word)];
    const names = takesSequence ? ` [[ "$word" == -* ]] || words+=" $(${SEQUENCES})"` : '';
    return `    ${quoted(path)}) words=${quoted(all.join(' '))};${names} ;;`;
  });
  return `# idalloc for bash: eval "$(idalloc completion bash)"
_idalloc() {
  local word="\${COMP_WORDS[COMP_CWORD]}" at='' words='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "\${at:+$at }\${COMP_WORDS[i]}" in
    ${pathPattern(levels)}) at="\${at:+$at }\${COMP_WORDS[i]}" ;;
    esac
  done
  case "$at \${COMP_WORDS[COMP_CWORD - 1]}" in
${values}
  esac
  case "$at" in
${words.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _idalloc idalloc
`;
}

function zsh(program: Command): string {
  const levels = levelsOf(program);
  const described = (words: readonly Word[]) =>
    words.map(({ word, meaning }) => quoted(`${word.replaceAll(':', '\\:')}:${meaning}`)).join(' ');
  const values = valueCases(levels, ({ choices, isSequence }) => {
    const list = isSequence ? `$(${SEQUENCES})` : choices.map(quoted).join(' ');
    return list === '' ? ' _default;' : ` compadd -- ${list};`;
  });
  const words = levels.map(({ path, commands, options, choices, takesSequence }) => {
    const first = described([...commands, ...choices.map((word) => ({ word, meaning: word }))]);
    const names = takesSequence ? `$(${SEQUENCES})` : '';
    return `    ${quoted(path)}) commands=(${first}${names}); options=(${described(options)}) ;;`;
  });
  return `#compdef idalloc
# idalloc for zsh: eval "$(idalloc completion zsh)" after compinit, or a file _idalloc in a directory of fpath
_idalloc() {
  local at='' i
  local -a commands options
  for ((i = 2; i < CURRENT; i++)); do
    case "\${at:+$at }\${words[i]}" in
    ${pathPattern(levels)}) at="\${at:+$at }\${words[i]}" ;;
    esac
  done
  case "$at \${words[CURRENT - 1]}" in
${values}
  esac
  case "$at" in
${words.join('\n')}
  esac
  (( \${#commands} )) && _describe command commands
  _describe -o option options
}
if [ "\${funcstack[1]}" = _idalloc ]; then _idalloc "$@"; else compdef _idalloc idalloc; fi
`;
}

function fish(program: Command): string {
  const levels = levelsOf(program);
  const lines = levels.flatMap(({ path, commands, options, values, choices, takesSequence }) => {
    const here = `complete -c idalloc -n ${fishQuoted(`__idalloc_at ${path}`.trim())}`;
    const taken = (word: string) => {
      const value = values.find(({ option }) => option === word);
      if (value === undefined) return '';
      if (value.isSequence) return ` -x -a ${fishQuoted(`(${SEQUENCES})`)}`;
      return value.choices.length === 0 ? ' -r -F' : ` -x -a ${fishQuoted(value.choices.join(' '))}`;
    };
    return [
      ...commands.map(({ word, meaning }) => `${here} -a ${fishQuoted(word)} -d ${fishQuoted(meaning)}`),
      ...choices.map((word) => `${here} -a ${fishQuoted(word)}`),
      ...(takesSequence ? [`${here} -a ${fishQuoted(`(${SEQUENCES})`)}`] : []),
      ...options.map(
        ({ word, meaning }) =>
          `${here} -l ${fishQuoted(word.replace(/^-+/, ''))}${taken(word)} -d ${fishQuoted(meaning)}`,
      ),
    ];
  });
  const paths = levels.flatMap(({ path }) => (path === '' ? [] : [fishQuoted(path)]));
  return `# idalloc for fish: idalloc completion fish >~/.config/fish/completions/idalloc.fish
function __idalloc_at
    set -l at
    for word in (commandline -opc)[2..]
        if contains -- (string join ' ' -- $at $word) ${paths.join(' ')}
            set at $at $word
        end
    end
    test "$at" = "$argv"
end
complete -c idalloc -f
${lines.join('\n')}
`;
}
