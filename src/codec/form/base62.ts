import { BASE62 } from './digits.ts';
import { plainForm } from './plain.ts';

const LENGTH = 11;

/** 11 characters of 0-9 A-Z a-z. */
export const base62 = plainForm({
  name: 'base62',
  sorts: 'text',
  shape: /^[0-9A-Za-z]{11}$/,
  textBits: LENGTH * Math.log2(62),
  expected: '11 characters of 0-9 A-Z a-z',
  write: (id) => BASE62.write(id, LENGTH),
  read: (text) => (text.length === LENGTH ? BASE62.read(text) : undefined),
});
