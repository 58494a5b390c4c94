import { describeError, IdallocError } from '../errors.ts';
import { FORM_NAMES, type FormName, type FormSettings } from './form/form.ts';
import { FORMS, openForm } from './form/forms.ts';

/** No layout has an ID of 2^63 or more. */
const MAX_ID = 2n ** 63n - 1n;

/** The texts that readId accepts, for error messages. */
export const ID_TEXT_HELP = `decimal from 0 to ${MAX_ID}, 16 hexadecimal digits, or up to 16 of them after 0x`;

/**
 * Reads an ID in [0, 2^63), decimal or hexadecimal; undefined for any other text. 16 digits are hexadecimal if they
 * start with a zero or contain a letter, which makes everything that idalloc writes unambiguous.
 */
export function readId(text: string): bigint | undefined {
  const id = numberOf(text);
  return id !== undefined && id <= MAX_ID ? id : undefined;
}

function numberOf(text: string): bigint | undefined {
  if (/^0x[0-9a-f]{1,16}$/i.test(text)) return BigInt(text);
  if (/^[0-9a-f]{16}$/i.test(text) && !/^[1-9][0-9]{15}$/.test(text)) return BigInt(`0x${text}`);
  return /^[0-9]{1,19}$/.test(text) ? BigInt(text) : undefined;
}

/** An ID, and the form in which it was read. */
export interface ReadId {
  readonly id: bigint;
  readonly form: FormName;
}

/** The forms that readId reads; it has rules for text that fits several of them. */
const PLAIN: readonly FormName[] = ['decimal', 'padded', 'hex', 'base62', 'base32'];
/** The forms that are numbers without a check: any digits fit them. */
const NUMBERS: readonly FormName[] = [...PLAIN, 'simpleflake'];
const SHOWN = 50;

/** Reads an ID: in `form`, or without one in the form that is detected. Throws as openForm and detectId do. */
export function readIdText(text: string, form: FormName | undefined, settings: FormSettings): ReadId {
  return form === undefined ? detectId(text, settings) : { id: openForm(form, settings).parse(text), form };
}

/**
 * Reads an ID in the only form that accepts the text. Text that can be decimal or hexadecimal is not tried in the other
 * forms that write the ID as a plain number. A prefixed ID may have any prefix, unless the settings name one.
 *
 * @throws IdallocError INVALID_ID for text that is in no form, or in several; CONFIG_INVALID if a key is needed and
 * missing.
 */
function detectId(text: string, settings: FormSettings): ReadId {
  const id = readId(text);
  const found: ReadId[] = id === undefined ? [] : [{ id, form: /^[0-9]+$/.test(text) ? 'decimal' : 'hex' }];
  const refusals: [FormName, unknown][] = [];
  for (const form of FORM_NAMES) {
    if (!FORMS[form].shape.test(text) || (id !== undefined && PLAIN.includes(form))) continue;
    try {
      found.push({ id: openForm(form, settingsFor(form, text, settings)).parse(text), form });
    } catch (error) {
      refusals.push([form, error]);
    }
  }
  const [only, ...others] = found;
  if (only === undefined) throw unread(text, refusals);
  if (others.length === 0) return only;
  const names = found.map(({ form }) => form).join(' and ');
  throw new IdallocError('INVALID_ID', `${shown(text)} is an ID in ${names}: choose one with --form`);
}

function settingsFor(form: FormName, text: string, settings: FormSettings): FormSettings {
  if (form !== 'prefixed' || settings.prefix !== undefined) return settings;
  return { prefix: text.slice(0, text.lastIndexOf('_')) };
}

/** A number that is too large fits the shape of some forms by chance: what these lack is beside the point. */
function unread(text: string, refusals: readonly [FormName, unknown][]): unknown {
  const number = numberOf(text) ?? (/^[0-9]+$/.test(text) ? BigInt(text) : 0n);
  const isPlain = text.startsWith('0x') || refusals.every(([form]) => NUMBERS.includes(form));
  if (number > MAX_ID && isPlain)
    return new IdallocError('INVALID_ID', `${shown(text)} is larger than any ID: the largest is ${MAX_ID}`);
  const [first, ...others] = refusals;
  if (first !== undefined && others.length === 0) return first[1];
  const all = refusals.map(([, error]) => describeError(error)).join('; ');
  const reasons = first === undefined ? `the forms are ${FORM_NAMES.join(', ')}` : all;
  return new IdallocError('INVALID_ID', `${shown(text)} is not an ID in any form: ${reasons}`);
}

function shown(text: string): string {
  return JSON.stringify(text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text);
}
