import type { Runtime } from '../async/runtime.ts';
import { append } from '../kafka/loops/leader-calls.ts';
import { partitionFor } from '../kafka/records/partitioner.ts';
import type { NewRecord } from '../kafka/records/record.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';

export interface RequestSenderOptions {
  readonly cluster: Pick<Cluster, 'partitions' | 'leader' | 'call' | 'markStale'>;
  readonly runtime: Runtime;
  readonly topic: string;
}

/** A request that waits for its append. */
interface Waiting {
  readonly record: NewRecord;
  readonly isWanted: () => boolean;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

/** Limits of one append: far below any topic's limit, far above what arrives during one append. */
const MAX_RECORDS = 500;
const MAX_BYTES = 64_000;
/** Size of a record without its key and value. */
const RECORD_BYTES = 64;
const APPEND_TIMEOUT_MS = 5_000;
/** How long the broker may wait for its replicas: less than we wait for the broker. */
const REPLICATION_TIMEOUT_MS = 4_000;
/** Abandoned requests are purged when the queue is twice as long as after the last purge, and at least this long. */
const MIN_PURGE = 1_000;

/**
 * Appends requests to the request topic, one append at a time per partition. Requests that arrive meanwhile share the next
 * append, so that many requests need few calls. Nothing is retried here.
 *
 *   idle -> due: a request arrived; the append starts in a microtask, with the other requests of the same turn
 *   due -> appending: one append of the queue, limited in number and bytes; then due again if more wait, else idle
 */
export class RequestSender {
  readonly #options: RequestSenderOptions;
  readonly #queues = new Map<number, PartitionQueue>();

  constructor(options: RequestSenderOptions) {
    this.#options = options;
  }

  /** Resolves when the request is in the log, or is no longer wanted. Rejects with KafkaError. */
  async send(record: NewRecord & { readonly key: Buffer }, isWanted: () => boolean): Promise<void> {
    const { cluster, topic } = this.#options;
    const partition = partitionFor(record.key, await cluster.partitions(topic, APPEND_TIMEOUT_MS), () => 0);
    const queue = this.#queues.get(partition) ?? new PartitionQueue((records) => this.#append(partition, records));
    this.#queues.set(partition, queue);
    await new Promise<void>((resolve, reject) => queue.add({ record, isWanted, resolve, reject }));
  }

  async #append(partition: number, records: readonly NewRecord[]): Promise<void> {
    const { cluster, runtime, topic } = this.#options;
    await append(cluster, runtime, {
      topic,
      partition,
      records,
      lane: 'append',
      timeoutMs: APPEND_TIMEOUT_MS,
      replicationTimeoutMs: REPLICATION_TIMEOUT_MS,
    });
  }
}

class PartitionQueue {
  readonly #append: (records: readonly NewRecord[]) => Promise<void>;
  #waiting: Waiting[] = [];
  #purgeAt = MIN_PURGE;
  #idle = true;

  constructor(append: (records: readonly NewRecord[]) => Promise<void>) {
    this.#append = append;
  }

  add(request: Waiting): void {
    this.#waiting.push(request);
    if (this.#waiting.length >= this.#purgeAt) this.#purge();
    if (!this.#idle) return;
    this.#idle = false;
    queueMicrotask(() => void this.#drain());
  }

  async #drain(): Promise<void> {
    for (let batch = this.#cut(); batch.length > 0; batch = this.#cut()) {
      try {
        await this.#append(batch.map(({ record }) => record));
        for (const { resolve } of batch) resolve();
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
    this.#idle = true;
  }

  /** Removes the requests of the next append from the queue. */
  #cut(): readonly Waiting[] {
    const batch: Waiting[] = [];
    let bytes = 0;
    let taken = 0;
    for (const request of this.#waiting) {
      if (request.isWanted()) {
        bytes += sizeOf(request.record);
        if (batch.length > 0 && (bytes > MAX_BYTES || batch.length === MAX_RECORDS)) break;
        batch.push(request);
      } else {
        request.resolve();
      }
      taken += 1;
    }
    this.#waiting.splice(0, taken);
    return batch;
  }

  #purge(): void {
    const isWanted = (request: Waiting) => request.isWanted();
    for (const request of this.#waiting) if (!isWanted(request)) request.resolve();
    this.#waiting = this.#waiting.filter(isWanted);
    this.#purgeAt = Math.max(MIN_PURGE, 2 * this.#waiting.length);
  }
}

function sizeOf({ key, value }: NewRecord): number {
  return RECORD_BYTES + (key?.length ?? 0) + (value?.length ?? 0);
}
