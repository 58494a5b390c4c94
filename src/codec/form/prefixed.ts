import { IdallocError } from '../../errors.ts';
import { CROCKFORD, CROCKFORD_DIGITS, normalisedCrockford } from './digits.ts';
import { type Form, ID_BITS, isId, refusedText, requireId, requireString } from './form.ts';

const NAME = 'prefixed';
const LENGTH = 13;
const DIGIT_BITS = 5;
/** Crockford's check symbols for 0 to 36: the 32 digits and five more. */
const CHECK_SYMBOLS = `${CROCKFORD_DIGITS}*~$=U`;
const PREFIX = /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/;
const MOST_PREFIX = 32;
/**
 * Each digit may be followed by a hyphen. Without the flag u, /i matches no letter outside ASCII, as toUpperCase would.
 */
const BODY = /^([0-9A-Z]-?){13}[0-9A-Z*~$=]$/i;
const FREE_BITS = LENGTH * DIGIT_BITS + Math.floor(Math.log2(CHECK_SYMBOLS.length)) - ID_BITS;

/**
 * A prefix, an underscore, 13 Crockford base32 digits and Crockford's check symbol (the number modulo 37), which
 * detects every single wrong digit and every swap of adjacent digits. `parse` is as lenient with the digits as base32.
 */
export const prefixed: Form = {
  name: NAME,
  sorts: 'text',
  needs: ['prefix'],
  shape: /^[a-z][a-z0-9_]*_([0-9A-Z]-?){13}[0-9A-Z*~$=]$/i,
  freeBits: () => FREE_BITS,
  open: ({ prefix }) => {
    const head = `${requirePrefix(prefix)}_`;
    return {
      format: (id) => `${head}${CROCKFORD.write(requireId(id), LENGTH)}${checkSymbol(id)}`,
      parse: (text) => {
        if (!requireString(text).startsWith(head)) throw refusedText(NAME, text, `it does not start with ${head}`);
        const body = text.slice(head.length);
        const symbols = BODY.test(body) ? normalisedCrockford(body) : '';
        const id = symbols === '' ? undefined : CROCKFORD.read(symbols.slice(0, -1));
        if (id === undefined || !isId(id)) {
          throw refusedText(NAME, text, `after ${head} it must have 13 base32 digits below 2^63 and a check symbol`);
        }
        if (symbols.at(-1) === checkSymbol(id)) return id;
        throw refusedText(NAME, text, 'wrong check symbol, so a character is mistyped');
      },
    };
  },
};

function checkSymbol(id: bigint): string {
  return CHECK_SYMBOLS.charAt(Number(id % BigInt(CHECK_SYMBOLS.length)));
}

function requirePrefix(prefix: string | undefined): string {
  if (prefix !== undefined && prefix.length <= MOST_PREFIX && PREFIX.test(prefix)) return prefix;
  const rule = `use up to ${MOST_PREFIX} characters of a-z and 0-9, with single _ between words, such as 'ord'`;
  const found = prefix === undefined ? 'which is missing' : `not '${String(prefix).slice(0, 50)}'`;
  throw new IdallocError('INVALID_ID', `form ${NAME} needs a prefix, ${found}: ${rule}`);
}
