import { retrying } from '../../async/retrying.ts';
import type { Runtime } from '../../async/runtime.ts';
import { EMPTY_MARKER } from '../../codec/ledger-entry.ts';
import { ANSWERED_HEADER, type CommittedPosition, encodeAnswered } from '../../codec/request-position.ts';
import type { DriftSample } from '../../core/clock-guard.ts';
import { type Reading, wallMs } from '../../core/units.ts';
import { describeError, IdallocError } from '../../errors.ts';
import {
  append,
  END,
  fetchAt,
  type LeaderCluster,
  offsetAt,
  partitionError,
  START,
} from '../../kafka/loops/leader-calls.ts';
import { decodeBatches, UNREADABLE } from '../../kafka/records/decode.ts';
import { encodeBatch } from '../../kafka/records/encode.ts';
import type { FetchedRecord, NewRecord } from '../../kafka/records/record.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import { KafkaError, kafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import type { Appended, LedgerEntries, LedgerLog, LedgerRecord, NewEntry } from '../../ledger/ledger-ports.ts';
import { isTransient, isTransientCode, isWriteOver } from './brokers.ts';

export interface KafkaLedgerLogOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'markStale' | 'metadata'>;
  readonly runtime: Runtime;
  readonly topic: string;
  readonly requestTopic: string;
  readonly readClock: () => Reading;
  /** Gets a sample of the broker's clock from each response. */
  readonly onDriftSample: (sample: DriftSample) => void;
  /** What this worker has answered of the partition's requests; undefined while it does not know. */
  readonly answered: (partition: number) => CommittedPosition | undefined;
}

/** The time limit of an append with its retries: a silent broker blocks a partition no longer than this. */
const APPEND_TIMEOUT_MS = 5_000;
/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 4_000;
/** The time limit of reading the end of a partition, with retries. */
const OFFSET_TIMEOUT_MS = 5_000;
const ONE_OFFSET_TIMEOUT_MS = 1_500;
const METADATA_TIMEOUT_MS = 5_000;
/** For this long an isolated broker may believe that it still leads, and return an outdated end. */
const DEPOSED_MS = 10_000;
const RETRY_DELAY_MS = 500;
/** The most brokers whose clocks are sampled at a time: the median of five tolerates two that are wrong. */
const MAX_SAMPLED = 5;
/** How long after the first response the others are waited for. */
const LATE_RESPONSE_MS = 1_500;

interface Timed {
  readonly appended: Appended;
  readonly sample: DriftSample;
}

/** Writes the ledger topic. One record batch per append, neither idempotent nor transactional. */
export class KafkaLedgerLog implements LedgerLog {
  readonly #options: KafkaLedgerLogOptions;
  /** Of the leaders, how many were sampled: the next ones are sampled next, so that each is in its turn. */
  #sampled = 0;

  constructor(options: KafkaLedgerLogOptions) {
    this.#options = options;
  }

  /**
   * The first entry also says what is answered, should the group's committed offset be lost or moved by another
   * program.
   */
  async append(partition: number, entries: readonly NewEntry[]): Promise<Appended> {
    const { answered, onDriftSample } = this.#options;
    const position = answered(partition);
    const firstHeaders = position && { [ANSWERED_HEADER]: encodeAnswered(position) };
    const { appended, sample } = await this.#timedAppend(partition, entries, firstHeaders);
    onDriftSample(sample);
    return appended;
  }

  /**
   * Samples the clocks of the leaders of the ledger by appending an empty marker: no other response of a broker
   * contains its time. Resolves with one sample per response, once most have answered or the others are too late;
   * onDriftSample does not get them. Rejects with APPEND_UNANSWERED or KAFKA_UNAVAILABLE if none answers.
   */
  async sampleBrokerClocks(): Promise<readonly DriftSample[]> {
    const partitions = await this.#onePartitionOfEachLeader();
    if (partitions.length === 0) {
      throw new IdallocError('KAFKA_UNAVAILABLE', `no partition of ${this.#options.topic} has a leader`);
    }
    const appends = partitions.map((partition) => this.#timedAppend(partition, [{ key: null, value: EMPTY_MARKER }]));
    const responses = await mostOf(this.#options.runtime, appends);
    return responses.map(({ sample }) => sample);
  }

  endOffset(partition: number, known = 0): Promise<number> {
    return this.#endFrom(this.#options.topic, partition, known);
  }

  requestEnd(partition: number, known: number): Promise<number> {
    return this.#endFrom(this.#options.requestTopic, partition, known + 1);
  }

  /** The end of a partition; one below `least` is requested again for a while. */
  async #endFrom(topic: string, partition: number, least: number): Promise<number> {
    const { cluster, runtime } = this.#options;
    const untilMs = runtime.monotonicMs() + DEPOSED_MS;
    for (;;) {
      const end = await this.#endOf(topic, partition);
      if (end >= least || runtime.monotonicMs() >= untilMs) return end;
      cluster.markStale(topic);
      await runtime.sleep(RETRY_DELAY_MS);
    }
  }

  async #onePartitionOfEachLeader(): Promise<number[]> {
    const { cluster, topic } = this.#options;
    const { topics } = await cluster.metadata([topic], METADATA_TIMEOUT_MS).catch((error: unknown) => {
      const message = `no broker reports the time: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    });
    const partitions = topics.find(({ name }) => name === topic)?.partitions ?? [];
    const byLeader = new Map(partitions.map(({ partition, leader }) => [leader, partition]));
    byLeader.delete(-1); // no leader
    const all = [...byLeader.values()];
    const from = all.length > MAX_SAMPLED ? this.#sampled % all.length : 0;
    this.#sampled += MAX_SAMPLED;
    return [...all.slice(from), ...all.slice(0, from)].slice(0, MAX_SAMPLED);
  }

  async #timedAppend(
    partition: number,
    entries: readonly NewRecord[],
    firstHeaders?: NewRecord['headers'],
  ): Promise<Timed> {
    const { cluster, runtime, topic, readClock } = this.#options;
    const batch = encodeBatch(entries, runtime.wallMs(), firstHeaders);
    try {
      return await retrying(runtime, { timeoutMs: APPEND_TIMEOUT_MS, isTransient: isWriteOver }, async (timeoutMs) => {
        const sent = readClock();
        const appending = {
          topic,
          partition,
          purpose: 'append' as const,
          timeoutMs,
          replicationTimeoutMs: REPLICATION_TIMEOUT_MS,
        };
        const { baseOffset, appendedAtMs, node } = await append(cluster, runtime, { ...appending, batch });
        const received = readClock();
        requireStamped(appendedAtMs);
        return {
          appended: { baseOffset: safeOffset(baseOffset), appendedAtMs },
          sample: { broker: String(node), sent: sent.wall, received: received.wall, appended: wallMs(appendedAtMs) },
        };
      });
    } catch (error) {
      if (error instanceof IdallocError) throw error;
      const message = `the ledger did not answer an append: ${describeError(error)}`;
      throw new IdallocError('APPEND_UNANSWERED', message, { cause: error });
    }
  }

  async #endOf(topic: string, partition: number): Promise<number> {
    const { cluster, runtime } = this.#options;
    try {
      return await retrying(runtime, { timeoutMs: OFFSET_TIMEOUT_MS, isTransient }, async (leftMs) => {
        const timeoutMs = Math.min(leftMs, ONE_OFFSET_TIMEOUT_MS);
        return safeOffset(
          await offsetAt(cluster, runtime, { topic, partition, isolation: 'read_uncommitted', timeoutMs }, END),
        );
      });
    } catch (error) {
      if (error instanceof IdallocError) throw error;
      const message = `the end of partition ${partition} of topic '${topic}' is unknown: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }
}

function requireStamped(appendedAtMs: number): void {
  if (appendedAtMs >= 0) return;
  throw new IdallocError(
    'LEDGER_WEAK',
    "the ledger topic does not use the brokers' timestamps: set its message.timestamp.type to LogAppendTime",
  );
}

/** Throws LEDGER_UNREADABLE for a number that is not an offset, such as -1. */
function safeOffset(offset: number): number {
  if (Number.isSafeInteger(offset) && offset >= 0) return offset;
  throw new IdallocError('LEDGER_UNREADABLE', `Kafka returned invalid offset ${offset}`);
}

/**
 * The results of more than half of the promises; fewer once all have settled, or STRAGGLER_MS after the first resolved.
 * Rejects if none resolves.
 */
function mostOf<T>(runtime: Runtime, promises: readonly Promise<T>[]): Promise<readonly T[]> {
  const { promise, resolve, reject } = Promise.withResolvers<readonly T[]>();
  const responses: T[] = [];
  let left = promises.length;
  let late: { cancel(): void } | undefined;
  const settled = (error?: unknown) => {
    left -= 1;
    if (responses.length > 0) late ??= runtime.schedule(LATE_RESPONSE_MS, () => resolve([...responses]));
    if (left > 0 && responses.length <= promises.length / 2) return;
    late?.cancel();
    if (responses.length > 0) resolve([...responses]);
    else reject(error);
  };
  for (const one of promises) {
    one.then((response) => {
      responses.push(response);
      settled();
    }, settled);
  }
  return promise;
}

export interface KafkaLedgerEntriesOptions {
  readonly cluster: LeaderCluster;
  readonly runtime: Runtime;
  readonly topic: string;
}

/** The time limit of reading one offset, including retries. */
const READ_TIMEOUT_MS = 5_000;
const ONE_READ_TIMEOUT_MS = 1_500;
/**
 * The bytes of all fetches of one read together, besides a record batch for each, which is the least that a broker
 * returns. A read of few entries may take less: that of one entry has what follows as well, for a replay.
 */
const MANY_BYTES = 1_048_576;
const FEW_BYTES = 64 * 1024;
/** When this many entries are near each other, their neighbours are likely to be read next. */
const MANY_ENTRIES = 16;
/**
 * Offsets that are nearer are read by the same fetch: as many entries as fit into the bytes of a few. Of many offsets
 * only so near ones that what lies between all of them fits into the bytes of many.
 */
const NEAR = 500;
/** Places that are fetched side by side. */
const FETCHES_AT_ONCE = 4;
/** Partitions whose last chunk is kept: about 3 MB each when decoded. */
const MAX_KEPT_CHUNKS = 16;
/** Sequential reads follow immediately. Later, the entries of a kept chunk may be gone from the log. */
const KEPT_MS = 1_000;

/** Entries read from an offset on, at `requestedAtMs` or later. */
interface Chunk {
  readonly requestedAtMs: number;
  readonly from: number;
  readonly next: number;
  readonly records: readonly FetchedRecord[];
  /** As they were fetched. */
  readonly bytes: number;
}

const NOTHING: Chunk = { requestedAtMs: 0, from: 0, next: 0, records: [], bytes: 0 };

/**
 * Reads single entries of the ledger by their offsets. Where they lie apart, several places are fetched side by side,
 * and share what one read may take: otherwise requests whose decisions are strewn over the ledger would read all of it.
 *
 * A replay reads one after the other, so the last chunk of each partition is kept for a moment. Not for longer: an
 * entry deleted by retention no longer decides anything, and a worker that does not know it may have decided again.
 */
export class KafkaLedgerEntries implements LedgerEntries {
  readonly #options: KafkaLedgerEntriesOptions;
  /** The most recently used one is last. */
  readonly #kept = new Map<number, Chunk>();
  /** The number of calls to `forget`: reads that started before the last one are not kept. */
  #forgets = 0;

  constructor(options: KafkaLedgerEntriesOptions) {
    this.#options = options;
  }

  async read(partition: number, offsets: readonly number[]): Promise<ReadonlyMap<number, LedgerRecord>> {
    const found = new Map<number, LedgerRecord>();
    const forgets = this.#forgets;
    let last = this.#keptOf(partition);
    const take = (chunk: Chunk, offset: number) => {
      const record = entryAt(chunk, offset);
      if (record !== undefined) found.set(offset, toEntry(partition, record));
    };
    for (const offset of offsets) if (isWithin(last, offset)) take(last, offset);
    const due = placesOf(offsets.filter((offset) => !isWithin(last, offset)));
    const share = Math.floor(MANY_BYTES / Math.max(1, due.length));
    let hasFailed = false;
    // Neighbours of a place are often in its chunk, so they are not in another lane.
    const fetchInTurn = async (places: readonly (readonly number[])[]) => {
      let chunk = NOTHING;
      for (const place of places) {
        let left = Math.min(share, place.length >= MANY_ENTRIES ? MANY_BYTES : FEW_BYTES);
        for (const offset of place) {
          if (hasFailed) return;
          if (!isWithin(chunk, offset)) {
            chunk = await this.#readFrom(partition, offset, Math.max(1, left));
            left -= chunk.bytes;
          }
          take(chunk, offset);
        }
        if (chunk.next > last.next) last = chunk;
      }
    };
    try {
      await Promise.all(lanesOf(due).map(fetchInTurn));
    } catch (error) {
      hasFailed = true; // nothing more is fetched
      throw error;
    }
    if (forgets === this.#forgets) this.#keep(partition, last);
    return found;
  }

  /** The log of the partition may have been replaced: drops what was read of it. */
  forget(partition: number): void {
    this.#forgets += 1;
    this.#kept.delete(partition);
  }

  #keptOf(partition: number): Chunk {
    const chunk = this.#kept.get(partition);
    const isYoung = chunk !== undefined && this.#options.runtime.monotonicMs() - chunk.requestedAtMs < KEPT_MS;
    return isYoung ? chunk : NOTHING;
  }

  #keep(partition: number, chunk: Chunk): void {
    this.#kept.delete(partition);
    this.#kept.set(partition, chunk);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > MAX_KEPT_CHUNKS && oldest !== undefined) this.#kept.delete(oldest);
  }

  async #readFrom(partition: number, offset: number, maxBytes: number): Promise<Chunk> {
    const { runtime, topic } = this.#options;
    try {
      return await retrying(runtime, { timeoutMs: READ_TIMEOUT_MS, isTransient: isTransientRead }, (leftMs) => {
        return this.#fetch(partition, offset, maxBytes, Math.min(leftMs, ONE_READ_TIMEOUT_MS));
      });
    } catch (error) {
      const message = `reading the entry at offset ${offset} of ledger partition ${partition} from topic '${topic}' failed: ${describeError(error)}`;
      throw new IdallocError(isBeyondEnd(error) ? 'LEDGER_TRUNCATED' : 'LEDGER_UNANSWERED', message, { cause: error });
    }
  }

  async #fetch(partition: number, offset: number, maxBytes: number, timeoutMs: number): Promise<Chunk> {
    const { cluster, runtime, topic } = this.#options;
    const place = { topic, partition };
    const requestedAtMs = runtime.monotonicMs();
    const query = { ...place, offset, maxBytes, isolation, purpose: 'entries', timeoutMs } as const;
    const { fetched } = await fetchAt(cluster, runtime, query);
    if (fetched.errorCode === 'OFFSET_OUT_OF_RANGE') return this.#gone(partition, offset, timeoutMs);
    if (fetched.errorCode !== undefined) throw partitionError(cluster, place, fetched.errorCode);
    const { records, next } = await decodeBatches(fetched, offset, isolation, () => runtime.nextTurn());
    if (next > offset) return { requestedAtMs, from: offset, next, records, bytes: fetched.records.length };
    throw new KafkaError(
      'OFFSET_NOT_AVAILABLE',
      `${topic}/${partition} ends before offset ${offset}, according to its leader`,
    );
  }

  /**
   * Below the log's start an entry is gone. Beyond the end it may still exist, if the broker turns out not to lead any
   * more; if the leader still reports that end, the log has lost the entry.
   */
  async #gone(partition: number, offset: number, timeoutMs: number): Promise<Chunk> {
    const { cluster, runtime, topic } = this.#options;
    const requestedAtMs = runtime.monotonicMs();
    const start = await offsetAt(cluster, runtime, { topic, partition, isolation, timeoutMs }, START);
    if (offset < start) return { ...NOTHING, requestedAtMs, from: offset, next: start };
    throw new KafkaError(BEYOND_END, `${topic}/${partition} has no offset ${offset}, according to its leader`);
  }
}

/** Like the index: every entry of the ledger counts, whichever producer wrote it. */
const isolation = 'read_uncommitted' as const;

const BEYOND_END = 'OFFSET_OUT_OF_RANGE';

function isBeyondEnd(error: unknown): boolean {
  return kafkaErrorCode(error) === BEYOND_END;
}

/** Whether reading an entry may succeed later. A broker that does not lead any more may end below the entry. */
function isTransientRead(error: unknown): boolean {
  const errorCode = kafkaErrorCode(error);
  return isTransientCode(errorCode) || errorCode === 'MALFORMED_RESPONSE' || errorCode === BEYOND_END;
}

function isWithin({ from, next }: Chunk, offset: number): boolean {
  return offset >= from && offset < next;
}

/** Rising offsets, apart where they are far from each other. */
function placesOf(offsets: readonly number[]): number[][] {
  const places: number[][] = [];
  const near = Math.min(NEAR, (MANY_ENTRIES * NEAR) / offsets.length);
  let before = Number.NEGATIVE_INFINITY;
  for (const offset of offsets) {
    if (offset - before < near) places.at(-1)?.push(offset);
    else places.push([offset]);
    before = offset;
  }
  return places;
}

/** The places in order, for as many fetches side by side. */
function lanesOf(places: readonly number[][]): number[][][] {
  const lanes = Math.min(places.length, FETCHES_AT_ONCE);
  const from = (lane: number) => Math.floor((lane * places.length) / lanes);
  return Array.from({ length: lanes }, (_, lane) => places.slice(from(lane), from(lane + 1)));
}

function entryAt({ records }: Chunk, offset: number): FetchedRecord | undefined {
  let [low, high] = [0, records.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((records[middle] as FetchedRecord).offset < offset) low = middle + 1;
    else high = middle;
  }
  return records[low]?.offset === offset ? records[low] : undefined;
}

/** Throws LEDGER_UNREADABLE for the placeholder of an unreadable batch. */
function toEntry(partition: number, { offset, key, value, headers, timestampMs }: FetchedRecord): LedgerRecord {
  const why = headers[UNREADABLE];
  if (why === undefined) return { offset, key, value, headers, appendedAtMs: timestampMs };
  const message = `the entry at offset ${offset} of ledger partition ${partition} can't be read: ${why}`;
  throw new IdallocError('LEDGER_UNREADABLE', message);
}
