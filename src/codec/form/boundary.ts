import { BASE62 } from './digits.ts';
import { refusedId, refusedText, requireString } from './form.ts';
import { timedForm } from './timed.ts';

/** Length of a flake from 1975 to 2284 without leading zeros, as Boundary writes them. */
const LENGTH = 18;
const END = 62n ** BigInt(LENGTH);

/**
 * Boundary's Flake: 64 bits of ms since 1970, then 48 bits of worker and 16 of sequence. Here those 64 bits hold the
 * rest of the ID and its hash: a layout's sequence may have more than 16 bits or lie above the worker, and only the
 * ID's own bit order sorts as the IDs do.
 */
export const boundary = timedForm({
  name: 'boundary',
  sorts: 'text',
  shape: /^[0-9A-Za-z]{18}$/,
  epochMs: 0,
  unitMs: 1,
  timeBits: 64,
  restBits: 64,
  write: (value) => {
    if (value < END) return BASE62.write(value, LENGTH);
    throw refusedId(
      'boundary',
      `its time is after the year 2284, when a flake no longer fits into ${LENGTH} characters`,
    );
  },
  read: (text) => {
    const value = requireString(text).length === LENGTH ? BASE62.read(text) : undefined;
    if (value !== undefined) return value;
    throw refusedText('boundary', text, `a flake has ${LENGTH} characters of 0-9 A-Z a-z`);
  },
});
