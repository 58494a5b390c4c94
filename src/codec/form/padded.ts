import { plainForm } from './plain.ts';

/** 19 decimal digits. */
export const padded = plainForm({
  name: 'padded',
  sorts: 'text',
  shape: /^[0-9]{19}$/,
  textBits: Math.log2(10 ** 19),
  expected: '19 digits',
  write: (id) => String(id).padStart(19, '0'),
  read: (text) => (/^[0-9]{19}$/.test(text) ? BigInt(text) : undefined),
});
