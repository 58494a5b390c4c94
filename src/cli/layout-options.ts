import { type Command, InvalidArgumentError, Option } from 'commander';
import { LAYOUT_VARIABLE_OF, layoutChoiceOf } from '../config/layout-checks.ts';
import type { Environment } from '../config/parse.ts';
import type { FieldSpec, Layout } from '../core/layout.ts';
import { chooseLayout, LAYOUT_NAMES, type LayoutChoice, type LayoutName } from '../core/layout-choice.ts';
import { CUSTOM, FIELDS_HELP, parseFields } from '../core/layout-text.ts';
import type { PresetProblem } from '../core/presets.ts';
import { describeError, IdallocError } from '../errors.ts';
import { wholeNumber } from './numbers.ts';

/** The options that choose a layout. */
export interface LayoutOptions {
  readonly layout?: LayoutName;
  readonly fields?: readonly FieldSpec[];
  readonly tickMs?: number;
  readonly epochMs?: number;
  readonly sequenceStartBelow?: number;
  readonly workerBits?: number;
  readonly sequenceBits?: number;
}

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

/** Adds the options that choose a layout. */
export function withLayoutOptions(command: Command): Command {
  const option = new Option('--layout <name>', "layout of the IDs (default: LAYOUT's, else default)");
  return withFieldOptions(command.addOption(option.choices(LAYOUT_NAMES)));
}

/** The same without --layout, for a command that takes the name as an argument. */
export function withFieldOptions(command: Command): Command {
  return command
    .option('--fields <list>', `a custom layout: ${FIELDS_HELP}`, readFields)
    .option('--tick-ms <ms>', 'custom only: length of a tick (default: 1)', wholeNumber(1, 1_000))
    .option('--epoch-ms <ms>', "the layout's epoch, in ms since 1970, if it is not the published one", parseEpoch)
    .option(
      '--sequence-start-below <n>',
      "custom only: each tick's first sequence number is random below this (default: 1, always 0)",
      wholeNumber(1, 2 ** 32),
    )
    .option('--worker-bits <n>', 'bwmarrin only: bits of the node', wholeNumber(0, 99))
    .option('--sequence-bits <n>', 'bwmarrin only: bits of the step', wholeNumber(0, 99));
}

/**
 * The layout that the options and the environment (LAYOUT and LAYOUT_*) choose. LAYOUT_* apply only to the layout that LAYOUT
 * names. Without an epoch it begins at `epochMs`, if that is given. An invalid layout is a usage error that names each
 * option or variable at fault.
 */
export function layoutOf(options: LayoutOptions, env: Environment, command: Command, epochMs?: number): Layout {
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

function readFields(text: string): readonly FieldSpec[] {
  try {
    return parseFields(text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new InvalidArgumentError(`It ${error.message}.`);
  }
}

function parseEpoch(text: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw new InvalidArgumentError('must be whole milliseconds since 1970.');
  return Number(text);
}
