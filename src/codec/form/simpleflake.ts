import { refusedText, requireString } from './form.ts';
import { timedForm } from './timed.ts';

const SHAPE = /^(0|[1-9][0-9]{0,19})$/;
const END = 2n ** 64n;

/** Simpleflake: 41 bits of ms since 2000-01-01T05:00:00Z and 23 bits of payload, as an unsigned decimal number. */
export const simpleflake = timedForm({
  name: 'simpleflake',
  sorts: 'number',
  shape: SHAPE,
  epochMs: 946_702_800_000,
  unitMs: 1,
  timeBits: 41,
  restBits: 23,
  write: String,
  read: (text) => {
    const value = SHAPE.test(requireString(text)) ? BigInt(text) : END;
    if (value < END) return value;
    throw refusedText('simpleflake', text, 'a simpleflake is a decimal number below 2^64');
  },
});
