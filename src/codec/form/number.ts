import { type Form, isId, keysFor, refusedText, requireId, requireString } from './form.ts';

const NAME = 'number';
const RADIX = 10;
/** 10^19 is the first power of 10 above 2^63. */
const DIGITS = 19;
const SHAPE = /^[1-9][0-9]{20}$/;
/** 10^19 numbers and a check digit, for 2^63 IDs. */
const FREE_BITS = Math.floor(Math.log2(10 ** (DIGITS + 1)) - 63);

/**
 * A 21-digit number for people: the key's number, which is never 0; a keyed permutation of the ID's 19 digits, which
 * hides volume and order; and Damm's check digit.
 */
export const number: Form = {
  name: NAME,
  sorts: 'no',
  needs: ['keys'],
  shape: SHAPE,
  freeBits: () => FREE_BITS,
  open: (settings) => {
    const keys = keysFor(NAME, settings);
    return {
      format: (id) => {
        const { writing } = keys;
        const digits = Array.from(String(requireId(id)).padStart(DIGITS, '0'), Number);
        const body = `${writing.number}${writing.permutation(NAME, RADIX).encrypt(digits).join('')}`;
        return `${body}${dammDigit(body)}`;
      },
      parse: (text) => {
        if (!SHAPE.test(requireString(text))) {
          throw refusedText(NAME, text, `it must have ${DIGITS + 2} digits, starting with the number of a key`);
        }
        if (dammDigit(text) !== 0) throw refusedText(NAME, text, 'wrong check digit, so a digit is mistyped');
        const key = keys.all.find((one) => one.number === Number(text.charAt(0)));
        if (key === undefined) throw refusedText(NAME, text, `unknown key ${text.charAt(0)}: see FORM_KEY`);
        const digits = Array.from(text.slice(1, -1), Number);
        const id = BigInt(key.permutation(NAME, RADIX).decrypt(digits).join(''));
        if (isId(id)) return id;
        throw refusedText(NAME, text, `it was not written with key ${key.number}`);
      },
    };
  },
};

/**
 * The quasigroup of order 10 from H. M. Damm, "Total anti-symmetrische Quasigruppen" (2004). It detects every single
 * wrong digit and every swap of adjacent digits.
 */
const QUASIGROUP = [
  '0317598642',
  '7092154863',
  '4206871359',
  '1750983426',
  '6123045978',
  '3674209581',
  '5869720134',
  '8945362017',
  '9438617205',
  '2581436790',
];

/** The check digit of a string of decimal digits. With it appended, the string has check digit 0. */
export function dammDigit(digits: string): number {
  let state = 0;
  for (const digit of digits) state = Number(QUASIGROUP[state]?.charAt(Number(digit)));
  return state;
}
