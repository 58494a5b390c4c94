import { CROCKFORD, normalisedCrockford } from './digits.ts';
import { plainForm } from './plain.ts';

const LENGTH = 13;
/** Each of the 13 characters may be followed by a hyphen. */
const MOST_WRITTEN = 2 * LENGTH;

/** 13 Crockford digits; parse also accepts lowercase letters, hyphens, I or L for 1 and O for 0. */
export const base32 = plainForm({
  name: 'base32',
  sorts: 'text',
  shape: /^([0-9A-Z]-?){13}$/i,
  textBits: LENGTH * 5,
  expected: '13 Crockford base32 digits',
  write: (id) => CROCKFORD.write(id, LENGTH),
  read: (text) => {
    if (text.length > MOST_WRITTEN) return undefined;
    const digits = normalisedCrockford(text);
    return digits.length === LENGTH ? CROCKFORD.read(digits) : undefined;
  },
});
