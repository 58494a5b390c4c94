import { HEX } from './digits.ts';
import { type Form, type FormName, ID_BITS, keysFor, refusedText, requireId, requireString } from './form.ts';

/** RFC 9562: version in the high bits of octet 6, variant 10 in those of octet 8. The rest is 48, 12 and 62 bits. */
const TEXT = /^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f])([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})$/i;
const VARIANT = 0b10n << 62n;
const LOW_BITS = 62;
const MIDDLE_BITS = 12;

/** Bits of a UUID besides version and variant. */
export const UUID_BITS = 122;

/** Matches UUIDs of a version. */
export function uuidShape(version: 4 | 7): RegExp {
  return new RegExp(`^[0-9a-f]{8}-[0-9a-f]{4}-${version}[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, 'i');
}

/** The UUID of a version with these 122 bits. */
export function writeUuid(version: 4 | 7, bits: bigint): string {
  const head = bits >> BigInt(LOW_BITS);
  const time = head >> BigInt(MIDDLE_BITS);
  const middle = BigInt.asUintN(MIDDLE_BITS, head);
  const high = (time << 16n) | (BigInt(version) << BigInt(MIDDLE_BITS)) | middle;
  const text = HEX.write((high << 64n) | VARIANT | BigInt.asUintN(LOW_BITS, bits), 32);
  return `${text.slice(0, 8)}-${text.slice(8, 12)}-${text.slice(12, 16)}-${text.slice(16, 20)}-${text.slice(20)}`;
}

/** The 122 bits of a UUID. Throws INVALID_ID for another version, or for an invalid UUID. */
export function readUuid(form: FormName, version: 4 | 7, text: string): bigint {
  const parts = TEXT.exec(requireString(text));
  if (parts === null)
    throw refusedText(form, text, 'a UUID has 8-4-4-4-12 hexadecimal digits, and the variant of RFC 9562');
  const [, high = '', low = '', found = '', middle = '', clock = '', node = ''] = parts;
  if (found !== String(version)) throw refusedText(form, text, `its version is ${found}, not ${version}`);
  const head = BigInt(`0x${high}${low}${middle}`);
  return (head << BigInt(LOW_BITS)) | BigInt.asUintN(LOW_BITS, BigInt(`0x${clock}${node}`));
}

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
