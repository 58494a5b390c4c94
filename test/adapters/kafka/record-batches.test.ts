import { createRequire } from 'node:module';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { MAX_INFLATED_BYTES } from '../../../src/adapters/kafka/codecs.ts';
import { mendKafkajs } from '../../../src/adapters/kafka/kafkajs-mends.ts';
import {
  decodeRecordBatches,
  HEADERS_CUT,
  MAX_HEADERS,
  UNREADABLE,
} from '../../../src/adapters/kafka/record-batches.ts';
import { encodeRecord, type HandmadeRecord, lz4, snappy } from '../../support/handmade.ts';

const require = createRequire(import.meta.url);
const Decoder = require('kafkajs/src/protocol/decoder.js');
const decodeModule = require.resolve('kafkajs/src/protocol/requests/fetch/v4/decodeMessages.js');
const theirs = require(decodeModule) as (decoder: unknown) => Promise<Record<string, unknown>[]>;

interface BatchFields {
  readonly baseOffset?: bigint;
  readonly attributes?: number;
  readonly baseTime?: bigint;
  readonly maxTime?: bigint;
  readonly count?: number;
  readonly lastOffsetDelta?: number;
}

/** A record batch in format 2 around the bytes of its records; kafkajs checks no CRC, nor do we. */
function batch(body: Buffer, fields: BatchFields & { readonly count: number }): Buffer {
  const { baseOffset = 0n, attributes = 0, baseTime = 0n, maxTime = 0n, count } = fields;
  const head = Buffer.alloc(61);
  head.writeBigInt64BE(baseOffset, 0);
  head.writeInt32BE(head.length - 12 + body.length, 8);
  head[16] = 2;
  head.writeInt16BE(attributes, 21);
  head.writeInt32BE(fields.lastOffsetDelta ?? count - 1, 23);
  head.writeBigInt64BE(baseTime, 27);
  head.writeBigInt64BE(maxTime, 35);
  head.writeBigInt64BE(7n, 43);
  head.writeInt32BE(count, 57);
  return Buffer.concat([head, body]);
}

function batchOf(records: readonly HandmadeRecord[], fields: BatchFields = {}, compress = (bytes: Buffer) => bytes) {
  const body = Buffer.concat(records.map((record, i) => encodeRecord(record, i)));
  return batch(compress(body), { count: records.length, ...fields });
}

const plain = (value: string): HandmadeRecord => ({ key: Buffer.from('k'), value: Buffer.from(value) });
const valuesOf = (records: readonly { readonly value: Buffer | null }[]) => records.map(({ value }) => String(value));

describe('decoding fetched records', () => {
  const bytes = fc.option(fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array)));
  const name = fc.constantFrom('a', 'b', 'kafka_correlationId', '').map((text) => Buffer.from(text));
  const records = fc.array(
    fc.record({ key: bytes, value: bytes, headers: fc.array(fc.tuple(name, bytes), { maxLength: 4 }) }),
    { minLength: 1, maxLength: 20 },
  );
  const times = fc.record({
    baseOffset: fc.bigInt({ min: 0n, max: 2n ** 52n }),
    attributes: fc.constantFrom(0, 0x08, 0x10, 0x30),
    baseTime: fc.bigInt({ min: -(2n ** 62n), max: 2n ** 62n }),
    maxTime: fc.bigInt({ min: 0n, max: 2n ** 62n }),
  });
  const delta = fc.oneof(fc.bigInt({ min: -100n, max: 100n }), fc.bigInt({ min: -(2n ** 62n), max: 2n ** 62n }));

  it('gives what kafkajs itself gives, for records that it can read', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(records, times, delta), { maxLength: 3 }), async (batches) => {
        const fetched = Buffer.concat(
          batches.map(([its, fields, timeDelta]) => {
            const body = Buffer.concat(its.map((record, i) => encodeRecord(record, i, i === 0 ? 0n : timeDelta)));
            return batch(body, { count: its.length, ...fields });
          }),
        );
        const length = Buffer.alloc(4);
        length.writeInt32BE(fetched.length);
        const expected = await theirs(new Decoder(Buffer.concat([length, fetched])));
        const ours = await decodeRecordBatches(fetched);
        expect(ours.map(comparable)).toEqual(expected.map(comparable));
      }),
      { numRuns: 300 },
    );
  });

  function comparable({
    batchContext,
    headers,
    ...record
  }: Record<string, unknown> | (object & { batchContext?: unknown; headers?: unknown })) {
    const { producerId, inTransaction } = batchContext as Record<string, unknown>;
    return { ...record, headers: { ...(headers as object) }, producerId, inTransaction };
  }

  it('leaves out a batch that the fetch cut off, and keeps those before it', async () => {
    const whole = batchOf([plain('a'), plain('b')]);
    const next = batchOf([plain('c')], { baseOffset: 2n });
    for (const cut of [1, 11, 40, 61, next.length - 1]) {
      const fetched = Buffer.concat([whole, next.subarray(0, cut)]);
      expect(valuesOf(await decodeRecordBatches(fetched))).toEqual(['a', 'b']);
    }
    expect(await decodeRecordBatches(Buffer.alloc(0))).toEqual([]);
  });

  it('knows no header before it was sent', async () => {
    const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty'];
    const headers = names.map((text) => [Buffer.from(text), Buffer.from('x')] as const);
    const [record] = await decodeRecordBatches(batchOf([{ key: null, value: null, headers }]));
    expect(Object.keys(record?.headers ?? {})).toEqual(names);
    expect(Object.values(record?.headers ?? {}).map(String)).toEqual(names.map(() => 'x'));
  });

  it('lists the values of a header that comes again, also where one is null', async () => {
    const values = [null, Buffer.from('x'), null];
    const headers = values.map((value) => [Buffer.from('a'), value] as const);
    const [record] = await decodeRecordBatches(batchOf([{ key: null, value: null, headers }]));
    expect(record?.headers.a).toEqual(values);
  });

  test.each([
    ['different', (i: number) => String(i)],
    ['the same', () => 'a'],
  ])('reads few of 100,000 headers with %s names, and says so', async (_, nameOf) => {
    const headers = Array.from({ length: 100_000 }, (_, i) => [Buffer.from(nameOf(i)), Buffer.of(1)] as const);
    const fetched = batchOf([{ key: null, value: Buffer.from('v'), headers }, plain('next')]);
    const begunMs = performance.now();
    const [record, next] = await decodeRecordBatches(fetched);
    expect(performance.now() - begunMs).toBeLessThan(1_000);
    expect(String(record?.headers[HEADERS_CUT])).toBe('99100 of 100000 left out');
    expect(Object.values(record?.headers ?? {}).flat().length).toBeLessThanOrEqual(MAX_HEADERS);
    expect(String(next?.value)).toBe('next');
  });

  it('reads a batch of as many records as fit into 1 MiB, and lets others run meanwhile', async () => {
    const count = 116_000;
    const fetched = batchOf(Array.from({ length: count }, () => ({ key: null, value: null })));
    let turns = 0;
    const timer = setInterval(() => {
      turns += 1;
    }, 0);
    const records = await decodeRecordBatches(fetched);
    clearInterval(timer);
    expect([records.length, records.at(-1)?.offset]).toEqual([count, String(count - 1)]);
    expect(turns).toBeGreaterThan(5);
  });
});

describe('a compressed batch', () => {
  test.each([
    ['gzip', 1, (bytes: Buffer) => gzipSync(bytes)],
    ['zstd', 4, (bytes: Buffer) => zstdCompressSync(bytes)],
  ])('of %s is read', async (_, attributes, compress) => {
    const fetched = batchOf([plain('a'), plain('b')], { attributes, baseOffset: 5n }, compress);
    const records = await decodeRecordBatches(fetched);
    expect(records.map(({ offset, value }) => [offset, String(value)])).toEqual([
      ['5', 'a'],
      ['6', 'b'],
    ]);
  });

  const bomb = { key: null, value: Buffer.alloc(MAX_INFLATED_BYTES) };
  test.each([
    ['snappy', { attributes: 2 }, [plain('a'), plain('b')], snappy, /^snappy is not read: /],
    ['lz4', { attributes: 3 }, [plain('a'), plain('b')], lz4, /^lz4 is not read: /],
    ['an unknown codec', { attributes: 7 }, [plain('a'), plain('b')], lz4, /^codec 7 is not read: /],
    ['damaged gzip', { attributes: 1 }, [plain('a'), plain('b')], () => Buffer.alloc(9), /gzip batch is damaged/],
    ['damaged zstd', { attributes: 4 }, [plain('a'), plain('b')], () => Buffer.alloc(9), /zstd batch is damaged/],
    ['a gzip bomb', { attributes: 1 }, [plain('a'), bomb], (bytes: Buffer) => gzipSync(bytes), /gzip batch holds more/],
    [
      'a zstd bomb',
      { attributes: 4 },
      [plain('a'), bomb],
      (bytes: Buffer) => zstdCompressSync(bytes),
      /zstd batch holds/,
    ],
    [
      'fewer records than it says',
      { count: 3 },
      [plain('a'), plain('b')],
      (bytes: Buffer) => bytes,
      /^the batch is damaged/,
    ],
    [
      'a length behind its end',
      {},
      [plain('a'), plain('b')],
      (bytes: Buffer) => bytes.fill(0x7e, 0, 1),
      /^the batch is damaged/,
    ],
    ['another format', {}, [plain('a'), plain('b')], (bytes: Buffer) => bytes, /^record format 1 is not read/],
  ] as const)(
    'of %s becomes a record at each end that tells why, and reading goes on',
    async (what, fields, records, compress, reason) => {
      const bad = batchOf(
        records,
        { baseOffset: 5n, lastOffsetDelta: 1, ...fields },
        compress as (bytes: Buffer) => Buffer,
      );
      if (what === 'another format') bad[16] = 1;
      const fetched = Buffer.concat([batchOf([plain('before')]), bad, batchOf([plain('behind')], { baseOffset: 7n })]);
      const found = await decodeRecordBatches(fetched);
      expect(found.map(({ offset, value }) => [offset, value === null ? null : String(value)])).toEqual([
        ['0', 'before'],
        ['5', null],
        ['6', null],
        ['7', 'behind'],
      ]);
      for (const { headers } of found.slice(1, 3)) expect(String(headers[UNREADABLE])).toMatch(reason);
    },
  );
});

describe('the mend of kafkajs', () => {
  it('is in force where its fetch response is read, in each version', async () => {
    mendKafkajs();
    const fetched = batchOf([plain('a')], { attributes: 2 }, snappy);
    const partition = Buffer.concat([Buffer.alloc(4 + 2 + 8 + 8 + 8 + 4), size(fetched)]);
    const preferred = Buffer.concat([Buffer.alloc(4 + 2 + 8 + 8 + 8 + 4 + 4), size(fetched)]);
    const topic = (its: Buffer) => Buffer.concat([Buffer.from([0, 0, 0, 1, 0, 1, 0x74, 0, 0, 0, 1]), its]);
    const bodies = {
      v5: Buffer.concat([Buffer.alloc(4), topic(partition)]),
      v7: Buffer.concat([Buffer.alloc(10), topic(partition)]),
      v11: Buffer.concat([Buffer.alloc(10), topic(preferred)]),
    };
    for (const [version, body] of Object.entries(bodies)) {
      const { decode } = require(`kafkajs/src/protocol/requests/fetch/${version}/response.js`);
      const { responses } = await decode(body);
      const [message] = responses[0].partitions[0].messages;
      expect(String(message.headers[UNREADABLE]), version).toMatch(/^snappy is not read/);
    }
  });

  function size(fetched: Buffer): Buffer {
    const length = Buffer.alloc(4);
    length.writeInt32BE(fetched.length);
    return Buffer.concat([length, fetched]);
  }
});
