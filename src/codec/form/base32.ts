import { CROCKFORD, normalisedCrockford } from './digits.ts';
import { plainForm } from './plain.ts';

const LENGTH = 13;
/** Each digit may be followed by a hyphen. Without the flag u, /i matches no letter outside ASCII, as toUpperCase would. */
const SHAPE = /^([0-9A-Z]-?){13}$/i;

/** 13 Crockford digits; parse also accepts lowercase letters, hyphens, I or L for 1 and O for 0. */
export const base32 = plainForm({
  name: 'base32',
  sorts: 'text',
  shape: SHAPE,
  textBits: LENGTH * 5,
  expected: '13 Crockford base32 digits',
  write: (id) => CROCKFORD.write(id, LENGTH),
  read: (text) => (SHAPE.test(text) ? CROCKFORD.read(normalisedCrockford(text)) : undefined),
});
