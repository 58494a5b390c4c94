import { BASE62 } from './digits.ts';
import { refusedId, refusedText, requireText } from './form.ts';
import { timedForm } from './timed.ts';

/** What a flake of the years 1975 to 2284 has when it is written without leading zeros, as Boundary's own are. */
const LENGTH = 18;
const END = 62n ** BigInt(LENGTH);

/**
 * Boundary's Flake: 64 bits of ms since 1970, and 48 + 16 that are worker and sequence there. Here both together are the
 * rest of the ID and the hash of it: a layout's sequence may have more than 16 bits, or lie above the worker, and only one
 * number in the ID's own order sorts as the IDs do.
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
      `its time is behind the year 2284, where a flake grows longer than ${LENGTH} characters`,
    );
  },
  read: (text) => {
    const value = requireText(text).length === LENGTH ? BASE62.read(text) : undefined;
    if (value !== undefined) return value;
    throw refusedText('boundary', text, `a flake has ${LENGTH} characters of 0-9 A-Z a-z`);
  },
});
