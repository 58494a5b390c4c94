import type { EachBatchPayload, Kafka } from 'kafkajs';
import { WitnessTable, type WitnessView } from '../../codec/witness.ts';
import { GroupConsumer } from './group-consumer.ts';
import { safeOffset } from './ledger-log.ts';

interface WitnessRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
}

/** What was read of the witness topic so far; it outlives the consumers that read it. */
export class WitnessFollower {
  readonly #table: WitnessTable;
  readonly #waiting = new Set<{ readonly offset: number; readonly arrived: () => void }>();
  /** The offset to go on from; everything below was read. */
  position = 0;

  constructor(datacenterId: number) {
    this.#table = new WitnessTable(datacenterId);
  }

  /** Records in the order of the log. It is compacted, so offsets are missing; what comes a second time is left out. */
  deliver(records: readonly WitnessRecord[]): void {
    for (const { offset, key, value } of records) {
      if (offset < this.position) continue;
      this.#table.apply(key, value);
      this.position = offset + 1;
    }
    for (const waiter of this.#waiting) {
      if (waiter.offset >= this.position) continue;
      this.#waiting.delete(waiter);
      waiter.arrived();
    }
  }

  /** Resolves once the record at an offset was read; a caller that no longer waits aborts the signal. */
  reached(offset: number, signal: AbortSignal): Promise<void> {
    if (offset < this.position) return Promise.resolve();
    return new Promise((resolve) => {
      const waiter = { offset, arrived: resolve };
      this.#waiting.add(waiter);
      signal.addEventListener('abort', () => this.#waiting.delete(waiter), { once: true });
    });
  }

  /** Reads on from the start of a log that has become shorter. What was witnessed before still counts. */
  startAnew(): void {
    this.position = 0;
  }

  view(): WitnessView {
    return this.#table.view();
  }
}

export interface WitnessReaderOptions {
  readonly kafka: Kafka;
  readonly topic: string;
  /** A group of this reader alone; nothing is ever committed in it. */
  readonly groupId: string;
  readonly follower: WitnessFollower;
  /** The reader ended for good and will not start again by itself. */
  readonly onCrash: (error: Error) => void;
}

/** How long a broker holds a fetch that finds nothing; it answers at once when a record comes. */
const MAX_WAIT_MS = 500;

/** Reads the one partition of the witness topic, all the time, into a follower. */
export class WitnessReader {
  readonly #options: WitnessReaderOptions;
  readonly #group: GroupConsumer;
  #joined = false;

  constructor(options: WitnessReaderOptions) {
    this.#options = options;
    const { kafka, topic, groupId, onCrash } = options;
    this.#group = new GroupConsumer({
      kafka,
      topic,
      config: { groupId, maxWaitTimeInMs: MAX_WAIT_MS },
      onJoin: () => {
        this.#joined = true;
        this.restart();
      },
      onCrash,
    });
  }

  start(): Promise<void> {
    return this.#group.run({ eachBatch: (payload) => this.#deliver(payload) });
  }

  stop(): Promise<void> {
    return this.#group.end();
  }

  /** Goes on from where the follower is, now or as soon as the group is joined. */
  restart(): void {
    if (!this.#joined) return;
    const { topic, follower } = this.#options;
    this.#group.consumer.seek({ topic, partition: 0, offset: String(follower.position) });
  }

  async #deliver({ batch, resolveOffset, heartbeat }: EachBatchPayload): Promise<void> {
    this.#options.follower.deliver(
      batch.messages.map(({ offset, key, value }) => ({ offset: safeOffset(offset), key, value })),
    );
    resolveOffset(batch.lastOffset());
    await heartbeat();
  }
}
