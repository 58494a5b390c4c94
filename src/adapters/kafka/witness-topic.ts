import type { Producer, RecordMetadata } from 'kafkajs';
import { sealKey, sealValue, type WitnessView, witnessKey, witnessValue } from '../../codec/witness.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { WitnessEntry, WitnessPort } from '../../identity/ports.ts';
import type { WitnessFollower } from './witness-reader.ts';

export interface WitnessTopicOptions {
  /** Not idempotent and not transactional. */
  readonly producer: Producer;
  readonly topic: string;
  readonly datacenterId: number;
  readonly follower: WitnessFollower;
  /** Reads the topic again from where the follower is. */
  readonly restartReader: () => void;
  /** How long a call may take in all. */
  readonly callLimitMs: number;
}

/** How long a broker may wait for its followers before it answers. */
const REPLICATION_TIMEOUT_MS = 3_000;
const MAX_ENTRIES = 2_000;

interface Message {
  readonly key: Buffer;
  readonly value: Buffer | null;
}

/**
 * The witness topic, written through kafkajs and read by a follower.
 *
 * "Read to the end" means: up to a record that was written after the call. The high watermark would not do, since the
 * last records of a compacted log may be gone, and a reader never gets there.
 */
export class WitnessTopic implements WitnessPort {
  readonly #options: WitnessTopicOptions;
  /** The send that was begun last; only one is under way, so that an earlier one can't come to lie behind a later. */
  #sending: Promise<unknown> = Promise.resolve();

  constructor(options: WitnessTopicOptions) {
    this.#options = options;
  }

  read(): Promise<WitnessView> {
    // A record without a value, under a key that nobody uses: it is gone with the next compaction.
    return this.#call([{ key: Buffer.from(`${this.#options.datacenterId}/end`), value: null }]);
  }

  write(entries: readonly WitnessEntry[]): Promise<WitnessView> {
    if (entries.length > MAX_ENTRIES) throw new RangeError(`${entries.length} entries are more than ${MAX_ENTRIES}`);
    return this.#call(entries.map((entry) => this.#toMessage(entry)));
  }

  #toMessage(entry: WitnessEntry): Message {
    const { datacenterId } = this.#options;
    if ('seal' in entry) return { key: sealKey(datacenterId), value: sealValue(entry.seal) };
    if ('clear' in entry) return { key: Buffer.from(entry.clear, 'latin1'), value: null };
    if ('drop' in entry) return { key: witnessKey(datacenterId, entry.drop), value: null };
    return { key: witnessKey(datacenterId, entry.put), value: witnessValue(entry.put) };
  }

  async #call(messages: readonly Message[]): Promise<WitnessView> {
    const over = new AbortController();
    const { promise: late, reject } = Promise.withResolvers<never>();
    const { callLimitMs } = this.#options;
    const timer = setTimeout(() => reject(unavailable(`no answer in ${callLimitMs} ms`)), callLimitMs);
    try {
      return await Promise.race([this.#appendAndRead(messages, over.signal), late]);
    } finally {
      clearTimeout(timer);
      over.abort();
    }
  }

  async #appendAndRead(messages: readonly Message[], over: AbortSignal): Promise<WitnessView> {
    const { follower, restartReader } = this.#options;
    await this.#sending;
    if (over.aborted) throw unavailable('an earlier write was not answered');
    const known = follower.position;
    const base = await this.#append(messages);
    if (base < known) {
      follower.startAnew();
      restartReader();
      throw unavailable('its log has become shorter, and is read anew');
    }
    await follower.reached(base + messages.length - 1, over);
    return follower.view();
  }

  /** The offset of the first message. Anything but exactly one good answer counts as none. */
  async #append(messages: readonly Message[]): Promise<number> {
    const { producer, topic } = this.#options;
    const send = producer.send({
      topic,
      acks: -1,
      timeout: REPLICATION_TIMEOUT_MS,
      messages: messages.map((message) => ({ ...message, partition: 0 })),
    });
    this.#sending = send.catch(() => undefined);
    let answer: RecordMetadata[];
    try {
      answer = await send;
    } catch (error) {
      throw unavailable(describeError(error), error);
    }
    const [only] = answer;
    const base = Number(only?.baseOffset);
    const good = answer.length === 1 && only?.errorCode === 0 && only.partition === 0;
    if (good && Number.isSafeInteger(base) && base >= 0) return base;
    throw unavailable(`its answer can't be relied on: ${JSON.stringify(answer)}`);
  }
}

function unavailable(why: string, cause?: unknown): IdallocError {
  const message = `the witness topic did not take or show a record: ${why}; check that the brokers are healthy`;
  return new IdallocError('KAFKA_UNAVAILABLE', message, { cause });
}
