import type { Layout } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import type { FormKeys } from './keys.ts';

export type FormName =
  | 'decimal'
  | 'padded'
  | 'hex'
  | 'base62'
  | 'base32'
  | 'uuid7'
  | 'uuid4'
  | 'ulid'
  | 'ksuid'
  | 'objectid'
  | 'boundary'
  | 'simpleflake'
  | 'prefixed'
  | 'number';

/** What a form may need besides the ID; `needs` of the form says which. */
export interface FormSettings {
  /** The layout that made the ID. */
  readonly layout?: Layout | undefined;
  readonly keys?: FormKeys | undefined;
  /** What stands before the underscore of a prefixed ID. */
  readonly prefix?: string | undefined;
}

/**
 * A way to write an ID: pure, and reversible. Different IDs of one layout have different texts, and `parse` returns the
 * ID of each text that `format` wrote.
 */
export interface Form {
  readonly name: FormName;
  /** What rises as the IDs do: the texts by their character codes, only the numbers that they stand for, or neither. */
  readonly sorts: 'text' | 'number' | 'no';
  readonly needs: readonly (keyof FormSettings)[];
  /** What every text of the form looks like, and few others. */
  readonly shape: RegExp;
  /**
   * Bits of a text that the ID does not fill, rounded down. `parse` compares them, so that one in 2^freeBits of the texts
   * of this shape is taken for an ID. Negative where the form can't hold the layout's IDs.
   */
  freeBits(layout: Layout): number;
  /**
   * The two directions under these settings.
   *
   * @throws IdallocError CONFIG_INVALID where a key is missing; INVALID_ID where another setting is missing or the form can't
   * hold the layout's IDs.
   */
  open(settings: FormSettings): OpenForm;
}

/** Both throw IdallocError INVALID_ID, which names the form and the reason. */
export interface OpenForm {
  format(id: bigint): string;
  parse(text: string): bigint;
}

export const ID_BITS = 63;
const MAX_ID = 2n ** BigInt(ID_BITS) - 1n;
const SHOWN = 50;

/** True for 0..2^63-1. */
export function isId(value: bigint): boolean {
  return value >= 0n && value <= MAX_ID;
}

/** The ID itself. Throws INVALID_ID for a number, and for what is not in 0..2^63-1. */
export function requireId(id: bigint): bigint {
  if (typeof id !== 'bigint') throw notText(id);
  if (isId(id)) return id;
  throw new IdallocError('INVALID_ID', `${id} is no ID: it must be in 0..${MAX_ID}`);
}

/** The text itself. Throws INVALID_ID for anything else. */
export function requireText(text: string): string {
  if (typeof text !== 'string') throw notText(text);
  return text;
}

/** A number above 2^53 has lost its last digits before it gets here, so not even a small one is taken. */
function notText(value: unknown): IdallocError {
  const hint = typeof value === 'number' ? ': JavaScript numbers lose digits above 2^53, so keep IDs as strings' : '';
  return new IdallocError('INVALID_ID', `an ID is a bigint or a text, not a ${typeof value}${hint}`);
}

/** The refusal of a text. */
export function refusedText(form: FormName, text: string, reason: string): IdallocError {
  const shown = JSON.stringify(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text);
  return new IdallocError('INVALID_ID', `${shown} is not an ID in ${form}: ${reason}`);
}

/** The refusal of an ID, or of all IDs of a layout. */
export function refusedId(form: FormName, reason: string): IdallocError {
  return new IdallocError('INVALID_ID', `form ${form} can't hold this ID: ${reason}`);
}

/** The layout of the settings. Throws INVALID_ID without one. */
export function layoutFor(form: FormName, { layout }: FormSettings): Layout {
  if (layout !== undefined) return layout;
  throw new IdallocError('INVALID_ID', `form ${form} carries the time of the ID, so it needs the ID's layout`);
}

/** The keys of the settings. Throws CONFIG_INVALID without any. */
export function keysFor(form: FormName, { keys }: FormSettings): FormKeys {
  if (keys !== undefined) return keys;
  throw new IdallocError(
    'CONFIG_INVALID',
    `form ${form} needs a key: set FORM_KEY or FORM_KEY_FILE (in the client, the option keys)`,
  );
}
