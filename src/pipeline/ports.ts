import type { RecordHeaders } from '../codec/request-headers.ts';
import type { IdRange } from '../core/generator.ts';
import type { Bytes, Slice } from '../core/slice.ts';
import type { WallMs } from '../core/units.ts';

/**
 * The ports of the pipeline: record batches come in through its entry point, everything else goes through
 * these ports. Offsets are whole numbers below 2^53; the adapters reject larger ones.
 */

/** One record of the request topic, not validated yet. */
export interface RequestRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: RecordHeaders;
  readonly timestampMs: number;
  /** Its batch has very many records for its bytes. The same at every reading. */
  readonly isDense?: boolean | undefined;
  /** Set in a record that stands for a dense batch which was not read: for all of its records, from this offset on. */
  readonly since?: number | undefined;
  /** Of a record that was fetched: value and headers, as they were sent. */
  readonly fields?: RequestFields | undefined;
  /** Of a record that is a view of fetched bytes: a copy that does not keep these alive. */
  detached?(): RequestRecord;
}

/** The value and the headers of a record, for comparing it with another one without reading both. */
interface RequestFields {
  /** The length of the whole record, decompressed. */
  readonly bytes: number;
  /** Whether value and headers are those of another record, but for the values of this header. */
  isLike(other: RequestFields, except: string): boolean;
  /** Whether both were read from one batch. */
  isOfBatch(other: RequestFields): boolean;
  /** The value of the first header of this name; undefined if there is none, or null. */
  headerAt(name: string): Slice | undefined;
}

/** Records of one partition, in offset order. */
export interface RequestChunk {
  readonly records: readonly RequestRecord[];
  /** The next offset to read: after the last record, and after any transaction markers that follow it. */
  readonly next: number;
  /** Called when all of it is answered or deferred, and all before it. */
  readonly answered?: () => void;
}

/** Looks up the schema IDs of Confluent framing in the schema registry. */
export interface SchemaIds {
  /**
   * Looks up the unknown IDs, and those of our schemas, at the cost of the partition's budget. Rejects with
   * SCHEMA_REGISTRY_UNAVAILABLE while it is worth waiting for the registry; resolves without some of them when it has
   * been silent for too long, has no answer for that ID alone, or the budget is used up.
   */
  learn(ids: ReadonlySet<number>, partition: number): Promise<void>;
  /**
   * The bytes that precede a value of the ID's schema in single-object framing; `none` if it is not a request schema,
   * undefined when unknown.
   */
  requestHeader(id: number): Buffer | 'none' | undefined;
  /** The ID of the schema of replies with IDs or errors; undefined when unknown. */
  replyId(): number | undefined;
  /**
   * That of replies with numbers of a sequence; undefined if the registry does not have it. Known as soon as `replyId`
   * is.
   */
  numbersReplyId(): number | undefined;
}

/** Headers to publish. A slice is the place where a request has the value. */
export type OutgoingHeaders = Readonly<Record<string, RecordHeaders[string] | Slice>>;

/** A record to publish. Without a partition, the hash of its key decides. */
export interface OutgoingRecord {
  readonly topic: string;
  readonly partition?: number | undefined;
  readonly key: Buffer | Slice | null;
  readonly value: Bytes | null;
  readonly headers: OutgoingHeaders;
  readonly timestampMs?: number;
}

/** The outcome for one record: delivered, or why not, and whether the record or its topic caused that. */
export type Delivery =
  | { readonly ok: true }
  | { readonly ok: false; readonly reason: string; readonly cause: 'record' | 'topic' };

/** The writing side of reply topics and of the dead-letter topic. */
export interface Publisher {
  /**
   * Publishes durably; returns an outcome for each record, in order. An error of a topic (missing, too large, not
   * allowed) fails only that topic's records; a retryable error rejects, and then the outcome of all of them is
   * unknown.
   *
   * `partition`: the request partition that waits for it.
   */
  publish(records: readonly OutgoingRecord[], partition: number): Promise<readonly Delivery[]>;
}

/** Looks up reply topics, before IDs are taken for a reply that nobody could get. */
export interface ReplyTopicLookup {
  /**
   * Whether the topic exists and can be seen; may be cached. Rejects with KAFKA_UNAVAILABLE when the brokers do not
   * answer.
   */
  exists(topic: string): Promise<boolean>;
}

/** IDs for one request, with the worker, term and time that allocated them. */
export interface Allocation {
  readonly ranges: readonly IdRange[];
  readonly workerId: number;
  readonly fence: bigint;
  readonly generatedAt: WallMs;
}

/** The only source of new IDs; it checks clock, lease and ceiling. */
export interface Allocator {
  /**
   * Returns one allocation for each count, in order; waits for the clock where it needs future ticks. Rejects with the
   * code of the refusal; IDs taken until then become a gap.
   */
  allocate(counts: readonly number[]): Promise<readonly Allocation[]>;
  /** Whether the term of an allocation lasts, so that its IDs may be given to a request now. */
  holds(allocation: Allocation): boolean;
}

/** How a swap ended. unanswered: etcd may have done it, or may do it later; failed: it answered that it does not. */
type SwapOutcome = 'done' | 'refused' | 'unanswered' | 'failed';

/**
 * The ledger had lost numbers of a sequence, from `from` on; it goes on at `to`, and unknown requests up to `through`
 * are FORGOTTEN.
 */
export interface NumbersLoss {
  readonly partition: number;
  readonly sequence: string;
  readonly from: number;
  readonly to: number;
  readonly through: number;
}

/** Receives what happens to sequences, for metrics and the log. */
export interface NumbersObserver {
  swapped(outcome: SwapOutcome): void;
  lost(loss: NumbersLoss): void;
  /** The ledger was ahead of the head in etcd, which says the same now. */
  repaired(partition: number): void;
  /** The ledger contradicts what etcd holds of the sequence. */
  stopped(partition: number, sequence: string): void;
}
