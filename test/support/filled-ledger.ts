import { ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeLedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../src/codec/ledger-key.ts';
import { encodeBatch } from '../../src/kafka/records/encode.ts';
import type { NewRecord } from '../../src/kafka/records/record.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { LAYOUT, type Realm } from './realm.ts';

/** They take a little less than the megabyte that a topic accepts by default. */
const ENTRIES_AN_APPEND = 4_000;
/** Entries after which `through` rises by one. */
const ENTRIES_A_REQUEST = 1_000;
const CALL_TIMEOUT_MS = 30_000;
const WORKER_ID = 18;
const EPOCH_MS = 1_780_416_300_000;

/** By whom a filled ledger looks written. */
interface Filled {
  readonly entriesAnAppend?: number;
  /** Where its requests wanted their replies; that of the realm by default. */
  readonly replyTopic?: string;
}

/**
 * The correlation ID of the entry at an offset of a filled partition; their hashes are spread evenly, as in production.
 */
export function filledId(partition: number, offset: number): string {
  return `5b1cf3a2-${String(partition).padStart(4, '0')}-4d1e-8f00-${String(offset).padStart(12, '0')}`;
}

/**
 * Fills each partition of an empty ledger with `perPartition` entries, as a single worker would have written them: each
 * is at its own `end`, and `through` rises. Their requests are not in the request topic, so they are not read again.
 */
export async function fillLedger(realm: Realm, perPartition: number, filled: Filled = {}): Promise<void> {
  const partitions = Array.from({ length: Number(realm.env.REQUEST_PARTITIONS) }, (_, partition) => partition);
  const requests = Math.ceil(perPartition / ENTRIES_A_REQUEST);
  const empty = Array.from({ length: requests }, () => ({ key: null, value: null, headers: {} }));
  for (const partition of partitions) {
    await append(realm, realm.requestTopic, partition, empty);
    await fillPartition(realm, partition, perPartition, filled);
  }
  const gone = partitions.map((partition) => ({ partition, offset: String(requests) }));
  await realm.admin.deleteTopicRecords({ topic: realm.requestTopic, partitions: gone });
}

/** Builds the next append while one is in flight. */
async function fillPartition(
  realm: Realm,
  partition: number,
  entries: number,
  { entriesAnAppend = ENTRIES_AN_APPEND, replyTopic = realm.replyTopic }: Filled,
): Promise<void> {
  let before: Promise<void> = Promise.resolve();
  for (let from = 0; from < entries; from += entriesAnAppend) {
    const length = Math.min(entriesAnAppend, entries - from);
    const records = Array.from({ length }, (_, i) => entryAt(replyTopic, partition, from + i));
    await before;
    before = append(realm, realm.ledgerTopic, partition, records);
  }
  await before;
}

function entryAt(replyTopic: string, partition: number, offset: number): NewRecord {
  const requestOffset = Math.floor(offset / ENTRIES_A_REQUEST);
  const value = encodeLedgerEntry({
    kind: 'batch',
    requestHash: requestHash(1, replyTopic),
    count: 1,
    replyTopic,
    requestOffset,
    batch: {
      ranges: [{ first: BigInt(partition + 1) * 10_000_000_000_000n + BigInt(offset), count: 1 }],
      step: LAYOUT.step,
      datacenterId: 4,
      workerId: WORKER_ID,
      fence: 1n,
      epochMs: LAYOUT.epochMs,
      layoutFingerprint: LAYOUT.fingerprint,
      generatedAtMs: EPOCH_MS,
    },
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: ID_REPLY_FINGERPRINT,
    end: offset,
    through: requestOffset - 1,
  });
  return { key: encodeLedgerKey(Buffer.from(filledId(partition, offset), 'latin1')), value, headers: {} };
}

/** Appends records; rejects if the broker refuses them. */
async function append(
  { source: { cluster } }: Realm,
  topic: string,
  partition: number,
  records: readonly NewRecord[],
): Promise<void> {
  const batch = encodeBatch(records, RUNTIME.wallMs());
  const node = await cluster.leader(topic, partition, CALL_TIMEOUT_MS);
  const request = { topic, partition, batch, acks: -1, timeoutMs: CALL_TIMEOUT_MS } as const;
  const { errorCode } = await cluster.call(node, 'append', CALL_TIMEOUT_MS, (link) => link.call('produce', request));
  if (errorCode !== undefined) throw new Error(`partition ${partition} of ${topic} refused an append: ${errorCode}`);
}
