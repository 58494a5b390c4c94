import { CROCKFORD, normalisedCrockford } from './digits.ts';
import { plainForm } from './plain.ts';

const LENGTH = 13;
/** Every one of 13 characters may have a hyphen after it. */
const MOST_WRITTEN = 2 * LENGTH;

/** 13 of Crockford's digits; a reader takes small letters, hyphens, I or L for 1 and O for 0. */
export const base32 = plainForm({
  name: 'base32',
  sorts: 'text',
  shape: /^([0-9A-Z]-?){13}$/i,
  textBits: LENGTH * 5,
  expected: "13 of Crockford's base32 digits",
  write: (id) => CROCKFORD.write(id, LENGTH),
  read: (text) => {
    if (text.length > MOST_WRITTEN) return undefined;
    const digits = normalisedCrockford(text);
    return digits.length === LENGTH ? CROCKFORD.read(digits) : undefined;
  },
});
