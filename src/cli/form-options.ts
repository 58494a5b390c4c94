import { type Command, Option } from 'commander';
import { FORM_NAMES, type FormName } from '../codec/form/form.ts';

/** The options for the form in which IDs are read or written. */
export interface FormFlags {
  readonly form?: FormName;
  readonly prefix?: string;
}

/** The texts that `readIdText` accepts, for the help of a command. */
export const ID_TEXTS = 'decimal, hexadecimal (16 digits, or after 0x), or in any other form';

/** Adds --form, or another option for the name of a form, and --prefix. */
export function withFormOptions(command: Command, meaning: string): Command {
  return command
    .addOption(formOption('--form <name>', meaning))
    .option('--prefix <text>', "prefix of the form 'prefixed', such as 'ord'");
}

/** An option that takes the name of a form. */
export function formOption(flags: string, meaning: string): Option {
  return new Option(flags, meaning).choices(FORM_NAMES);
}
