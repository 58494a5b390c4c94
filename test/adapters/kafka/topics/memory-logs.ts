import type { Source } from '../../../../src/adapters/kafka/topics/spans.ts';
import { encodeBatch } from '../../../../src/kafka/records/encode.ts';
import { AT, CHECKED_FROM, crc32c, FLAGS, writeInt64 } from '../../../../src/kafka/records/format.ts';
import type { Cluster } from '../../../../src/kafka/wire/cluster.ts';
import type { BrokerLink } from '../../../../src/kafka/wire/port.ts';
import type { FetchedPartition, FetchPosition, ListOffsetsResponse } from '../../../../src/kafka/wire/record-apis.ts';
import { scriptedLink } from '../../../support/scripted-link.ts';
import { VirtualRuntime } from '../../../support/virtual-runtime.ts';

interface Batch {
  readonly from: number;
  readonly to: number;
  readonly bytes: Buffer;
}

interface Log {
  start: number;
  end: number;
  readonly batches: Batch[];
  errorCode: string | undefined;
  faultsLeft: number;
  fetches: number;
}

const START = -2;

/** Partitions in memory behind one broker, with a virtual clock. */
export class MemoryLogs {
  /** Records of a batch; a fetch gets one batch. */
  static readonly BATCH = 500;
  readonly runtime = new VirtualRuntime();
  fetches = 0;
  readonly isolations = new Set<string>();
  answerAfterMs = 0;
  readonly #logs = new Map<string, Log>();

  readonly source: Source;

  constructor() {
    const link = scriptedLink({
      fetch: async ({ partitions, maxWaitMs, isolation }) => {
        this.fetches += 1;
        this.isolations.add(isolation);
        await this.runtime.sleep(this.answerAfterMs);
        const answers = partitions.map((position) => this.#fetch(position));
        const isEmpty = answers.every(({ records, errorCode }) => records.length === 0 && errorCode === undefined);
        if (isEmpty) await this.runtime.sleep(maxWaitMs);
        return { throttleMs: 0, sessionId: 0, partitions: answers };
      },
      listOffsets: async ({ partitions }) => ({
        throttleMs: 0,
        partitions: partitions.map(({ topic, partition, timestampMs }): ListOffsetsResponse['partitions'][number] => {
          const { start, end } = this.#log(topic, partition);
          return { topic, partition, offset: timestampMs === START ? start : end };
        }),
      }),
    });
    const cluster = {
      leader: async () => 1,
      partitions: async (topic: string) => [...this.#logs.keys()].filter((name) => name.startsWith(`${topic}/`)).length,
      call: async (_node: number, _lane: string, _timeoutMs: number, use: (link: BrokerLink) => Promise<unknown>) =>
        use(link),
      markStale: () => undefined,
    };
    this.source = { cluster: cluster as unknown as Cluster, runtime: this.runtime };
  }

  /** Appends records that have their offset in key, value and header, and these headers as well. */
  append(topic: string, partition: number, count: number, headers: Readonly<Record<string, string>> = {}): this {
    const log = this.#log(topic, partition);
    for (let left = count; left > 0; left -= MemoryLogs.BATCH) {
      const from = log.end;
      const records = Array.from({ length: Math.min(left, MemoryLogs.BATCH) }, (_, i) => ({
        key: Buffer.from(`key ${from + i}`),
        value: Buffer.from(`value ${from + i}`),
        headers: { n: String(from + i), ...headers },
      }));
      this.#put(log, encodeBatch(records, this.runtime.wallMs()), records.length);
    }
    return this;
  }

  /** Appends a record with this value. */
  record(topic: string, partition: number, value: Buffer): this {
    this.#put(this.#log(topic, partition), encodeBatch([{ key: null, value }], this.runtime.wallMs()), 1);
    return this;
  }

  /** Appends the end of a transaction, which takes up an offset but is not a record. */
  marker(topic: string, partition: number): this {
    const bytes = encodeBatch([{ key: Buffer.from([0, 0, 0, 1]), value: Buffer.alloc(6) }], this.runtime.wallMs());
    bytes.writeInt16BE(FLAGS.control | FLAGS.transactional, AT.attributes);
    bytes.writeUInt32BE(crc32c(bytes.subarray(CHECKED_FROM)), AT.crc);
    this.#put(this.#log(topic, partition), bytes, 1);
    return this;
  }

  /** Deletes everything below an offset. */
  trim(topic: string, partition: number, start: number): this {
    this.#log(topic, partition).start = start;
    return this;
  }

  /** Makes the next fetches of a partition fail. */
  fail(topic: string, partition: number, errorCode: string, times: number): void {
    Object.assign(this.#log(topic, partition), { errorCode, faultsLeft: times });
  }

  fetched(topic: string, partition: number): number {
    return this.#log(topic, partition).fetches;
  }

  /** Lets everything in flight finish. */
  settle(): Promise<void> {
    return this.runtime.until(this.runtime.sleep(10_000));
  }

  #log(topic: string, partition: number): Log {
    const name = `${topic}/${partition}`;
    const log = this.#logs.get(name) ?? {
      start: 0,
      end: 0,
      batches: [],
      errorCode: undefined,
      faultsLeft: 0,
      fetches: 0,
    };
    this.#logs.set(name, log);
    return log;
  }

  #put(log: Log, bytes: Buffer, count: number): void {
    writeInt64(bytes, log.end, AT.baseOffset);
    log.batches.push({ from: log.end, to: log.end + count, bytes });
    log.end += count;
  }

  #fetch({ topic, partition, offset }: FetchPosition): FetchedPartition {
    const log = this.#log(topic, partition);
    const { start, end } = log;
    log.fetches += 1;
    const records = log.batches.find(({ to }) => to > offset)?.bytes ?? Buffer.alloc(0);
    const answer = { topic, partition, highWatermark: end, lastStableOffset: end, logStartOffset: start, aborted: [] };
    if (log.errorCode !== undefined && log.faultsLeft > 0) {
      log.faultsLeft -= 1;
      return { ...answer, errorCode: log.errorCode, records: Buffer.alloc(0) };
    }
    if (offset < start || offset > end)
      return { ...answer, errorCode: 'OFFSET_OUT_OF_RANGE', records: Buffer.alloc(0) };
    return { ...answer, records };
  }
}
