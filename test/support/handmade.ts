import { gunzipSync, gzipSync, zstdCompressSync } from 'node:zlib';
import kafkajs, { type Kafka, type Message, type Producer, type RecordMetadata } from 'kafkajs';
import { encodeRecord, type HandmadeRecord, lz4Frame, storedSnappy } from './record-bytes.ts';

const { CompressionCodecs, CompressionTypes } = kafkajs;

export type Codec = 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';

const TYPES = {
  none: 8 as kafkajs.CompressionTypes, // its three lowest bits, which the broker reads as the codec, mean none
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
} as const;
const COMPRESS: Readonly<Record<Codec, (bytes: Buffer) => Buffer>> = {
  none: (bytes) => bytes,
  gzip: (bytes) => gzipSync(bytes),
  snappy: storedSnappy,
  lz4: (bytes) => lz4Frame(bytes),
  zstd: (bytes) => zstdCompressSync(bytes),
};

/** A producer of records that no correct client would send. It changes kafkajs' codecs for this process. */
export class Handmade implements AsyncDisposable {
  readonly #producer: Producer;
  readonly #topic: string;
  /** The bytes to send in place of the records that kafkajs encoded. */
  #instead: Buffer | undefined;

  private constructor(producer: Producer, topic: string) {
    this.#producer = producer;
    this.#topic = topic;
    for (const codec of Object.keys(TYPES) as Codec[]) {
      (CompressionCodecs as Record<number, unknown>)[TYPES[codec]] = () => ({
        compress: async (encoder: { readonly buffer: Buffer }) => COMPRESS[codec](this.#instead ?? encoder.buffer),
        decompress: async (bytes: Buffer) => gunzipSync(bytes),
      });
    }
  }

  static async connect(kafka: Kafka, topic: string): Promise<Handmade> {
    const producer = kafka.producer({
      createPartitioner: kafkajs.Partitioners.DefaultPartitioner,
      retry: { retries: 0 },
    });
    await producer.connect();
    return new Handmade(producer, topic);
  }

  /** Sends compressed messages; the broker decompresses them on a topic with compression.type=uncompressed. */
  async compressed(codec: Codec, messages: readonly Message[]): Promise<RecordMetadata> {
    const answer = await this.#producer.send({
      topic: this.#topic,
      compression: TYPES[codec],
      messages: [...messages],
    });
    return only(answer);
  }

  /** Sends records as one batch. */
  async records(partition: number, records: readonly HandmadeRecord[], codec: Codec = 'none'): Promise<RecordMetadata> {
    this.#instead = Buffer.concat(records.map((record, i) => encodeRecord(record, i)));
    try {
      return await this.compressed(
        codec,
        records.map(() => ({ value: null, partition })),
      );
    } finally {
      this.#instead = undefined;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#producer.disconnect();
  }
}

function only(answers: readonly RecordMetadata[]): RecordMetadata {
  const [answer] = answers;
  if (answer === undefined || answers.length !== 1)
    throw new Error(`one answer expected, not ${JSON.stringify(answers)}`);
  return answer;
}
