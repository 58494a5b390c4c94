import { HEX } from './digits.ts';
import { refusedText, requireString } from './form.ts';
import { timedForm } from './timed.ts';

const SHAPE = /^[0-9a-f]{24}$/i;

/** MongoDB's ObjectID: 32 bits of seconds since 1970 and 64 bits of payload, in 24 hexadecimal digits. */
export const objectid = timedForm({
  name: 'objectid',
  sorts: 'text',
  shape: SHAPE,
  epochMs: 0,
  unitMs: 1000,
  timeBits: 32,
  restBits: 64,
  write: (value) => HEX.write(value, 24),
  read: (text) => {
    if (SHAPE.test(requireString(text))) return BigInt(`0x${text}`);
    throw refusedText('objectid', text, 'an ObjectID has 24 hexadecimal digits');
  },
});
