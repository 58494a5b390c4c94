import { type Command, InvalidArgumentError, Option } from 'commander';
import { FORM_NAMES, type FormName } from '../codec/form/form.ts';
import { FIELDS_HELP, type FieldSpec, parseFields } from '../core/layout.ts';
import { LAYOUT_NAMES, type LayoutName } from '../core/layout-choice.ts';

/** The flags of a command that prints for programs, too; and of one that asks before it changes something. */
export interface JsonFlag {
  readonly json?: true;
}
export interface ConfirmFlags extends JsonFlag {
  readonly yes?: true;
}

/** Creates an option parser for whole numbers from `low` to `high`. */
export function wholeNumber(low: number, high: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= low && value <= high) return value;
    throw new InvalidArgumentError(`must be a whole number from ${low} to ${high}.`);
  };
}

/** The parser of an option that can be given more than once. */
export function repeated(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

const UNITS_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const AGO = /^([0-9]{1,9})([smhd])$/;
/** A time without a zone would mean another moment on each machine. */
const ISO = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2}))?$/;

export const TIME_HELP = 'ISO 8601 with its zone, a date (UTC), ms since 1970, now, or an age: 90s, 30m, 2h, 7d';

/** Creates an option parser for times, in wall milliseconds since 1970. */
export function timeReader(now: () => number): (text: string) => number {
  return (text) => {
    const [, amount, unit] = AGO.exec(text) ?? [];
    if (amount !== undefined && unit !== undefined) return now() - Number(amount) * (UNITS_MS[unit] ?? 0);
    if (text === 'now') return now();
    if (/^[0-9]{5,16}$/.test(text)) return Number(text);
    const parsed = ISO.test(text) && isDay(text.slice(0, 10)) ? Date.parse(text) : Number.NaN;
    if (Number.isNaN(parsed)) throw new InvalidArgumentError(`must be ${TIME_HELP}.`);
    return parsed;
  };
}

const AHEAD = /^in ([0-9]{1,9}) ?(s|m|h|d|seconds?|minutes?|hours?|days?)$/;
export const FUTURE_HELP =
  'in 30m, in 2 hours, or a time that is yet to come: ISO 8601 with its zone, or ms since 1970';

/** Creates an option parser for times that are yet to come, in wall milliseconds since 1970. */
export function futureReader(now: () => number): (text: string) => number {
  const read = timeReader(now);
  return (text) => {
    const [, amount, unit] = AHEAD.exec(text) ?? [];
    if (amount !== undefined && unit !== undefined) return now() + Number(amount) * (UNITS_MS[unit.charAt(0)] ?? 0);
    if (AGO.test(text)) throw new InvalidArgumentError(`would be in the past: write 'in ${text}'.`);
    try {
      return read(text);
    } catch {
      throw new InvalidArgumentError(`must be ${FUTURE_HELP}.`);
    }
  };
}

/** Date.parse accepts 30 February as 2 March. */
function isDay(day: string): boolean {
  const start = Date.parse(day);
  return !Number.isNaN(start) && new Date(start).toISOString().startsWith(day);
}

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
    throw new InvalidArgumentError(`${error.message}.`);
  }
}

function parseEpoch(text: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw new InvalidArgumentError('must be whole milliseconds since 1970.');
  return Number(text);
}

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
