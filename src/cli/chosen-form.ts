import type { Command } from 'commander';
import type { FormName, FormSettings } from '../codec/form/form.ts';
import { FORMS, openForm } from '../codec/form/forms.ts';
import type { FormKeys } from '../codec/form/keys.ts';
import { loadFormKeys } from '../config/config.ts';
import type { Environment } from '../config/parse.ts';
import type { Layout } from '../core/layout.ts';
import { IdallocError } from '../errors.ts';
import type { FormFlags } from './form-options.ts';

/** The settings that forms need. FORM_KEY is read only when a form needs it. */
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

/** Writes IDs in a form; undefined without a form. Throws as openForm does. */
export function writerOf(form: FormName | undefined, settings: FormSettings): ((id: bigint) => string) | undefined {
  return form === undefined ? undefined : openForm(form, settings).format;
}

/** Checks a form as far as possible before the layout is known. Throws as openForm does. */
export function checkForm({ form, prefix }: FormFlags, env: Environment): void {
  if (form === undefined || FORMS[form].needs.includes('layout')) return;
  openForm(form, formSettings(undefined, { prefix }, env));
}

/** Returns what `work` returns. Text, IDs and prefixes that a form rejects are usage errors. */
export function orUsageError<T>(command: Command, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof IdallocError) || error.code !== 'INVALID_ID') throw error;
    return command.error(`error: ${error.message}`);
  }
}
