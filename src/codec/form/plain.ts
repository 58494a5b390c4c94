import { formatHex } from '../../core/layout.ts';
import { BASE62, CROCKFORD, normalisedCrockford } from './digits.ts';
import {
  type Form,
  type FormName,
  ID_BITS,
  isId,
  type OpenForm,
  refusedText,
  requireId,
  requireString,
} from './form.ts';

interface PlainForm {
  readonly name: FormName;
  readonly sorts: Form['sorts'];
  readonly shape: RegExp;
  /** log2 of the number of texts of this shape. */
  readonly textBits: number;
  /** The expected text, for the error message of `parse`. */
  readonly expected: string;
  readonly write: (id: bigint) => string;
  /** The number in a text of this shape; undefined if it has a character that is no digit. */
  readonly read: (text: string) => bigint | undefined;
}

/** A form that writes the ID in some base and needs no settings. */
function plainForm({ name, sorts, shape, textBits, expected, write, read }: PlainForm): Form {
  const open: OpenForm = {
    format: (id) => write(requireId(id)),
    parse: (text) => {
      const id = shape.test(requireString(text)) ? read(text) : undefined;
      if (id !== undefined && isId(id)) return id;
      throw refusedText(name, text, `${expected} below 2^63`);
    },
  };
  return { name, sorts, needs: [], shape, freeBits: () => Math.floor(textBits - ID_BITS), open: () => open };
}

/** 1 to 19 digits, as in JSON. */
export const decimal = plainForm({
  name: 'decimal',
  sorts: 'number',
  shape: /^(0|[1-9][0-9]{0,18})$/,
  textBits: Math.log2(10 ** 19),
  expected: 'up to 19 digits',
  write: String,
  read: BigInt,
});

/** 19 decimal digits. */
export const padded = plainForm({
  name: 'padded',
  sorts: 'text',
  shape: /^[0-9]{19}$/,
  textBits: Math.log2(10 ** 19),
  expected: '19 digits',
  write: (id) => String(id).padStart(19, '0'),
  read: BigInt,
});

/** 16 lowercase hexadecimal digits; parse also accepts uppercase and a leading 0x. */
export const hex = plainForm({
  name: 'hex',
  sorts: 'text',
  shape: /^(0x)?[0-9a-f]{16}$/i,
  textBits: 64,
  expected: '16 hexadecimal digits',
  write: formatHex,
  read: (text) => BigInt(`0x${text.slice(-16)}`),
});

/** 11 characters of 0-9 A-Z a-z. */
export const base62 = plainForm({
  name: 'base62',
  sorts: 'text',
  shape: /^[0-9A-Za-z]{11}$/,
  textBits: 11 * Math.log2(62),
  expected: '11 characters of 0-9 A-Z a-z',
  write: (id) => BASE62.write(id, 11),
  read: (text) => BASE62.read(text),
});

/**
 * 13 Crockford digits; parse also accepts lowercase letters, hyphens after digits, I or L for 1 and O for 0. Without
 * the flag u, /i matches no letter outside ASCII, as toUpperCase would.
 */
export const base32 = plainForm({
  name: 'base32',
  sorts: 'text',
  shape: /^([0-9A-Z]-?){13}$/i,
  textBits: 13 * 5,
  expected: '13 Crockford base32 digits',
  write: (id) => CROCKFORD.write(id, 13),
  read: (text) => CROCKFORD.read(normalisedCrockford(text)),
});
