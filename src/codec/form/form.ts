import type { Layout } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import type { FormKeys } from './keys.ts';

/** The names of all forms, in the order of the help text. */
export const FORM_NAMES = [
  'decimal',
  'padded',
  'hex',
  'base62',
  'base32',
  'uuid7',
  'uuid4',
  'ulid',
  'ksuid',
  'objectid',
  'boundary',
  'simpleflake',
  'prefixed',
  'number',
] as const;
export type FormName = (typeof FORM_NAMES)[number];

/** Settings of the forms; `Form.needs` lists those that a form requires. */
export interface FormSettings {
  /** The ID's layout. */
  readonly layout?: Layout | undefined;
  readonly keys?: FormKeys | undefined;
  /** The text before the underscore of a prefixed ID. */
  readonly prefix?: string | undefined;
}

/**
 * A pure, reversible way to write an ID. Different IDs of one layout have different texts, and `parse` returns the ID
 * of each text that `format` wrote.
 */
export interface Form {
  readonly name: FormName;
  /** Whether texts sort like the IDs: by character codes, only as numbers, or not at all. */
  readonly sorts: 'text' | 'number' | 'no';
  readonly needs: readonly (keyof FormSettings)[];
  /** Matches every text of the form, and few others. */
  readonly shape: RegExp;
  /**
   * Bits of a text that the ID does not fill, rounded down. `parse` checks them, so that only one in 2^freeBits random
   * texts of this shape is accepted. Negative if the form can't hold the layout's IDs.
   */
  freeBits(layout: Layout): number;
  /**
   * The two directions under these settings.
   *
   * @throws IdallocError CONFIG_INVALID for a missing key; INVALID_ID for another missing setting, or if the form can't
   * hold the layout's IDs.
   */
  open(settings: FormSettings): OpenForm;
}

/** Both throw IdallocError INVALID_ID with the form and the reason. */
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

/** Returns the ID. Throws INVALID_ID for a non-bigint, and outside 0..2^63-1. */
export function requireId(id: bigint): bigint {
  if (typeof id !== 'bigint') throw notText(id);
  if (isId(id)) return id;
  throw new IdallocError('INVALID_ID', `${id} is not a valid ID: it must be in 0..${MAX_ID}`);
}

/** Returns the text. Throws INVALID_ID for a non-string. */
export function requireString(text: string): string {
  if (typeof text !== 'string') throw notText(text);
  return text;
}

/** A number above 2^53 has lost digits before it gets here, so even small numbers are rejected. */
function notText(value: unknown): IdallocError {
  const hint = typeof value === 'number' ? ': JavaScript numbers lose digits above 2^53, so keep IDs as strings' : '';
  return new IdallocError('INVALID_ID', `an ID must be a bigint or a string, not a ${typeof value}${hint}`);
}

/** The error for an invalid text. */
export function refusedText(form: FormName, text: string, reason: string): IdallocError {
  const shown = JSON.stringify(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text);
  return new IdallocError('INVALID_ID', `${shown} is not a valid ID in form ${form}: ${reason}`);
}

/** The error for an ID, or a layout, that a form can't hold. */
export function refusedId(form: FormName, reason: string): IdallocError {
  return new IdallocError('INVALID_ID', `form ${form} can't hold this ID: ${reason}`);
}

/** The layout in the settings. Throws INVALID_ID without one. */
export function layoutFor(form: FormName, { layout }: FormSettings): Layout {
  if (layout !== undefined) return layout;
  throw new IdallocError('INVALID_ID', `form ${form} contains the time of the ID, so it needs the ID's layout`);
}

/** The keys in the settings. Throws CONFIG_INVALID without any. */
export function keysFor(form: FormName, { keys }: FormSettings): FormKeys {
  if (keys !== undefined) return keys;
  throw new IdallocError(
    'CONFIG_INVALID',
    `form ${form} needs a key: set FORM_KEY or FORM_KEY_FILE (in the client, the option keys)`,
  );
}
