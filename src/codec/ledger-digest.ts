import { hash } from 'node:crypto';

const NOTHING = Buffer.alloc(0);

/**
 * 16 bytes by which one entry of the ledger is recognised after a restart: a hash over its key and value, and over its
 * place and time, which are the broker's. By key and value alone the markers that ask for the time are all the same.
 */
export function digestEntry(entry: {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly appendedAtMs: number;
}): Buffer {
  const key = entry.key ?? NOTHING;
  const head = Buffer.alloc(20);
  head.writeDoubleBE(entry.offset, 0);
  head.writeDoubleBE(entry.appendedAtMs, 8);
  head.writeUInt32BE(key.length, 16);
  return hash('sha256', Buffer.concat([head, key, entry.value ?? NOTHING]), 'buffer').subarray(0, 16);
}
