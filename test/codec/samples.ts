import { readFileSync } from 'node:fs';
import avro, { type Type } from 'avsc';
import fc from 'fast-check';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { LedgerNumbers, LedgerStatement } from '../../src/codec/sequence-entry.ts';

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

const offset = fc.oneof(fc.nat(300), fc.nat(2 ** 31 - 1), fc.maxSafeNat());
const fixed = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((bytes) => Buffer.from(bytes));
const format = fc.oneof(fc.constantFrom('', 'INV-{number:6}'), fc.string({ maxLength: 64 }));
const step = fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 2 ** 40 }));

/** Any record of numbers, up to the largest number. */
export const anyNumbers: fc.Arbitrary<LedgerNumbers> = fc
  .record({
    kind: fc.constant('numbers' as const),
    end: offset,
    through: fc.oneof(offset, fc.constant(-1)),
    at: fc.oneof(offset, fc.constant(-1)),
    requestHash: fixed(16),
    replyTopic: fc.oneof(fc.stringMatching(/^[a-z][a-z.]{0,100}$/), fc.string({ maxLength: 20 })),
    requestOffset: offset,
    framing: fc.constantFrom('SINGLE_OBJECT' as const, 'CONFLUENT' as const),
    schemaFingerprint: fixed(8),
    first: fc.oneof(fc.nat(1_000), fc.maxSafeNat()),
    step,
    format,
  })
  .chain((entry) => {
    const most = Math.floor((Number.MAX_SAFE_INTEGER - entry.first) / entry.step) + 1;
    return fc.integer({ min: 1, max: Math.min(most, 0x7fff_ffff) }).map((count) => ({ ...entry, count }));
  });

/** Any statement of a sequence. */
export const anyStatement: fc.Arbitrary<LedgerStatement> = fc
  .record({
    kind: fc.constant('statement' as const),
    end: offset,
    through: fc.oneof(offset, fc.constant(-1)),
    at: offset,
    step,
    format,
    closed: fc.boolean(),
    edition: fc.oneof(fc.nat(3), fc.maxSafeNat()),
    first: fc.option(fc.oneof(fc.nat(300), fc.maxSafeNat()), { nil: undefined }),
    isLoss: fc.boolean(),
  })
  .chain((entry) => {
    return fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER - entry.step }).chain((max) => {
      return fc.integer({ min: 0, max: max + entry.step }).map((next) => ({ ...entry, max, next }));
    });
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
