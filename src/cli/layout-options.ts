import { type Command, InvalidArgumentError, Option } from 'commander';
import { FIELDS_HELP, type FieldSpec, parseFields } from '../core/layout.ts';
import { LAYOUT_NAMES, type LayoutName } from '../core/layout-choice.ts';
import { wholeNumber } from './option-values.ts';

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

/** Adds the options that choose a layout. */
export function withLayoutOptions(command: Command): Command {
  const option = new Option('--layout <name>', "layout of the IDs (default: LAYOUT's, else default)");
  return withFieldOptions(command.addOption(option.choices(LAYOUT_NAMES)));
}

/** Adds the same without --layout, for a command that takes the name as an argument. */
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
