import { createRequire } from 'node:module';
import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { decodeBatches } from '../../../src/kafka/records/decode.ts';
import { encodeBatch } from '../../../src/kafka/records/encode.ts';
import type { NewRecord } from '../../../src/kafka/records/record.ts';
import { plainRecord } from '../../support/record-bytes.ts';

const require = createRequire(import.meta.url);
const Decoder = require('kafkajs/src/protocol/decoder.js');
const Long = require('kafkajs/src/utils/long.js');
const decodeByKafkajs = require('kafkajs/src/protocol/requests/fetch/v4/decodeMessages.js');
const RecordBatch = require('kafkajs/src/protocol/recordBatch/v0/index.js').RecordBatch;
const Record = require('kafkajs/src/protocol/recordBatch/record/v0/index.js');

const BASE_MS = 1_790_000_000_000;
const nextTurn = async (): Promise<void> => {};
const decode = async (batch: Buffer) =>
  (await decodeBatches({ records: batch, aborted: [] }, 0, 'read_committed', nextTurn)).records;

const bytes = fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array));
const name = fc.oneof(fc.constantFrom('a', 'b', 'kafka_correlationId', '', '__proto__', 'é€😀'), fc.string());
const value = fc.option(fc.oneof(bytes, fc.string({ unit: 'binary' })));
const headers = fc.dictionary(name, fc.oneof(value, fc.array(value, { minLength: 2, maxLength: 4 })), {
  maxKeys: 4,
  noNullPrototype: false,
});
const timestampMs = fc.integer({ min: -(2 ** 51), max: 2 ** 51 });
const record: fc.Arbitrary<NewRecord> = fc.record(
  { key: fc.option(bytes), value: fc.option(bytes), headers, timestampMs },
  { requiredKeys: ['key', 'value'] },
);
const records = fc.array(record, { minLength: 1, maxLength: 20 });

const asBytes = (one: Buffer | string | null | undefined) => (one === null ? null : Buffer.from(one ?? ''));

function expectedOf(its: readonly NewRecord[]) {
  return its.map((one, i) => ({
    offset: i,
    timestampMs: one.timestampMs ?? BASE_MS,
    key: one.key,
    value: one.value,
    headers: Object.fromEntries(
      Object.entries(one.headers ?? {}).map(([key, its]) => [
        key,
        Array.isArray(its) ? its.map(asBytes) : asBytes(its as Buffer | string | null),
      ]),
    ),
  }));
}

const plainHeaders = <T extends { headers: object }>(one: T) => ({ ...one, headers: { ...one.headers } });

describe('an encoded batch', () => {
  it('decodes to the same records', async () => {
    await fc.assert(
      fc.asyncProperty(records, async (its) => {
        const decoded = await decode(encodeBatch(its, BASE_MS));
        expect(decoded.map(plainRecord)).toEqual(expectedOf(its).map(plainHeaders));
      }),
      { numRuns: 500 },
    );
  });

  it('is read by kafkajs as the same records, where kafkajs can read them', async () => {
    await fc.assert(
      fc.asyncProperty(records, async (its) => {
        const readable = its.map((one) => ({ ...one, headers: withoutPrototypeNames(one.headers) }));
        const batch = encodeBatch(readable, BASE_MS);
        const length = Buffer.alloc(4);
        length.writeInt32BE(batch.length);
        const found: Record<string, unknown>[] = await decodeByKafkajs(new Decoder(Buffer.concat([length, batch])));
        const seen = found.map((one) => ({
          offset: Number(one.offset),
          timestampMs: Number(one.timestamp),
          key: one.key,
          value: one.value,
          headers: one.headers,
        }));
        expect(seen).toEqual(expectedOf(readable));
      }),
      { numRuns: 300 },
    );
  });

  /** kafkajs finds the names of Object.prototype in every record. */
  function withoutPrototypeNames(its: NewRecord['headers']) {
    return Object.fromEntries(Object.entries(its ?? {}).filter(([key]) => !(key in Object.prototype)));
  }

  it('has the same bytes as kafkajs writes, except for the leader epoch, which only brokers know', async () => {
    const filled = fc.array(
      fc.record({
        key: fc.option(bytes),
        value: fc.option(bytes),
        headers: fc.dictionary(name, bytes, { maxKeys: 4 }),
      }),
      { minLength: 1, maxLength: 20 },
    );
    await fc.assert(
      fc.asyncProperty(filled, fc.nat(1_000_000), async (its, spreadMs) => {
        const timed = its.map((one, i) => ({ ...one, timestampMs: BASE_MS + i * spreadMs }));
        const encoder = await RecordBatch({
          firstTimestamp: BASE_MS,
          maxTimestamp: BASE_MS + (its.length - 1) * spreadMs,
          partitionLeaderEpoch: -1,
          producerEpoch: -1,
          firstSequence: -1,
          lastOffsetDelta: its.length - 1,
          records: timed.map((one, i) =>
            Record({ ...one, offsetDelta: i, timestampDelta: Long.fromValue(i * spreadMs) }),
          ),
        });
        expect(encodeBatch(timed, BASE_MS).equals(encoder.buffer)).toBe(true);
      }),
    );
  });
});

describe('a record to write', () => {
  it('has the timestamp of the batch unless it has its own', async () => {
    const own = { key: null, value: null, timestampMs: 5 };
    const decoded = await decode(encodeBatch([{ key: null, value: null }, own], BASE_MS + 0.7));
    expect(decoded.map((one) => one.timestampMs)).toEqual([BASE_MS, 5]);
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, -(2 ** 53), 2 ** 60])(
    'has the time of the batch where its own, %s, can not be written',
    async (timestampMs) => {
      const [decoded] = await decode(encodeBatch([{ key: null, value: null, timestampMs }], BASE_MS));
      expect(decoded?.timestampMs).toBe(BASE_MS);
    },
  );

  it('has an empty value for an undefined header, and null for a null one', async () => {
    const headers = { a: undefined, b: null, c: ['', null] };
    const [decoded] = await decode(encodeBatch([{ key: null, value: null, headers }], BASE_MS));
    const empty = Buffer.alloc(0);
    expect({ ...decoded?.headers }).toEqual({ a: empty, b: null, c: [empty, null] });
  });

  it('has the headers for the first record behind its own, if it is that one', async () => {
    const its = ['a', 'b'].map((key) => ({ key: Buffer.from(key), value: null, headers: { own: key } }));
    const decoded = await decode(encodeBatch(its, BASE_MS, { first: 'x' }));
    const [a, b, x] = ['a', 'b', 'x'].map((text) => Buffer.from(text));
    expect(decoded.map(({ headers }) => Object.entries(headers))).toEqual([
      [
        ['own', a],
        ['first', x],
      ],
      [['own', b]],
    ]);
  });

  it('encodes lengths correctly where they need one byte more', async () => {
    const lengths = [0, 1, 63, 64, 8_191, 8_192, 1_048_575, 1_048_576];
    const its = lengths.map((length) => ({
      key: Buffer.alloc(length, 1),
      value: Buffer.alloc(length, 2),
      headers: { ['n'.repeat(length)]: Buffer.alloc(length, 3) },
    }));
    const decoded = await decode(encodeBatch(its, BASE_MS));
    expect(decoded.map(({ key, value }) => [key?.length, value?.length])).toEqual(lengths.map((one) => [one, one]));
    const header = (one: (typeof decoded)[number]) =>
      Object.entries(one.headers).map(([key, its]) => [key.length, its?.length]);
    expect(decoded.map(header)).toEqual(lengths.map((one) => [[one, one]]));
  });
});

it('rejects a batch without records, which no broker accepts', () => {
  expect(() => encodeBatch([], BASE_MS)).toThrow(RangeError);
});
