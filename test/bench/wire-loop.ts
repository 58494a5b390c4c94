import { decodeBatches } from '../../src/kafka/records/decode.ts';
import { encodeBatch } from '../../src/kafka/records/encode.ts';
import { type FetchedRecord, type NewRecord, partitionFor } from '../../src/kafka/records/record.ts';
import type { Purpose } from '../../src/kafka/wire/broker.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';

/**
 * The second baseline of the benchmarks: the four record operations of a worker on our own wire, which are to read a
 * request, append it to the ledger, follow the ledger, and reply. It has no group, no commit, no index, no allocation,
 * and uses one broker: it shows how fast the wire alone is.
 */
const [brokers = '', requests = '', replies = '', ledger = ''] = process.argv.slice(2);

/** Requests in one append to the ledger. */
const PART = 500;
/** Parts in flight at once; each partition has one at a time. */
const MAX_PARTS = 40;
const FETCH = { maxWaitMs: 100, maxBytes: 10 * 1_048_576, isolation: 'read_committed' } as const;
const PARTITION_BYTES = 1_048_576;
const TIMEOUT_MS = 30_000;

const cluster = new Cluster({
  dialer: kafkaDialer({ clientId: 'wire-loop', tls: false }),
  seeds: seedsOf(brokers.split(',')),
  runtime: RUNTIME,
});
const partitions = await cluster.partitions(requests);
const leader = await cluster.leader(requests, 0);
/** The last part of each partition, started or not. */
const lastParts = new Map<number, Promise<void>>();
let partsInFlight = 0;
let onPart: (() => void) | undefined;

/** Follows all partitions of a topic from their start. */
async function follow(
  topic: string,
  purpose: Purpose,
  take: (partition: number, records: FetchedRecord[]) => Promise<void>,
) {
  const positions = Array.from({ length: partitions }, () => 0);
  for (;;) {
    const asked = positions.map((offset, partition) => ({ topic, partition, offset, maxBytes: PARTITION_BYTES }));
    const answer = await cluster.call(leader, purpose, TIMEOUT_MS, (link) =>
      link.call('fetch', { ...FETCH, partitions: asked }),
    );
    for (const fetched of answer.partitions) {
      if (fetched.errorCode !== undefined) throw new Error(`${topic}: ${fetched.errorCode}`);
      const from = positions[fetched.partition] ?? 0;
      const { records, next } = await decodeBatches(fetched, from, FETCH.isolation, RUNTIME.nextTurn);
      positions[fetched.partition] = next;
      await take(fetched.partition, records);
    }
  }
}

async function append(
  topic: string,
  partition: number,
  purpose: Purpose,
  records: readonly NewRecord[],
): Promise<void> {
  const batch = encodeBatch(records, RUNTIME.wallMs());
  const request = { topic, partition, batch, acks: -1, timeoutMs: TIMEOUT_MS } as const;
  const { errorCode } = await cluster.call(leader, purpose, TIMEOUT_MS, (link) => link.call('produce', request));
  if (errorCode !== undefined) throw new Error(`${topic}: ${errorCode}`);
}

async function serve(partition: number, records: readonly FetchedRecord[]): Promise<void> {
  const entries = records.map(({ key, value }) => ({ key, value }));
  await append(ledger, partition, 'append', entries);
  const byPartition = Map.groupBy(records, ({ key }) => partitionFor(key, partitions, () => 0));
  await Promise.all([...byPartition].map(([at, its]) => append(replies, at, 'publish', its.map(replyTo))));
}

function replyTo({ key, value, headers }: FetchedRecord): NewRecord {
  return { key, value, headers };
}

/** Serves the records of a partition in parts, in order; resolves late while too many parts are in flight. */
async function cut(partition: number, records: readonly FetchedRecord[]): Promise<void> {
  for (let at = 0; at < records.length; at += PART) {
    const part = records.slice(at, at + PART);
    const before = lastParts.get(partition) ?? Promise.resolve();
    const done = before.then(() => serve(partition, part));
    lastParts.set(partition, done);
    partsInFlight += 1;
    void done.then(() => {
      partsInFlight -= 1;
      onPart?.();
    });
    while (partsInFlight >= MAX_PARTS) {
      await new Promise<void>((resolve) => {
        onPart = resolve;
      });
    }
  }
}

process.once('SIGTERM', () => process.exit(0));
await Promise.all([follow(requests, 'requests', cut), follow(ledger, 'ledger', async () => {})]);
