import { plainForm } from './plain.ts';

/** 1 to 19 digits, as in JSON. */
export const decimal = plainForm({
  name: 'decimal',
  sorts: 'number',
  shape: /^(0|[1-9][0-9]{0,18})$/,
  textBits: Math.log2(10 ** 19),
  expected: 'up to 19 digits',
  write: String,
  read: (text) => (/^(0|[1-9][0-9]{0,18})$/.test(text) ? BigInt(text) : undefined),
});
