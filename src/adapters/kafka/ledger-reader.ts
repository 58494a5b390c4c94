import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Admin, Consumer, EachBatchPayload, Kafka, KafkaMessage } from 'kafkajs';
import { describeError } from '../../errors.ts';
import type { Log } from '../../log.ts';
import type { LedgerRecord, LogBounds } from '../../pipeline/ports.ts';
import { GroupConsumer } from './group-consumer.ts';
import { safeOffset } from './ledger-log.ts';

/** What the reader feeds; the follower decides where to read and what to make of it. */
interface LedgerSink {
  begin(partition: number, bounds: LogBounds): number;
  resume(partition: number): number;
  deliver(partition: number, records: readonly LedgerRecord[]): void;
  expire(partition: number, low: number, high: number): boolean;
}

export interface LedgerReaderOptions {
  readonly kafka: Kafka;
  readonly admin: Admin;
  readonly topic: string;
  readonly partitions: number;
  /** A group of this reader alone, so that it gets every partition; nothing is ever committed in it. */
  readonly groupId: string;
  readonly sink: LedgerSink;
  readonly log: Log;
  /** The reader ended for good and will not start again by itself. */
  readonly onCrash: (error: Error) => void;
}

/** Entries applied in one go, about 20 ms of work; more would hold up everybody else in the process. */
const APPLY_MAX_ENTRIES = 1_000;
const MAX_WAIT_MS = 100;
/** At most so often a partition is read anew, whatever its log looks like. */
const RESTART_INTERVAL_MS = 500;
/** How often the index is told where the log starts; it looks after its store then as well. */
const EXPIRE_INTERVAL_MS = 10_000;

/** Reads all partitions of the ledger topic, all the time, into one sink. */
export class LedgerReader {
  readonly #options: LedgerReaderOptions;
  readonly #group: GroupConsumer;
  readonly #consumer: Consumer;
  /** Raised when a partition is read anew, so that a batch from before is dropped. */
  readonly #epochs: number[];
  /** Partitions that wait to be read anew. */
  readonly #due = new Set<number>();
  #restartTimer: NodeJS.Timeout | undefined;
  #restartedAtMs = Number.NEGATIVE_INFINITY;
  #expireTimer: NodeJS.Timeout | undefined;
  #expiring: Promise<void> | undefined;
  #running = false;
  #stopped = false;

  constructor(options: LedgerReaderOptions) {
    this.#options = options;
    this.#epochs = new Array<number>(options.partitions).fill(0);
    const { kafka, topic, groupId, onCrash } = options;
    this.#group = new GroupConsumer({
      kafka,
      topic,
      config: { groupId, maxWaitTimeInMs: MAX_WAIT_MS },
      onJoin: () => this.#seekAll(),
      onCrash,
    });
    this.#consumer = this.#group.consumer;
  }

  async start(): Promise<void> {
    const { sink } = this.#options;
    const bounds = await this.#readBounds();
    for (const [partition, found] of bounds) sink.begin(partition, found);
    await this.#group.run({ eachBatch: (payload) => this.#deliver(payload) });
    this.#running = true;
    for (const partition of this.#due) this.restart(partition);
    this.#expireTimer = setInterval(() => {
      this.#expiring ??= this.#expireAll().finally(() => {
        this.#expiring = undefined;
      });
    }, EXPIRE_INTERVAL_MS);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#restartTimer);
    clearInterval(this.#expireTimer);
    await this.#group.end();
    await this.#expiring;
  }

  /** Stops reading a partition, asks the broker for its bounds and reads from where the sink says. */
  restart(partition: number): void {
    this.#epochs[partition] = (this.#epochs[partition] ?? 0) + 1;
    this.#due.add(partition);
    if (!this.#running || this.#stopped) return;
    this.#consumer.pause([{ topic: this.#options.topic, partitions: [partition] }]);
    this.#scheduleRestart();
  }

  #scheduleRestart(): void {
    if (this.#stopped || this.#restartTimer !== undefined) return;
    const sinceMs = performance.now() - this.#restartedAtMs;
    this.#restartTimer = setTimeout(() => this.#restartDue(), Math.max(0, RESTART_INTERVAL_MS - sinceMs));
  }

  async #restartDue(): Promise<void> {
    this.#restartedAtMs = performance.now();
    const { topic, sink, log } = this.#options;
    try {
      const bounds = await this.#readBounds();
      for (const partition of this.#stopped ? [] : this.#due) {
        const found = bounds.get(partition);
        if (found === undefined) continue;
        const offset = sink.begin(partition, found);
        this.#due.delete(partition);
        this.#consumer.seek({ topic, partition, offset: String(offset) });
        this.#consumer.resume([{ topic, partitions: [partition] }]);
      }
    } catch (error) {
      log.warn({ error: describeError(error) }, 'ledger partitions could not be read anew, trying again');
    }
    this.#restartTimer = undefined;
    if (this.#due.size > 0) this.#scheduleRestart();
  }

  /** Lets the index forget what the log no longer has, a step at a time. */
  async #expireAll(): Promise<void> {
    const { sink, log } = this.#options;
    try {
      for (const [partition, { low, high }] of await this.#readBounds()) {
        while (!this.#stopped && sink.expire(partition, low, high)) await nextTurn();
      }
    } catch (error) {
      log.warn({ error: describeError(error) }, 'the index could not forget what the ledger no longer has');
    }
  }

  /** Runs inside the join, before the first fetch of the new generation. */
  #seekAll(): void {
    const { topic, sink } = this.#options;
    for (const partition of this.#epochs.keys()) {
      this.#consumer.seek({ topic, partition, offset: String(sink.resume(partition)) });
    }
  }

  async #deliver({ batch, resolveOffset, heartbeat }: EachBatchPayload): Promise<void> {
    const { partition, messages } = batch;
    const epoch = this.#epochs[partition];
    for (let from = 0; from < messages.length; from += APPLY_MAX_ENTRIES) {
      if (this.#epochs[partition] !== epoch) return;
      const chunk = messages.slice(from, from + APPLY_MAX_ENTRIES);
      const last = chunk.at(-1);
      if (last === undefined) return;
      this.#options.sink.deliver(partition, chunk.map(toRecord));
      resolveOffset(last.offset);
      if (from + APPLY_MAX_ENTRIES < messages.length) await nextTurn();
    }
    await heartbeat();
  }

  async #readBounds(): Promise<ReadonlyMap<number, LogBounds>> {
    const offsets = await this.#options.admin.fetchTopicOffsets(this.#options.topic);
    return new Map(
      offsets.map(({ partition, low, high }) => [partition, { low: safeOffset(low), high: safeOffset(high) }]),
    );
  }
}

function toRecord(message: KafkaMessage): LedgerRecord {
  return {
    offset: safeOffset(message.offset),
    key: message.key,
    value: message.value,
    appendedAtMs: Number(message.timestamp),
  };
}
