import type { Command, Option } from 'commander';
import { repeated } from './options.ts';

/** commander's own entries of each help, in the words of the others. */
export const HELP_OPTION = { flags: '-h, --help', meaning: 'show this help' } as const;
const HELP_COMMAND = { form: 'help [command]', meaning: 'show the help of a command' } as const;

/** Replaces the texts with which commander describes its own option and command. */
export function describeHelp(command: Command): void {
  command.helpOption(HELP_OPTION.flags, HELP_OPTION.meaning);
  if (command.commands.length > 0) command.helpCommand(HELP_COMMAND.form, HELP_COMMAND.meaning);
}

/** What commander says about a wrong command line, and the same with what is wrong first, in one line. */
const WORDINGS: readonly (readonly [theirs: RegExp, ours: string])[] = [
  [/^option '(--[\w-]+) .*?' argument '(.*)' is invalid\. (.*?)\.?$/s, "$1 '$2' $3"],
  [/^command-argument value '(.*)' is invalid for argument '(.*?)'\. (.*?)\.?$/s, "<$2> '$1' $3"],
  [/ Allowed choices are (.*)$/, ' must be one of $1'],
  [/^option '(--[\w-]+) (.*)' argument missing$/, '$1 needs a value: $1 $2'],
  [/^required option '(.*)' not specified$/, '$1 is missing'],
  [/^missing required argument '(.*)'$/, "'PATH' needs <$1>"],
  [/^too many arguments.* Expected 0 arguments but got \d+: (.*)\.$/s, "'PATH' takes no arguments: $1"],
  [/^too many arguments.* Expected (\d+ arguments?) but got (\d+): (.*)\.$/s, "'PATH' takes $1, not $2: $3"],
  [/\n\(Did you mean (?:one of )?(.*)\?\)$/, '; did you mean $1?'],
];

/** Makes a command say what is wrong in these words, and refuse values that were hardly meant. */
export function makeStrict(command: Command): void {
  const say = command.error.bind(command);
  command.error = (text, options) => say(`error: ${reworded(command, text.replace(/^error: /, ''))}`, options);
  for (const option of command.options) if (option.required) requireOneValue(command, option);
}

function reworded(command: Command, text: string): string {
  const [, flag = ''] = /^unknown option '(--[\w-]+)=/.exec(text) ?? [];
  if (command.options.some(({ long }) => long === flag)) return `${flag} takes no value`;
  return WORDINGS.reduce((said, [theirs, ours]) => said.replace(theirs, ours.replace('PATH', pathOf(command))), text);
}

/** commander takes the last of several values, and an option as the value of the one before it. */
function requireOneValue(command: Command, option: Option): void {
  const { long, variadic, parseArg } = option;
  let before: string | undefined;
  command.on(`option:${option.name()}`, (value: string) => {
    if (command.options.some((other) => other.long === value)) {
      command.error(`error: ${long} needs a value, and ${value} is an option`);
    }
    if (!variadic && parseArg !== repeated && before !== undefined && before !== value) {
      command.error(`error: ${long} is given twice, as '${before}' and as '${value}'`);
    }
    before = value;
  });
}

/**
 * The words of a command line as commander takes them, with --help in place of a command 'help'. Where a word is no
 * command, commander would show the help of those above it, and succeed.
 */
export function checkedWords(command: Command, words: readonly string[]): readonly string[] {
  const [word, ...rest] = words;
  if (command.commands.length === 0 || word === undefined || word === '--') return words;
  if (word === 'help') return checkedWords(command, [...rest, '--help']);
  const child = command.commands.find((one) => one.name() === word);
  if (child !== undefined) return [word, ...checkedWords(child, rest)];
  const isRoot = command.parent === null;
  const options = command.options.flatMap(({ short, long }) => [short, long]);
  if (word === '-h' || word === '--help' || options.includes(word)) return words;
  if (!word.startsWith('-')) {
    if (isRoot) return [word]; // commander suggests the one that was meant
    const names = command.commands.map((one) => one.name()).join(', ');
    return command.error(`error: unknown command '${word}': '${pathOf(command)}' has ${names}`);
  }
  if (isRoot || options.length === 0) command.error(`error: '${pathOf(command)}' needs a command before ${word}`);
  return words;
}

/** A command with those that it belongs to, as it is typed. */
export function pathOf(command: Command): string {
  return command.parent === null ? command.name() : `${pathOf(command.parent)} ${command.name()}`;
}
