import { BASE62 } from './digits.ts';
import { refusedText, requireString } from './form.ts';
import { timedForm } from './timed.ts';

const LENGTH = 27;
const END = 2n ** 160n;

/** KSUID: 32 bits of seconds since 2014-05-13T16:53:20Z and 128 bits of payload, in base62. */
export const ksuid = timedForm({
  name: 'ksuid',
  sorts: 'text',
  shape: /^[0-9A-Za-z]{27}$/,
  epochMs: 1_400_000_000_000,
  unitMs: 1000,
  timeBits: 32,
  restBits: 128,
  write: (value) => BASE62.write(value, LENGTH),
  read: (text) => {
    const value = requireString(text).length === LENGTH ? BASE62.read(text) : undefined;
    if (value !== undefined && value < END) return value;
    throw refusedText('ksuid', text, 'a KSUID has 27 characters of 0-9 A-Z a-z and is below 2^160');
  },
});
