import { hash } from 'node:crypto';

const NOTHING = Buffer.alloc(0);

/** 16 bytes by which one entry of the ledger is recognised after a restart: a hash over its key and value. */
export function digestEntry(entry: { readonly key: Buffer | null; readonly value: Buffer | null }): Buffer {
  const key = entry.key ?? NOTHING;
  const keyLength = Buffer.alloc(4);
  keyLength.writeUInt32BE(key.length);
  return hash('sha256', Buffer.concat([keyLength, key, entry.value ?? NOTHING]), 'buffer').subarray(0, 16);
}
