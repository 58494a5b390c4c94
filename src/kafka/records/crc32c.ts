import crc from '@chainsafe/fast-crc32c';

/** The checksum of record batches (CRC-32 with Castagnoli's polynomial). */
export function crc32c(bytes: Uint8Array): number {
  return crc.calculate(bytes);
}
