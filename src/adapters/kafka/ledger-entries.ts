import type { Runtime } from '../../core/runtime.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { callLeader, partitionFault } from '../../kafka/loops/leader-call.ts';
import { offsetAt, START } from '../../kafka/loops/offsets.ts';
import { retrying } from '../../kafka/loops/retrying.ts';
import { decodeBatches, UNREADABLE } from '../../kafka/records/decode.ts';
import type { FetchedRecord } from '../../kafka/records/record.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import { faultOf, KafkaFault } from '../../kafka/wire/fault.ts';
import type { LedgerEntries, LedgerRecord } from '../../pipeline/ports.ts';
import { isTransientFault } from './brokers.ts';

export interface KafkaLedgerEntriesOptions {
  readonly cluster: Pick<Cluster, 'leader' | 'call' | 'doubt'>;
  readonly runtime: Runtime;
  readonly topic: string;
}

/** For one offset, whatever has to be tried meanwhile. */
const READ_TIMEOUT_MS = 5_000;
const ONE_READ_TIMEOUT_MS = 1_500;
/** A fetch for one entry brings the record batch that it lies in; a replay wants what follows as well. */
const FEW_BYTES = 64 * 1024;
const MANY_BYTES = 1_048_576;
/** With so many entries to be read, those next to them are likely to be asked for next. */
const MANY_ENTRIES = 16;
/** Partitions whose last chunk is kept: some 3 MB each once it is decoded. */
const MAX_KEPT_CHUNKS = 16;
/** Who reads on in a chunk does so at once. What is kept may have gone from the log since. */
const KEPT_MS = 1_000;

/** Entries as they were read on from an offset, at this time or later. */
interface Chunk {
  readonly askedMs: number;
  readonly from: number;
  readonly next: number;
  readonly records: readonly FetchedRecord[];
}

const NOTHING: Chunk = { askedMs: 0, from: 0, next: 0, records: [] };

/**
 * Reads single entries of the ledger, by their offsets. A replay asks for one after the other: so the last chunk of a
 * partition is kept for a moment, until it is read elsewhere. Not for longer: an entry that retention has taken decides
 * nothing any more, and whoever does not know of it may have decided anew.
 */
export class KafkaLedgerEntries implements LedgerEntries {
  readonly #options: KafkaLedgerEntriesOptions;
  /** The one that was used last stands last. */
  readonly #kept = new Map<number, Chunk>();
  /** Times that `forget` was called: what was being read by then is not kept. */
  #forgets = 0;

  constructor(options: KafkaLedgerEntriesOptions) {
    this.#options = options;
  }

  async read(partition: number, offsets: readonly number[]): Promise<ReadonlyMap<number, LedgerRecord>> {
    const found = new Map<number, LedgerRecord>();
    const forgets = this.#forgets;
    let chunk = this.#keptOf(partition);
    for (const offset of offsets) {
      if (offset < chunk.from || offset >= chunk.next) {
        chunk = await this.#readFrom(partition, offset, offsets.length >= MANY_ENTRIES ? MANY_BYTES : FEW_BYTES);
      }
      const record = entryAt(chunk, offset);
      if (record !== undefined) found.set(offset, toEntry(partition, record));
    }
    if (forgets === this.#forgets) this.#keep(partition, chunk);
    return found;
  }

  /** What was read of the partition may be of another log by now. */
  forget(partition: number): void {
    this.#forgets += 1;
    this.#kept.delete(partition);
  }

  #keptOf(partition: number): Chunk {
    const chunk = this.#kept.get(partition);
    const isYoung = chunk !== undefined && this.#options.runtime.monotonicMs() - chunk.askedMs < KEPT_MS;
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
      return await retrying(runtime, { timeoutMs: READ_TIMEOUT_MS, isTransient: mayPass }, (leftMs) => {
        return this.#fetch(partition, offset, maxBytes, Math.min(leftMs, ONE_READ_TIMEOUT_MS));
      });
    } catch (error) {
      const message = `the entry at offset ${offset} of ledger partition ${partition} was not read from topic '${topic}': ${describeError(error)}`;
      throw new IdallocError(isBeyondEnd(error) ? 'LEDGER_TRUNCATED' : 'LEDGER_UNANSWERED', message, { cause: error });
    }
  }

  async #fetch(partition: number, offset: number, maxBytes: number, timeoutMs: number): Promise<Chunk> {
    const { cluster, runtime, topic } = this.#options;
    const place = { topic, partition };
    const request = { maxWaitMs: 0, maxBytes, isolation, partitions: [{ ...place, offset, maxBytes }] };
    const askedMs = runtime.monotonicMs();
    const { answer } = await callLeader(cluster, runtime, { ...place, lane: 'entries', timeoutMs }, (link) =>
      link.fetch(request),
    );
    const fetched = answer.partitions.find((one) => one.topic === topic && one.partition === partition);
    if (fetched === undefined)
      throw new KafkaFault('MALFORMED_ANSWER', `nothing of ${topic}/${partition} was answered`);
    if (fetched.fault === 'OFFSET_OUT_OF_RANGE') return this.#gone(partition, offset, timeoutMs);
    if (fetched.fault !== undefined) throw partitionFault(cluster, place, fetched.fault);
    const { records, next } = await decodeBatches(fetched, offset, isolation, () => runtime.nextTurn());
    if (next > offset) return { askedMs, from: offset, next, records };
    throw new KafkaFault('OFFSET_NOT_AVAILABLE', `${topic}/${partition} ends before offset ${offset} by its leader`);
  }

  /**
   * Below the log's start an entry is gone. Beyond the end it is to come yet, when the leader turns out to be none any more;
   * a log whose leader goes on to say so has lost it.
   */
  async #gone(partition: number, offset: number, timeoutMs: number): Promise<Chunk> {
    const { cluster, runtime, topic } = this.#options;
    const askedMs = runtime.monotonicMs();
    const start = await offsetAt(cluster, runtime, { topic, partition, isolation, timeoutMs }, START);
    if (offset < start) return { askedMs, from: offset, next: start, records: [] };
    throw new KafkaFault(BEYOND_END, `${topic}/${partition} lacks offset ${offset} by its leader`);
  }
}

/** As the index reads: what is in the ledger counts, whoever wrote it. */
const isolation = 'read_uncommitted' as const;

const BEYOND_END = 'OFFSET_OUT_OF_RANGE';

function isBeyondEnd(error: unknown): boolean {
  return faultOf(error) === BEYOND_END;
}

function mayPass(fault: ReturnType<typeof faultOf>): boolean {
  return isTransientFault(fault) || fault === 'MALFORMED_ANSWER' || fault === BEYOND_END;
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

/** Throws LEDGER_UNREADABLE for one that stands for what can't be read. */
function toEntry(partition: number, { offset, key, value, headers, timestampMs }: FetchedRecord): LedgerRecord {
  const why = headers[UNREADABLE];
  if (why === undefined) return { offset, key, value, appendedAtMs: timestampMs };
  const message = `the entry at offset ${offset} of ledger partition ${partition} can't be read: ${why}`;
  throw new IdallocError('LEDGER_UNREADABLE', message);
}
