import { InvalidArgumentError } from 'commander';
import { formatHex } from '../core/layout.ts';

const MAX_ID = 2n ** 64n - 1n;

/** An ID from [0, 2^64), as people and programs write it: decimal, or hexadecimal after 0x. */
export function parseId(text: string): bigint {
  if (!/^([0-9]{1,20}|0x[0-9a-f]{1,16})$/i.test(text) || BigInt(text) > MAX_ID) {
    throw new InvalidArgumentError(
      `must be decimal from 0 to ${MAX_ID}, or 0x and at most ${formatHex(0n).length} hexadecimal digits.`,
    );
  }
  return BigInt(text);
}
