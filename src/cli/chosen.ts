import type { Command } from 'commander';
import type { FormName, FormSettings } from '../codec/form/form.ts';
import { FORMS, openForm } from '../codec/form/forms.ts';
import type { FormKeys } from '../codec/form/keys.ts';
import { loadFormKeys } from '../config/config.ts';
import type { Environment } from '../config/parse.ts';
import { LAYOUT_VARIABLE_OF, layoutChoiceOf } from '../config/worker-checks.ts';
import { CUSTOM, type Layout } from '../core/layout.ts';
import { chooseLayout, type LayoutChoice } from '../core/layout-choice.ts';
import type { PresetProblem } from '../core/presets.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { FormFlags, LayoutOptions } from './options.ts';

const OPTION_OF = {
  name: '--layout',
  fields: '--fields',
  tickMs: '--tick-ms',
  epochMs: '--epoch-ms',
  sequenceStartBelow: '--sequence-start-below',
  workerBits: '--worker-bits',
  sequenceBits: '--sequence-bits',
} as const satisfies Record<PresetProblem['property'], string>;
const PARTS = ['fields', 'tickMs', 'epochMs', 'sequenceStartBelow', 'workerBits', 'sequenceBits'] as const;

/**
 * The layout that the options and the environment (LAYOUT and LAYOUT_*) choose. LAYOUT_* apply only to the layout that
 * LAYOUT names. Without an epoch it begins at `epochMs`, if that is given. An invalid layout is a usage error that
 * names each option or variable at fault.
 */
export function chosenLayout(options: LayoutOptions, env: Environment, command: Command, epochMs?: number): Layout {
  const configured = env.LAYOUT === undefined || env.LAYOUT === '' ? 'default' : env.LAYOUT;
  const named = options.layout ?? (options.fields === undefined ? undefined : CUSTOM);
  const isConfigured = options.fields === undefined && (named ?? configured) === configured;
  const own: Partial<LayoutChoice> = isConfigured ? configuredChoice(env, command) : {};
  const choice: Record<string, unknown> = { ...own, name: named ?? own.name };
  for (const part of PARTS) choice[part] = options[part] ?? own[part];
  const chosen = withDefaultEpoch(choice as unknown as LayoutChoice, epochMs);
  if ('layout' in chosen) return chosen.layout;
  const problems = chosen.problems.map(({ property, problem }) => {
    const isVariable = property !== 'name' && options[property] === undefined && own[property] !== undefined;
    return `${isVariable ? LAYOUT_VARIABLE_OF[property] : OPTION_OF[property]} ${problem}`;
  });
  return command.error(`error: layout '${named ?? own.name}': ${problems.join('; ')}`);
}

/** The default epoch applies only if an epoch is all that the layout lacks. */
function withDefaultEpoch(choice: LayoutChoice, epochMs: number | undefined): ReturnType<typeof chooseLayout> {
  const chosen = chooseLayout(choice);
  if ('layout' in chosen || epochMs === undefined || choice.epochMs !== undefined) return chosen;
  return chooseLayout({ ...choice, epochMs });
}

function configuredChoice(env: Environment, command: Command): LayoutChoice {
  try {
    return layoutChoiceOf(env);
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    return command.error(`error: ${describeError(error)}\nsee --layout`);
  }
}

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

/**
 * Returns what `work` returns. Text, IDs and prefixes that a form rejects are usage errors; with a hint for it, so is
 * what throws RangeError, since the layout has no room for it.
 */
export function orUsageError<T>(command: Command, work: () => T, hint?: string): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof RangeError && hint !== undefined) return command.error(`error: ${error.message}${hint}`);
    if (!(error instanceof IdallocError) || error.code !== 'INVALID_ID') throw error;
    return command.error(`error: ${error.message}`);
  }
}

export const SEE_LAYOUT = '; see --layout';
