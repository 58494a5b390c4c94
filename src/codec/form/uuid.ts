import { HEX } from './digits.ts';
import { type FormName, refusedText, requireString } from './form.ts';

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
