import { gunzipSync, gzipSync, zstdCompressSync } from 'node:zlib';
import kafkajs, { type Kafka, type Message, type Producer, type RecordMetadata } from 'kafkajs';
import { createPartitioner } from '../../src/adapters/kafka/partitioner.ts';

const { CompressionCodecs, CompressionTypes } = kafkajs;

/** A record's bytes, with what kafkajs' own encoder refuses: names that are no text, values that are null. */
export interface HandmadeRecord {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers?: readonly (readonly [Buffer, Buffer | null])[];
}

/** Zigzag, as in Kafka's record format and in Avro; of any size, since some tests want one that is too long. */
export function varint(value: bigint | number): Buffer {
  const number = BigInt(value);
  const bytes: number[] = [];
  let left = number >= 0n ? number << 1n : (-number << 1n) - 1n;
  for (; left >= 0x80n; left >>= 7n) bytes.push(Number(left & 0x7fn) | 0x80);
  return Buffer.from([...bytes, Number(left)]);
}

function sized(bytes: Buffer | null): Buffer {
  return bytes === null ? varint(-1) : Buffer.concat([varint(bytes.length), bytes]);
}

/** One record of a batch in format 2, with its length. */
export function encodeRecord({ key, value, headers = [] }: HandmadeRecord, offsetDelta = 0, timeDelta = 0n): Buffer {
  const body = Buffer.concat([
    Buffer.of(0),
    varint(timeDelta),
    varint(offsetDelta),
    sized(key),
    sized(value),
    varint(headers.length),
    ...headers.flatMap(([name, its]) => [sized(name), sized(its)]),
  ]);
  return Buffer.concat([varint(body.length), body]);
}

/** Snappy without compression: the length, then literals, each with its length less one in two bytes. */
export function snappy(bytes: Buffer): Buffer {
  const parts: Buffer[] = [unsigned(bytes.length)];
  for (let at = 0; at < bytes.length; at += 60_000) {
    const literal = bytes.subarray(at, at + 60_000);
    const tag = Buffer.from([61 << 2, 0, 0]);
    tag.writeUInt16LE(literal.length - 1, 1);
    parts.push(tag, literal);
  }
  return Buffer.concat(parts);
}

function unsigned(value: number): Buffer {
  const bytes: number[] = [];
  let left = value;
  for (; left >= 0x80; left = Math.floor(left / 0x80)) bytes.push((left % 0x80) | 0x80);
  return Buffer.from([...bytes, left]);
}

/** LZ4 without compression: a frame with blocks of at most 64 KB, no checksums but the header's own. */
export function lz4(bytes: Buffer): Buffer {
  const parts: Buffer[] = [Buffer.from('04224d18604082', 'hex')];
  for (let at = 0; at < bytes.length; at += 65_536) {
    const block = bytes.subarray(at, at + 65_536);
    const size = Buffer.alloc(4);
    size.writeUInt32LE(block.length + 0x8000_0000);
    parts.push(size, block);
  }
  return Buffer.concat([...parts, Buffer.alloc(4)]);
}

export type Codec = 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';

const TYPES = {
  none: 8 as kafkajs.CompressionTypes, // its three lowest bits, which are the codec that the broker sees, say none
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
} as const;
const COMPRESS: Readonly<Record<Codec, (bytes: Buffer) => Buffer>> = {
  none: (bytes) => bytes,
  gzip: (bytes) => gzipSync(bytes),
  snappy,
  lz4,
  zstd: (bytes) => zstdCompressSync(bytes),
};

/** A producer of records that a well-meaning client would not send. It changes the codecs of this process. */
export class Handmade implements AsyncDisposable {
  readonly #producer: Producer;
  readonly #topic: string;
  /** What is to be sent in place of the records that kafkajs encoded. */
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
    const producer = kafka.producer({ createPartitioner, retry: { retries: 0 } });
    await producer.connect();
    return new Handmade(producer, topic);
  }

  /** Compressed, which the broker undoes where the topic says uncompressed. */
  async compressed(codec: Codec, messages: readonly Message[]): Promise<RecordMetadata> {
    const answer = await this.#producer.send({
      topic: this.#topic,
      compression: TYPES[codec],
      messages: [...messages],
    });
    return only(answer);
  }

  /** As one batch. */
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
  if (answer === undefined || answers.length !== 1) throw new Error(`not one answer: ${JSON.stringify(answers)}`);
  return answer;
}
