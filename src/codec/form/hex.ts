import { formatHex } from '../../core/layout.ts';
import { plainForm } from './plain.ts';

/** 16 lowercase hexadecimal digits; parse also accepts uppercase and a leading 0x. */
export const hex = plainForm({
  name: 'hex',
  sorts: 'text',
  shape: /^(0x)?[0-9a-f]{16}$/i,
  textBits: 64,
  expected: '16 hexadecimal digits',
  write: formatHex,
  read: (text) => (/^(0x)?[0-9a-f]{16}$/i.test(text) ? BigInt(`0x${text.replace(/^0x/i, '')}`) : undefined),
});
