import { hash } from 'node:crypto';

const NOTHING = Buffer.alloc(0);

/**
 * 16 bytes that identify one entry of the ledger after a restart: a hash over its key and value, and over its offset and
 * append time, since the markers that sample the brokers' clocks all have the same key and value.
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
