import type { Runtime } from '../../async/runtime.ts';
import type { FetchedRecord } from '../records/record.ts';
import type { Purpose, WireLog } from '../wire/broker.ts';
import type { KafkaError } from '../wire/kafka-error.ts';
import type { FetchRequest } from '../wire/record-apis.ts';
import type { LeaderCluster, PartitionBounds } from './leader-calls.ts';

export interface TailOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  readonly purpose: Purpose;
  readonly isolation: FetchRequest['isolation'];
  /** How long a broker may hold a fetch without records. */
  readonly maxWaitMs: number;
  /** The size limits of a fetch, and of a partition in it. A larger record batch is still returned whole. */
  readonly maxBytes: number;
  readonly maxBytesPerPartition: number;
  /**
   * While several records arrive in this time and none wait, the next fetch is sent no sooner after the one before, so
   * that fewer calls return more. By default the next fetch never waits.
   */
  readonly busyGapMs?: number;
  /** Whether dense batches are not read, but delivered as one record each. */
  readonly skipsDense?: boolean;
  /** Of a record of more bytes than this, only how many it has is delivered. */
  readonly longestRecord?: number;
  /** The records and headers of a chunk, 20,000 by default. */
  readonly maxChunkItems?: number;
  /** Where this reader is: partitions that may lag are read from a replica there, if the brokers know one (KIP-392). */
  readonly rack?: string | undefined;
  readonly log?: WireLog;
  readonly onError?: (topic: string, partition: number, error: KafkaError) => void;
}

export interface TailChunk {
  /** May be empty, if there were only markers and aborted records. */
  readonly records: readonly FetchedRecord[];
  /** Records below this offset are not included: they were delivered before, or the sink does not need them. */
  readonly from: number;
  /** The offset to continue from. */
  readonly next: number;
  readonly highWatermark: number;
  readonly logStartOffset: number;
}

export interface TailSink {
  /**
   * Takes one chunk at a time, in order; the next one comes once this resolves. A rejection is a bug of the sink: it is
   * reported as SINK_FAILED, and the chunk is delivered again after a second.
   */
  deliver(chunk: TailChunk): void | Promise<void>;
  /** A fetch was answered, with or without records. The log now ends at `highWatermark`, open transactions included. */
  fetched?(highWatermark: number): void;
  /** Awaited before a chunk is decoded: records below this offset need not be delivered. */
  neededFrom?(): Promise<number>;
  /**
   * Fetching has failed or the partition has a new leader, and it continues from the same position by itself. Meanwhile
   * the log may have lost its tail and grown again, so that the position exists and nothing there shows it: a sink that
   * depends on what it has read compares it now.
   */
  interrupted?(): void;
  /** The position is outside the log: returns where to continue. By default at the log's start, with a warning. */
  outOfRange?(bounds: PartitionBounds, position: number): number | Promise<number>;
}

export interface FollowFrom {
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** See `Followed.mayLag`; false by default. */
  readonly mayLag?: boolean;
}

export interface Followed {
  /** The next offset to deliver: the sink is done with everything below. */
  readonly position: number;
  /** Nothing is delivered while paused. Fetched records are kept. */
  pause(): void;
  resume(): void;
  /** Continues from `offset`. Fetched records are dropped; a delivery in progress completes. */
  seek(offset: number): void;
  /**
   * Whether records may come from a replica that is behind the leader, from the next fetch on. Without a rack it
   * changes nothing.
   */
  mayLag(may: boolean): void;
  /** Stops permanently; a delivery in progress completes. */
  stop(): void;
}
