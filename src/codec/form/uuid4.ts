import { type Form, ID_BITS, keysFor, refusedText, requireId } from './form.ts';
import { readUuid, UUID_BITS, uuidShape, writeUuid } from './uuid.ts';

const NAME = 'uuid4';
const RADIX = 4;
const LENGTH = UUID_BITS / 2;
const FREE_BITS = UUID_BITS - ID_BITS;

/**
 * UUID version 4: a keyed permutation of the ID, then 59 zero bits, as 61 digits of base 4. Without the key it looks
 * like 122 random bits; `parse` tries all keys, and accepts only a result with these zeros.
 */
export const uuid4: Form = {
  name: NAME,
  sorts: 'no',
  needs: ['keys'],
  shape: uuidShape(4),
  freeBits: () => FREE_BITS,
  open: (settings) => {
    const keys = keysFor(NAME, settings);
    return {
      format: (id) => {
        const plain = requireId(id) << BigInt(FREE_BITS);
        return writeUuid(4, joined(keys.writing.permutation(NAME, RADIX).encrypt(digitsOf(plain))));
      },
      parse: (text) => {
        const digits = digitsOf(readUuid(NAME, 4, text));
        for (const key of keys.all) {
          const plain = joined(key.permutation(NAME, RADIX).decrypt(digits));
          if (BigInt.asUintN(FREE_BITS, plain) === 0n) return plain >> BigInt(FREE_BITS);
        }
        throw refusedText(NAME, text, 'it was not written with any of the keys');
      },
    };
  },
};

function digitsOf(bits: bigint): number[] {
  return Array.from(bits.toString(RADIX).padStart(LENGTH, '0'), Number);
}

function joined(digits: readonly number[]): bigint {
  let hex = '';
  for (let at = digits.length - 1; at >= 0; at -= 2) {
    hex = ((digits[at] ?? 0) + RADIX * (digits[at - 1] ?? 0)).toString(16) + hex;
  }
  return BigInt(`0x${hex}`);
}
