import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeLedgerEntry, type LedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { presetLayout } from '../../src/core/presets.ts';
import type { LedgerRecord } from '../../src/ledger/ledger-ports.ts';

/** What the benches of the ledger index fill it with. */

const KEY_BYTES = 37;
const layout = presetLayout('default');

/** An index without loaded partitions. It throws when its store fails. */
export function openIndex(directory: string, partitions: number): SqliteIndex {
  const binding = { clusterId: 'bench', ledgerTopic: 'id.ledger', partitions };
  const events = {
    onWiped: (cause: string) => {
      throw new Error(cause);
    },
    onUnusable: (error: Error) => {
      throw error;
    },
  };
  const newSeed = () => ({ low: 1, high: 2 }); // the same collisions in every run
  return new SqliteIndex(directory, binding, events, { newSeed });
}

/** The key of the entry at an offset. */
export function keyOf(partition: number, offset: number): Buffer {
  const id = `5b1cf3a2-${String(partition).padStart(4, '0')}-4d1e-8f00-${String(offset).padStart(12, '0')}`;
  return encodeLedgerKey(Buffer.from(id, 'latin1'));
}

function entryOf(end: number): LedgerEntry {
  return {
    kind: 'batch',
    requestHash: requestHash(1, 'id.replies.orders'),
    count: 1,
    replyTopic: 'id.replies.orders',
    requestOffset: end,
    batch: {
      ranges: [{ first: 55_325_805_773_398_016n + BigInt(end), count: 1 }],
      step: layout.step,
      datacenterId: 4,
      workerId: 18,
      fence: 4_711n,
      epochMs: layout.epochMs,
      layoutFingerprint: layout.fingerprint,
      generatedAtMs: 1_780_416_300_000,
    },
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: ID_REPLY_FINGERPRINT,
    end,
    through: end - 1,
  };
}

/** Records as a fetch returns them: views of one buffer. */
export function records(partition: number, from: number, length: number): LedgerRecord[] {
  const value = encodeLedgerEntry(entryOf(from));
  const size = KEY_BYTES + value.length;
  const bytes = Buffer.allocUnsafe(length * size);
  return Array.from({ length }, (_, i) => {
    const at = i * size;
    bytes.set(keyOf(partition, from + i), at);
    bytes.set(value, at + KEY_BYTES);
    const key = bytes.subarray(at, at + KEY_BYTES);
    return {
      offset: from + i,
      key,
      value: bytes.subarray(at + KEY_BYTES, at + size),
      appendedAtMs: 1_780_416_300_000 + from,
    };
  });
}

/**
 * Records whose hashes are given and spread as those of keys do: an index is filled with them in half the time. No key
 * of `keyOf` finds them.
 */
export function fillers(from: number, length: number): LedgerRecord[] {
  const entry = entryOf(from);
  const [key, value] = [keyOf(0, from), encodeLedgerEntry(entry)];
  return Array.from({ length }, (_, i) => {
    const offset = from + i;
    const hash = mixed(offset) * 2 ** 11 + (mixed(~offset) >>> 21);
    return { offset, key, value, entry, hash, appendedAtMs: 1_780_416_300_000 + from };
  });
}

/** Spreads 32 bits evenly: the last steps of MurmurHash3. */
export function mixed(bits: number): number {
  let mix = bits ^ (bits >>> 16);
  mix = Math.imul(mix, 0x85ebca6b);
  mix = Math.imul(mix ^ (mix >>> 13), 0xc2b2ae35);
  return (mix ^ (mix >>> 16)) >>> 0;
}

setFlagsFromString('--expose-gc');
const collectGarbage: () => void = runInNewContext('gc');

/** Used heap and the buffers outside it: all but the store's cache, which has a fixed size. */
export function heldBytes(): number {
  for (let times = 0; times < 5; times++) collectGarbage(); // buffers are freed later than what held them
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
