import type { Runtime } from '../../core/runtime.ts';
import type { FetchedRecord } from '../records/record.ts';
import type { WireLog } from '../wire/broker.ts';
import type { Cluster, Lane } from '../wire/cluster.ts';
import type { KafkaFault } from '../wire/fault.ts';
import type { FetchRequest } from '../wire/port.ts';
import type { PartitionBounds } from './offsets.ts';

export interface TailOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'doubt'>;
  readonly runtime: Runtime;
  readonly lane: Lane;
  readonly isolation: FetchRequest['isolation'];
  /** How long a broker may hold a fetch that finds nothing. */
  readonly maxWaitMs: number;
  /** Of one fetch, and of one partition in it. A record batch that is larger comes whole all the same. */
  readonly maxBytes: number;
  readonly maxBytesPerPartition: number;
  readonly log?: WireLog;
  readonly onFault?: (topic: string, partition: number, fault: KafkaFault) => void;
}

export interface TailChunk {
  /** May be empty, where there were only markers and aborted records. */
  readonly records: readonly FetchedRecord[];
  /** Records below this offset are not among them: they were delivered before, or the sink does not need them. */
  readonly from: number;
  /** The offset to go on from. */
  readonly next: number;
  readonly highWatermark: number;
  readonly logStartOffset: number;
}

export interface TailSink {
  /**
   * Takes one chunk at a time, in order; the next one comes when it has resolved. A rejection is a bug of the sink: it is
   * reported as SINK_FAILED, and the chunk is delivered again after a second.
   */
  deliver(chunk: TailChunk): void | Promise<void>;
  /** A fetch was answered, with records or without: the log ends there now, open transactions included. */
  looked?(highWatermark: number): void;
  /** Asked before a chunk is decoded, which waits for it: records below this offset need not be delivered. */
  neededFrom?(): Promise<number>;
  /** The position lies outside of the log: where to go on. Without it that is the log's start, with a warning. */
  outOfRange?(bounds: PartitionBounds, position: number): number | Promise<number>;
}

export interface Followed {
  /** The next offset to be delivered: the sink is done with everything below. */
  readonly position: number;
  /** Nothing is delivered while paused. What was fetched is kept. */
  pause(): void;
  resume(): void;
  /** Reads on from there. What was fetched is dropped; a delivery under way ends by itself. */
  seek(offset: number): void;
  /** For good; a delivery under way ends by itself. */
  stop(): void;
}
