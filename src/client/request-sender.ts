import type { Runtime } from '../async/runtime.ts';
import { AppendQueue } from '../kafka/loops/append-queue.ts';
import { append } from '../kafka/loops/leader-calls.ts';
import { maxBytesOf, type NewRecord, partitionFor } from '../kafka/records/record.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';

export interface RequestSenderOptions {
  readonly cluster: Pick<Cluster, 'partitions' | 'leader' | 'call' | 'markStale'>;
  readonly runtime: Runtime;
  readonly topic: string;
}

/** Limits of one append: far below any topic's limit, far above what arrives during one append. */
const MAX_RECORDS = 500;
const MAX_BYTES = 64_000;
const APPEND_TIMEOUT_MS = 5_000;
/** How long the broker may wait for its replicas: less than we wait for the broker. */
const REPLICATION_TIMEOUT_MS = 4_000;
/** Appends requests to the request topic, by one queue for each partition. Nothing is retried here. */
export class RequestSender {
  readonly #options: RequestSenderOptions;
  readonly #queues = new Map<number, AppendQueue>();
  /** How many the topic had when the last request was sent. */
  #partitions: number | undefined;

  constructor(options: RequestSenderOptions) {
    this.#options = options;
  }

  /** Resolves when the request is in the log, or is no longer wanted. Rejects with KafkaError. */
  async send(record: NewRecord & { readonly key: Buffer }, isWanted: () => boolean): Promise<void> {
    const { cluster, topic } = this.#options;
    const partitions = await cluster.partitions(topic, APPEND_TIMEOUT_MS);
    this.#partitions = partitions;
    await this.#queue(partitionFor(record.key, partitions, () => 0)).add([record], maxBytesOf(record), isWanted);
  }

  /** The partition for requests with this key; undefined before the first one is sent. */
  partitionOf(key: Buffer): number | undefined {
    return this.#partitions === undefined ? undefined : partitionFor(key, this.#partitions, () => 0);
  }

  #queue(partition: number): AppendQueue {
    const known = this.#queues.get(partition);
    if (known !== undefined) return known;
    const { cluster, runtime, topic } = this.#options;
    const limits = { timeoutMs: APPEND_TIMEOUT_MS, replicationTimeoutMs: REPLICATION_TIMEOUT_MS };
    const queue = new AppendQueue({
      runtime,
      append: async (records) => {
        await append(cluster, runtime, { topic, partition, records, lane: 'append', ...limits });
      },
      maxRecords: MAX_RECORDS,
      maxBytes: MAX_BYTES,
    });
    this.#queues.set(partition, queue);
    return queue;
  }
}
