import { SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { KafkaPublisher } from '../../src/adapters/kafka/publisher.ts';
import { ReplyTopics } from '../../src/adapters/kafka/reply-topics.ts';
import { Slots } from '../../src/async/slots.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { DEFAULT_HEADER_NAMES } from '../../src/codec/request-headers.ts';
import { wallMs } from '../../src/core/units.ts';
import { BatchDecoder } from '../../src/kafka/records/decode.ts';
import { encodeBatch } from '../../src/kafka/records/encode.ts';
import { type NewRecord, partitionFor } from '../../src/kafka/records/record.ts';
import type { Cluster } from '../../src/kafka/wire/cluster.ts';
import { Ledger } from '../../src/ledger/ledger.ts';
import { LedgerPartition } from '../../src/ledger/partition.ts';
import { Accounts } from '../../src/pipeline/accounts.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { RequestReader } from '../../src/pipeline/intake.ts';
import { JunkLimits } from '../../src/pipeline/junk-limits.ts';
import { LARGE_AT_ONCE, type PipelineDeps } from '../../src/pipeline/part.ts';
import { RecordTurns } from '../../src/pipeline/record-turns.ts';
import { UNTRACED } from '../../src/pipeline/trace.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { CountingAllocator } from '../support/memory-allocator.ts';
import { MemoryEndHeads, UNSEEN_ENDS } from '../support/memory-ends.ts';
import { layout } from '../support/memory-records.ts';

const REQUESTS = 'id.requests';
const REPLIES = 'id.replies.main';
const REPLY_PARTITIONS = 8;
/** The requests of a chunk, and of each of its batches, which a producer sent. */
const CHUNK = 2_000;
const BATCH = 500;
/** The parts in progress of a partition, as in a session. */
const PARTS_AT_ONCE = 3;

/** What requests ask for, and where. By default each asks for one ID, in its home partition. */
export interface Shape {
  /** So many IDs, listed in the reply. */
  readonly listed?: number;
  /** Of a header that nobody reads. */
  readonly padBytes?: number;
  /** They name so many reply topics, in turn. */
  readonly topics?: number;
  readonly isElsewhere?: boolean;
  /** They are no requests at all. */
  readonly isJunk?: boolean;
}

/**
 * The way of a request through a worker, over brokers that answer immediately: record batches are decoded, decided by
 * the real pipeline, ledger and index, and encoded for the ledger and for the reply topic.
 */
export class ServedPath implements Disposable {
  readonly #index: SqliteIndex;
  readonly #deps: PipelineDeps;
  readonly #partitions: number;
  readonly #offsets: number[];
  #made = 0;

  constructor(directory: string, partitions: number) {
    this.#partitions = partitions;
    this.#offsets = new Array<number>(partitions).fill(0);
    const fail = (cause: unknown) => {
      throw new Error(String(cause));
    };
    this.#index = new SqliteIndex(
      directory,
      { clusterId: 'c', ledgerTopic: 'l', partitions },
      { onWiped: fail, onUnusable: fail },
    );
    const copies = Array.from({ length: partitions }, (_, partition) => {
      while (this.#index.load(partition));
      const copy = new LedgerPartition(partition, {
        index: this.#index,
        runtime: RUNTIME,
        onRestart: (_, cause) => fail(cause),
        onChange: () => {},
        onStop: (_, error) => fail(error),
      });
      copy.open();
      copy.begin({ low: 0, high: 0 });
      return copy;
    });
    const ends = new Array<number>(partitions).fill(0);
    const ledger = new Ledger({
      log: {
        append: async (partition, entries) => {
          encodeBatch(entries, RUNTIME.wallMs());
          const baseOffset = ends[partition] ?? 0;
          ends[partition] = baseOffset + entries.length;
          return { baseOffset, appendedAtMs: Math.floor(RUNTIME.wallMs()) };
        },
        endOffset: async (partition) => ends[partition] ?? 0,
        requestEnd: async () => Number.MAX_SAFE_INTEGER,
      },
      entries: { read: async () => new Map(), forget: () => {} },
      index: this.#index,
      partitions: copies,
      restateAfterMs: Number.POSITIVE_INFINITY,
      now: () => wallMs(RUNTIME.wallMs()),
      monotonicMs: RUNTIME.monotonicMs,
      trustedNow: () => undefined,
      timeStep: async (_step, work) => await work(),
      heads: new MemoryEndHeads(),
      endEvents: UNSEEN_ENDS,
    });
    ledger.ends.isCompared = async () => true;
    const cluster = {
      leader: async () => 0,
      markStale: () => {},
      metadataForUse: async (topics: readonly string[]) => ({
        topics: topics.map((name) => ({
          name,
          partitions: Array.from({ length: REPLY_PARTITIONS }, (_, partition) => ({ partition, leader: 0 })),
        })),
      }),
      call: async () => ({ throttleMs: 0, baseOffset: 0, appendedAtMs: 0, logStartOffset: 0 }),
    } as unknown as Cluster;
    const topics = new ReplyTopics(cluster, RUNTIME);
    const publisher = new KafkaPublisher({
      cluster,
      runtime: RUNTIME,
      topics,
      purpose: 'publish',
      requestTopic: REQUESTS,
      deadLetterTopic: 'id.requests.dlt',
    });
    this.#deps = {
      layout,
      datacenterId: 3,
      maxCount: 100_000,
      index: this.#index,
      partitions,
      ledger,
      allocator: new CountingAllocator(1),
      numbers: { decide: () => Promise.reject(new RangeError('requests for numbers are not measured here')) },
      now: () => wallMs(RUNTIME.wallMs()),
      names: DEFAULT_HEADER_NAMES,
      reader: new RequestReader({
        names: DEFAULT_HEADER_NAMES,
        replyPolicy: {
          prefix: 'id.replies.',
          requestTopic: REQUESTS,
          ownTopics: [REQUESTS, 'id.requests.dlt', 'id.ledger'],
        },
        homeOf: (key) => partitionFor(key, partitions, () => 0),
      }),
      requestTopic: REQUESTS,
      deadLetterTopic: 'id.requests.dlt',
      replyTopics: topics,
      publisher,
      largePublisher: publisher,
      largeSlots: new Slots(LARGE_AT_ONCE),
      turns: new RecordTurns(RUNTIME),
      accounts: new Accounts({
        rate: { usPerMs: 125, burstUs: 5_000 },
        monotonicMs: RUNTIME.monotonicMs,
        accountOf: (replyTopic) => replyTopic,
        onWaits() {},
      }),
      junk: new JunkLimits({ perSecond: 10, burst: 1_000 }, RUNTIME),
      observe: { served() {}, replied() {}, failed() {}, deadLettered() {}, forwarded() {}, deferred() {} },
      timeStep: async (_step, work) => await work(),
      tracing: UNTRACED,
      trustedNow: () => undefined,
      renewAfterMs: 1_800_000,
      clockMarginMs: 60_000,
    };
  }

  /** Makes new requests. The result serves them, and resolves to the processor time of each, in microseconds. */
  prepare(requests: number, shape: Shape = {}): () => Promise<number> {
    const chunks = this.#make(requests, shape);
    return async () => {
      const before = process.cpuUsage();
      await Promise.all([...chunks].map(([partition, its]) => this.#servePartition(partition, its)));
      const { user, system } = process.cpuUsage(before);
      return (user + system) / requests;
    };
  }

  serve(requests: number, shape?: Shape): Promise<number> {
    return this.prepare(requests, shape)();
  }

  async #servePartition(partition: number, chunks: readonly Buffer[]): Promise<void> {
    for (const records of chunks) {
      const from = this.#offsets[partition] ?? 0;
      const decoder = new BatchDecoder({
        fetched: { records, aborted: [] },
        from,
        isolation: 'read_committed',
        nextTurn: RUNTIME.nextTurn,
      });
      const read = await decoder.read(20_000);
      this.#offsets[partition] = read.next;
      const served: Promise<void>[] = [];
      await processBatch(this.#deps, partition, read.records, {
        isCurrent: () => true,
        resolved: () => {},
        answer: async (_offset, answer) => {
          served.push(answer());
          await served[served.length - PARTS_AT_ONCE];
        },
      });
      await Promise.all(served);
    }
  }

  #make(requests: number, { listed, padBytes, topics = 1, isElsewhere, isJunk }: Shape): Map<number, Buffer[]> {
    const junk = isJunk === true ? Buffer.from('junk') : undefined;
    const value = junk ?? encodeIdRequest({ count: listed ?? 1, encoding: listed === undefined ? 'RANGES' : 'IDS' });
    const replyTopics = Array.from({ length: topics }, (_, i) => Buffer.from(i === 0 ? REPLIES : `${REPLIES}-${i}`));
    const pad = padBytes === undefined ? {} : { pad: Buffer.alloc(padBytes) };
    const records = Array.from({ length: this.#partitions }, (): NewRecord[] => []);
    for (let i = 0; i < requests; i += 1) {
      this.#made += 1;
      const key = Buffer.from(`request-${this.#made}`);
      const headers = { kafka_correlationId: key, kafka_replyTopic: replyTopics[i % topics], ...pad };
      const home = partitionFor(key, this.#partitions, () => 0);
      records[isElsewhere === true ? (home + 1) % this.#partitions : home]?.push({ key, value, headers });
    }
    return new Map(records.map((its, partition) => [partition, chunksOf(its, this.#offsets[partition] ?? 0)]));
  }

  [Symbol.dispose](): void {
    this.#index[Symbol.dispose]();
  }
}

/** As a broker stores them, from an offset on. */
function chunksOf(records: readonly NewRecord[], first: number): Buffer[] {
  const chunks: Buffer[] = [];
  for (let at = 0; at < records.length; at += CHUNK) {
    const batches: Buffer[] = [];
    for (let from = at; from < Math.min(at + CHUNK, records.length); from += BATCH) {
      const batch = encodeBatch(records.slice(from, Math.min(from + BATCH, at + CHUNK)), RUNTIME.wallMs());
      batch.writeBigInt64BE(BigInt(first + from), 0);
      batches.push(batch);
    }
    chunks.push(Buffer.concat(batches));
  }
  return chunks;
}
