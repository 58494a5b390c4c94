import { readFileSync } from 'node:fs';
import avro, { type Type } from 'avsc';
import fc from 'fast-check';
import type { IdBatch } from '../../src/codec/id-batch.ts';

/** A batch of the default layout; its first ID is the golden vector. */
export const BATCH: IdBatch = {
  ranges: [
    { first: 55325805773398016n, count: 3 },
    { first: 55325805777592320n, count: 2 },
  ],
  step: 1n,
  datacenterId: 4,
  workerId: 18,
  fence: 4711n,
  epochMs: 1767225600000,
  layoutFingerprint: '00112233445566ff',
  generatedAtMs: 1780416300000,
};

export const CORRELATION_ID = Buffer.from('0d7c1a9e-order-42');

/** Ranges that neither touch nor overlap, inside 63 bits. */
const ranges = fc
  .array(fc.record({ gap: fc.bigInt(1n, 2n ** 55n), count: fc.integer({ min: 1, max: 500 }) }), {
    minLength: 1,
    maxLength: 20,
  })
  .map((parts) => {
    let next = 0n;
    return parts.map(({ gap, count }) => {
      const first = next + gap;
      next = first + BigInt(count);
      return { first, count };
    });
  });

const safeTime = fc.integer({ min: 0, max: 8_640_000_000_000_000 });
const int32 = fc.integer({ min: 0, max: 0x7fff_ffff });

export const anyBatch: fc.Arbitrary<IdBatch> = fc.record({
  ranges,
  step: fc.constant(1n),
  datacenterId: int32,
  workerId: int32,
  fence: fc.bigInt(1n, 2n ** 63n - 1n),
  epochMs: safeTime,
  layoutFingerprint: fc.uint8Array({ minLength: 8, maxLength: 8 }).map((bytes) => Buffer.from(bytes).toString('hex')),
  generatedAtMs: safeTime,
});

export const anyCorrelationId = fc.uint8Array({ minLength: 1, maxLength: 256 }).map((bytes) => Buffer.from(bytes));

/** Unmodified avsc, with the BigInt long of its manual: shares nothing with our readers and writers. */
export function plainAvro(name: string): Type {
  const long = avro.types.LongType.__with({
    fromBuffer: (bytes: Buffer) => bytes.readBigInt64LE(),
    toBuffer: (value: bigint) => {
      const bytes = Buffer.alloc(8);
      bytes.writeBigInt64LE(value);
      return bytes;
    },
    fromJSON: BigInt,
    toJSON: String,
    isValid: (value: unknown) => typeof value === 'bigint',
    compare: (a: bigint, b: bigint) => (a < b ? -1 : Number(a > b)),
  });
  const schema = JSON.parse(readFileSync(new URL(`../../schemas/${name}.avsc`, import.meta.url), 'utf8'));
  return avro.Type.forSchema(schema, {
    typeHook: (part) =>
      part === 'long' || (typeof part === 'object' && 'type' in part && part.type === 'long') ? long : undefined,
  });
}
