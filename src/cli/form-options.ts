import { type Command, Option } from 'commander';
import type { FormName, FormSettings } from '../codec/form/form.ts';
import { FORM_NAMES, FORMS, openForm } from '../codec/form/forms.ts';
import type { FormKeys } from '../codec/form/keys.ts';
import { loadFormKeys } from '../config/config.ts';
import type { Environment } from '../config/parse.ts';
import type { Layout } from '../core/layout.ts';
import { IdallocError } from '../errors.ts';

/** What a command line says of the form that its IDs have, or are to have. */
export interface FormOptions {
  readonly form?: FormName;
  readonly prefix?: string;
}

/** Adds --form, or another option for the name of a form, and --prefix. */
export function withFormOptions(command: Command, meaning: string): Command {
  return command
    .addOption(formOption('--form <name>', meaning))
    .option('--prefix <text>', "of the form prefixed, such as 'ord'");
}

/** An option that takes the name of a form. */
export function formOption(flags: string, meaning: string): Option {
  return new Option(flags, meaning).choices(FORM_NAMES);
}

/** What forms need besides an ID. FORM_KEY is read only where a form needs it. */
export function formSettings(
  layout: Layout | undefined,
  { prefix }: { readonly prefix?: string | undefined },
  env: Environment,
): FormSettings {
  let loaded: { readonly keys: FormKeys | undefined } | undefined;
  return {
    layout,
    prefix,
    get keys() {
      loaded ??= { keys: loadFormKeys(env) };
      return loaded.keys;
    },
  };
}

/** How IDs are written in a form; undefined without one. Throws as openForm does. */
export function writerOf(form: FormName | undefined, settings: FormSettings): ((id: bigint) => string) | undefined {
  return form === undefined ? undefined : openForm(form, settings).format;
}

/** Throws as openForm does for what can be said of a form before the layout is known. */
export function checkForm({ form, prefix }: FormOptions, env: Environment): void {
  if (form === undefined || FORMS[form].needs.includes('layout')) return;
  openForm(form, formSettings(undefined, { prefix }, env));
}

/** What `work` returns. A text, an ID or a prefix that a form refuses is a wrong use of the command line. */
export function orUsageError<T>(command: Command, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof IdallocError) || error.code !== 'INVALID_ID') throw error;
    return command.error(`error: ${error.message}`);
  }
}
