import { hash } from 'node:crypto';
import type { RecordHeaders } from './request-headers.ts';
import { REPLAY_HEADER } from './request-position.ts';
import { STATEMENT_HEADER } from './sequence-entry.ts';

const NOTHING = Buffer.alloc(0);

/**
 * 16 bytes that identify one entry of the ledger after a restart: a hash over its key and value, over the header of a
 * statement, and over its offset and append time, since the markers that sample the brokers' clocks all have the same
 * key and value. Other headers say nothing of what is decided. No record has both headers: a statement of a sequence
 * has a key, one of a replay has none.
 */
export function digestEntry(entry: {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers?: RecordHeaders | undefined;
  readonly appendedAtMs: number;
}): Buffer {
  const key = entry.key ?? NOTHING;
  const value = entry.value ?? NOTHING;
  const head = Buffer.alloc(24);
  head.writeDoubleBE(entry.offset, 0);
  head.writeDoubleBE(entry.appendedAtMs, 8);
  head.writeUInt32BE(key.length, 16);
  head.writeUInt32BE(value.length, 20);
  const header = entry.headers?.[STATEMENT_HEADER] ?? entry.headers?.[REPLAY_HEADER];
  const said = typeof header === 'string' || Buffer.isBuffer(header) ? Buffer.from(header) : NOTHING;
  return hash('sha256', Buffer.concat([head, key, value, said]), 'buffer').subarray(0, 16);
}
