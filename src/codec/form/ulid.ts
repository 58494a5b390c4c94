import { CROCKFORD, normalisedCrockford } from './digits.ts';
import { refusedText, requireString } from './form.ts';
import { timedForm } from './timed.ts';

const LENGTH = 26;
/** 26 digits are 130 bits, of which a ULID uses 128. */
const SHAPE = /^[0-7][0-9A-Z]{25}$/i;

/** ULID: 48 bits of ms and 80 bits of payload, in Crockford's base32. */
export const ulid = timedForm({
  name: 'ulid',
  sorts: 'text',
  shape: SHAPE,
  epochMs: 0,
  unitMs: 1,
  timeBits: 48,
  restBits: 80,
  write: (value) => CROCKFORD.write(value, LENGTH),
  read: (text) => {
    const value = SHAPE.test(requireString(text)) ? CROCKFORD.read(normalisedCrockford(text)) : undefined;
    if (value !== undefined) return value;
    throw refusedText('ulid', text, 'a ULID has 26 Crockford base32 digits, the first at most 7');
  },
});
