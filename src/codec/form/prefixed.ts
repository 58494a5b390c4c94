import { IdallocError } from '../../errors.ts';
import { CROCKFORD, CROCKFORD_DIGITS, normalisedCrockford } from './digits.ts';
import { type Form, ID_BITS, isId, refusedText, requireId, requireText } from './form.ts';

const NAME = 'prefixed';
const LENGTH = 13;
const DIGIT_BITS = 5;
/** Crockford's check symbols stand for 0 to 36: five more than there are digits. */
const CHECK_SYMBOLS = `${CROCKFORD_DIGITS}*~$=U`;
const PREFIX = /^[a-z][a-z0-9]*(_[a-z0-9]+)*$/;
const MOST_PREFIX = 32;
/** A hyphen may stand after each of the digits. */
const MOST_BODY = 2 * LENGTH + 1;
const FREE_BITS = LENGTH * DIGIT_BITS + Math.floor(Math.log2(CHECK_SYMBOLS.length)) - ID_BITS;

/**
 * A name of your choice, an underscore, 13 of Crockford's base32 digits and his check symbol (the number modulo 37), which
 * finds every wrong digit and every two neighbours that changed places. A reader takes the digits as leniently as base32.
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
        if (!requireText(text).startsWith(head)) throw refusedText(NAME, text, `it does not begin with ${head}`);
        const body = text.slice(head.length);
        const symbols = body.length > MOST_BODY ? '' : normalisedCrockford(body);
        const id = CROCKFORD.read(symbols.slice(0, -1));
        if (symbols.length !== LENGTH + 1 || id === undefined || !isId(id)) {
          throw refusedText(NAME, text, `after ${head} it must have 13 base32 digits below 2^63 and a check symbol`);
        }
        if (symbols.at(-1) === checkSymbol(id)) return id;
        throw refusedText(NAME, text, 'its check symbol is wrong, so a character is mistyped');
      },
    };
  },
};

function checkSymbol(id: bigint): string {
  return CHECK_SYMBOLS.charAt(Number(id % BigInt(CHECK_SYMBOLS.length)));
}

function requirePrefix(prefix: string | undefined): string {
  if (prefix !== undefined && prefix.length <= MOST_PREFIX && PREFIX.test(prefix)) return prefix;
  const rule = `a prefix has up to ${MOST_PREFIX} characters of a-z and 0-9, in words that _ separates, as in 'ord'`;
  const found = prefix === undefined ? 'and got nothing' : `not '${String(prefix).slice(0, 50)}'`;
  throw new IdallocError('INVALID_ID', `form ${NAME} needs a prefix, ${found}: ${rule}`);
}
