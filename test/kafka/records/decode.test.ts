import { createRequire } from 'node:module';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it, test, vi } from 'vitest';
import { Cursor } from '../../../src/kafka/records/cursor.ts';
import { BatchDecoder, decodeBatches, UNREADABLE } from '../../../src/kafka/records/decode.ts';
import { HEADERS_CUT, MAX_HEADERS } from '../../../src/kafka/records/fetched-record.ts';
import { DENSE, type FetchedRecord } from '../../../src/kafka/records/record.ts';
import {
  batchAround,
  batchOf,
  CODEC,
  encodeRecord,
  FLAG,
  type HandmadeRecord,
  plain,
  plainRecord,
  sealed,
  varint,
} from '../../support/record-bytes.ts';
import { seeded } from '../../support/seeded.ts';

const require = createRequire(import.meta.url);
const Decoder = require('kafkajs/src/protocol/decoder.js');
const theirs: (
  decoder: unknown,
) => Promise<Record<string, unknown>[]> = require('kafkajs/src/protocol/requests/fetch/v4/decodeMessages.js');

const decode = (records: Buffer, from = 0) => decodeBatches({ records, aborted: [] }, from, 'read_committed', nextTurn);
const valuesOf = (records: readonly { readonly value: Buffer | null }[]) =>
  records.map(({ value }) => (value === null ? null : String(value)));
const offsetsOf = (records: readonly { readonly offset: number }[]) => records.map(({ offset }) => offset);
const reasonOf = (record: { readonly headers: Readonly<Record<string, unknown>> } | undefined) =>
  String(record?.headers[UNREADABLE]);

/** `value` if it is a safe integer, else NaN. */
const asNumber = (value: unknown) => (Number.isSafeInteger(Number(value)) ? Number(value) : Number.NaN);

describe('decoding fetched records', () => {
  const bytes = fc.option(fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array)));
  const name = fc.constantFrom('a', 'b', 'kafka_correlationId', '').map((text) => Buffer.from(text));
  const record = fc.record({ key: bytes, value: bytes, headers: fc.array(fc.tuple(name, bytes), { maxLength: 4 }) });
  const records = fc.array(record, { minLength: 1, maxLength: 20 });
  const times = fc.record({
    attributes: fc.constantFrom(0, FLAG.logAppendTime, FLAG.transactional),
    baseTime: fc.bigInt({ min: -(2n ** 62n), max: 2n ** 62n }),
    maxTime: fc.bigInt({ min: 0n, max: 2n ** 62n }),
  });
  const delta = fc.oneof(fc.bigInt({ min: -100n, max: 100n }), fc.bigInt({ min: -(2n ** 62n), max: 2n ** 62n }));

  it('returns what kafkajs returns, for records that kafkajs can read', async () => {
    const batches = fc.array(fc.tuple(records, times, delta), { maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(batches, fc.bigInt({ min: 0n, max: 2n ** 52n }), async (its, start) => {
        let baseOffset = start;
        const parts = its.map(([records, fields, timeDelta]) => {
          const body = records.map((one, i) => encodeRecord(one, i, i === 0 ? 0n : timeDelta));
          const part = batchAround(Buffer.concat(body), { count: records.length, baseOffset, ...fields });
          baseOffset += BigInt(records.length);
          return part;
        });
        const fetched = Buffer.concat(parts);
        const length = Buffer.alloc(4);
        length.writeInt32BE(fetched.length);
        const expected = await theirs(new Decoder(Buffer.concat([length, fetched])));
        const ours = await decode(fetched, Number(start));
        expect(ours.records.map(plainRecord)).toEqual(
          expected.map(({ offset, timestamp, key, value, headers }) => ({
            offset: Number(offset),
            timestampMs: asNumber(timestamp),
            key,
            value,
            headers,
          })),
        );
        expect(ours.next).toBe(Number(baseOffset));
      }),
      { numRuns: 300 },
    );
  });

  it('reads timestamps exactly, and returns NaN for one that is not a safe integer', async () => {
    const max = 2n ** 53n - 1n;
    const cases: [base: bigint, delta: bigint, expected: number][] = [
      [0n, max, Number(max)],
      [0n, max + 1n, Number.NaN],
      [0n, -max, -Number(max)],
      [max, 1n, Number.NaN],
      [2n ** 62n, 5n - 2n ** 62n, 5],
      [-(2n ** 63n), 2n ** 62n, Number.NaN],
      [1n, 2n ** 63n - 1n, Number.NaN],
      [5n, 2n ** 48n, 5 + 2 ** 48],
      [5n, -(2n ** 49n), 5 - 2 ** 49],
    ];
    for (const [baseTime, timeDelta, expected] of cases) {
      const batch = batchAround(encodeRecord(plain('a'), 0, timeDelta), { count: 1, baseTime });
      expect((await decode(batch)).records[0]?.timestampMs, `${baseTime} ${timeDelta}`).toBe(expected);
    }
  });

  it("returns the broker's timestamp with LogAppendTime, whatever the sender says", async () => {
    const fields = { attributes: FLAG.logAppendTime, baseTime: 3n, maxTime: 9n };
    const { records: found } = await decode(batchOf([plain('a'), plain('b')], fields));
    expect(found.map(({ timestampMs }) => timestampMs)).toEqual([9, 9]);
  });

  it('skips records below the requested offset', async () => {
    const fetched = Buffer.concat([
      batchOf([plain('a'), plain('b')], { baseOffset: 5n }),
      batchOf([plain('c'), plain('d'), plain('e')], { baseOffset: 7n }),
    ]);
    const expected = [
      [5, ['a', 'b', 'c', 'd', 'e']],
      [6, ['b', 'c', 'd', 'e']],
      [8, ['d', 'e']],
      [9, ['e']],
    ] as const;
    for (const [from, values] of expected) {
      const { records: found, next } = await decode(fetched, from);
      expect([valuesOf(found), next]).toEqual([values, 10]);
    }
  });

  it('stays at its offset when there is nothing to read, and continues after a batch emptied by compaction', async () => {
    expect(await decode(Buffer.alloc(0), 17)).toEqual({ records: [], next: 17 });
    const emptied = batchOf([], { baseOffset: 17n, lastOffsetDelta: 4 });
    expect(await decode(emptied, 18)).toEqual({ records: [], next: 22 });
  });

  it('returns the records that compaction kept, and continues after those that it removed', async () => {
    const left = [encodeRecord(plain('b'), 1), encodeRecord(plain('d'), 3)];
    const compacted = batchAround(Buffer.concat(left), { baseOffset: 10n, count: 2, lastOffsetDelta: 5 });
    const { records: found, next } = await decode(compacted, 10);
    expect([offsetsOf(found), next]).toEqual([[11, 13], 16]);
  });

  it('leaves a truncated batch for the next fetch, and keeps those before it', async () => {
    const whole = batchOf([plain('a'), plain('b')]);
    const cutOff = batchOf([plain('c')], { baseOffset: 2n });
    for (const cut of [1, 11, 40, 61, cutOff.length - 1]) {
      const { records: found, next } = await decode(Buffer.concat([whole, cutOff.subarray(0, cut)]));
      expect([valuesOf(found), next]).toEqual([['a', 'b'], 2]);
      expect(await decode(cutOff.subarray(0, cut), 2)).toEqual({ records: [], next: 2 });
    }
  });

  it('marks the records of a batch that has very many for its bytes, as it was sent', async () => {
    const dense = async (count: number, make: () => HandmadeRecord, compress?: (bytes: Buffer) => Buffer) => {
      const attributes = compress === undefined ? 0 : CODEC.gzip;
      const { records } = await decode(batchOf(Array.from({ length: count }, make), { attributes }, compress));
      return [...new Set(records.map((record) => record.isDense))];
    };
    const random = seeded('decode');
    const uuid = () => plain(random.uuid());
    const same = () => plain('0'.repeat(36));
    expect(await dense(DENSE.records, same, gzipSync)).toEqual([false]);
    expect(await dense(DENSE.records + 1, same, gzipSync)).toEqual([true]);
    expect(await dense(DENSE.records + 1, same)).toEqual([false]);
    expect(await dense(DENSE.records + 1, () => plain(''))).toEqual([true]);
    expect(await dense(20 * DENSE.records, uuid, gzipSync)).toEqual([false]);
  });

  it('returns one record for each dense batch where these are skipped, and reads the others', async () => {
    const dense = (text: string, baseOffset: bigint) =>
      batchOf(Array(600).fill(plain(text)), { baseOffset, attributes: CODEC.gzip }, gzipSync);
    const fetched = Buffer.concat([
      batchOf([plain('a')]),
      dense('b', 1n),
      batchOf([plain('c')], { baseOffset: 601n }),
      dense('d', 602n),
    ]);
    const skipping = (from: number) => {
      const fields = { fetched: { records: fetched, aborted: [] }, isolation: 'read_committed', nextTurn } as const;
      return new BatchDecoder({ ...fields, from, skipsDense: true }).read(10);
    };
    const { records: found, next } = await skipping(0);
    const [first, b, c, d] = found;
    expect([valuesOf([first, c] as FetchedRecord[]), next]).toEqual([['a', 'c'], 1_202]);
    expect([b, d]).toMatchObject([
      { offset: 600, since: 1, isDense: true, key: null },
      { offset: 1_201, since: 602, isDense: true, key: null },
    ]);
    expect(b?.value?.equals(d?.value as Buffer)).toBe(false);
    const [again] = (await skipping(600)).records; // for a comparison with what was read before
    expect(again).toEqual({ ...b, since: 600 });
    expect([first?.since, c?.since]).toEqual([undefined, undefined]);
  });

  it('knows only the length of a record that is too long, and keeps nothing of a batch of only such ones', async () => {
    const long = {
      key: Buffer.from('key'),
      value: Buffer.alloc(100_000),
      headers: [[Buffer.from('a'), null]],
    } as const;
    const read = async (handmade: readonly HandmadeRecord[]) => {
      const fetched = { records: batchOf(handmade, { attributes: CODEC.gzip }, gzipSync), aborted: [] };
      const fields = { fetched, from: 0, isolation: 'read_committed', nextTurn, longestRecord: 1_000 } as const;
      const returned = vi.spyOn(ArrayBuffer.prototype, 'transfer');
      try {
        return { ...(await new BatchDecoder(fields).read(10)), returned: returned.mock.calls };
      } finally {
        returned.mockRestore();
      }
    };
    const mixed = await read([plain('short'), long]);
    expect(valuesOf(mixed.records)).toEqual(['short', null]);
    expect(mixed.returned).toEqual([]); // the short one is a view
    const only = await read([long, long]);
    const known = { key: null, value: null, headers: {}, fields: { bytes: expect.any(Number) } };
    expect(only.records).toMatchObject([
      { offset: 0, ...known },
      { offset: 1, ...known },
    ]);
    expect(only.records.map(({ fields }) => Number(fields?.bytes) > 100_000)).toEqual([true, true]);
    expect(only.returned).toEqual([[0]]);
  });

  it('returns views of the fetched bytes, not copies', async () => {
    const headers = [[Buffer.from('name'), Buffer.from('header')]] as const;
    const fetched = batchOf([{ key: Buffer.from('key'), value: Buffer.from('value'), headers }]);
    const [found] = (await decode(fetched)).records;
    for (const view of [found?.key, found?.value, found?.headers.name]) {
      expect((view as Buffer).buffer).toBe(fetched.buffer);
    }
  });

  it('has no header that was not sent', async () => {
    const names = ['__proto__', 'constructor', 'toString', 'hasOwnProperty'];
    const headers = names.map((text) => [Buffer.from(text), Buffer.from('x')] as const);
    const fetched = batchOf([
      { key: null, value: null, headers },
      { key: null, value: null },
    ]);
    const [all, none] = (await decode(fetched)).records;
    expect(Object.keys(all?.headers ?? {})).toEqual(names);
    expect(Object.values(all?.headers ?? {}).map(String)).toEqual(names.map(() => 'x'));
    for (const one of names) expect(none?.headers[one]).toBeUndefined();
  });

  it('lists the values of a repeated header, including null', async () => {
    const values = [null, Buffer.from('x'), null];
    const headers = values.map((value) => [Buffer.from('a'), value] as const);
    const [found] = (await decode(batchOf([{ key: null, value: null, headers }]))).records;
    expect(found?.headers.a).toEqual(values);
  });

  it("doesn't mistake a header name for the one at the same index of the previous record", async () => {
    const names = ['a', 'ab', 'b', '', 'a', 'n'.repeat(100), 'n'.repeat(99), 'a'];
    const fetched = batchOf(
      names.map((text) => ({ key: null, value: null, headers: [[Buffer.from(text), Buffer.from('x')]] as const })),
    );
    const { records: found } = await decode(fetched);
    expect(found.map(({ headers }) => Object.keys(headers))).toEqual(names.map((text) => [text]));
  });
});

describe('a record with many headers', () => {
  test.each([
    ['different', (i: number) => String(i)],
    ['the same', () => 'a'],
  ])('has only the first of 100,000 with %s names read, and says so', async (_, nameOf) => {
    const headers = Array.from({ length: 100_000 }, (_, i) => [Buffer.from(nameOf(i)), Buffer.of(1)] as const);
    const fetched = batchOf([{ key: null, value: Buffer.from('v'), headers }, plain('next')]);
    const reads = vi.spyOn(Cursor.prototype, 'sized');
    const [found, next] = (await decode(fetched)).records;
    expect(reads.mock.calls.length, 'names and values, and keys and values of records').toBeLessThanOrEqual(
      2 * MAX_HEADERS,
    );
    reads.mockRestore();
    expect(String(found?.headers[HEADERS_CUT])).toBe('99100 of 100000 left out');
    expect(Object.values(found?.headers ?? {}).flat().length).toBeLessThanOrEqual(MAX_HEADERS);
    expect(String(next?.value)).toBe('next');
  });

  it('has all of them up to the limit', async () => {
    const headers = Array.from({ length: MAX_HEADERS }, (_, i) => [Buffer.from(String(i)), Buffer.of(1)] as const);
    const [found] = (await decode(batchOf([{ key: null, value: null, headers }]))).records;
    expect(Object.keys(found?.headers ?? {})).toHaveLength(MAX_HEADERS);
  });
});

describe('a fetch of very many tiny items', () => {
  const nothing: HandmadeRecord = { key: null, value: null };
  const garbage = Buffer.alloc(61);
  garbage.writeInt32BE(49, 8);

  test.each([
    ['records', batchOf(Array.from({ length: 116_000 }, () => nothing)), 116_000, 29],
    ['batches', inOrder(15_000, (baseOffset) => batchOf([nothing], { baseOffset })), 15_000, 7],
    ['empty batches', inOrder(17_000, () => batchOf([], { lastOffsetDelta: 0 })), 0, 4],
    ['batches that are garbage', inOrder(17_000, () => garbage), 17_000, 80],
  ])('yields to the event loop between its %s', async (_, fetched, count, leastTurns) => {
    let turns = 0;
    const { records: found } = await decodeBatches({ records: fetched, aborted: [] }, 0, 'read_committed', async () => {
      turns += 1;
      await nextTurn();
    });
    expect(found).toHaveLength(count);
    expect(turns).toBeGreaterThanOrEqual(leastTurns);
  });

  function inOrder(count: number, batch: (baseOffset: bigint) => Buffer): Buffer {
    return Buffer.concat(Array.from({ length: count }, (_, i) => batch(BigInt(i))));
  }
});

describe('decoding in several reads', () => {
  const noHeaders: HandmadeRecord = { key: null, value: null };
  const inReads = async (records: Buffer, maxItems: number, from = 0) => {
    const decoder = new BatchDecoder({
      fetched: { records, aborted: [] },
      from,
      isolation: 'read_committed',
      nextTurn,
    });
    const reads = [];
    while (!decoder.isDone) reads.push(await decoder.read(maxItems));
    return reads;
  };

  it('returns together what one read returns, whatever the bytes and the size of a read', async () => {
    const sound = () => [
      batchOf([plain('a'), plain('b'), plain('c')]),
      batchOf([], { baseOffset: 3n, lastOffsetDelta: 2 }),
      batchOf([plain('d'), plain('e')], { baseOffset: 6n }),
      batchOf([plain('f')], { baseOffset: 8n, attributes: 0x30 }),
    ];
    const change = fc.tuple(fc.nat(3), fc.nat(60), fc.nat(255));
    await fc.assert(
      fc.asyncProperty(
        fc.array(change, { maxLength: 2 }),
        fc.nat(9),
        fc.integer({ min: 1, max: 4 }),
        async (changes, from, maxItems) => {
          const parts = sound();
          for (const [i, at, byte] of changes) parts[i]?.writeUInt8(byte, at);
          const reads = await inReads(Buffer.concat(parts), maxItems, from);
          const all = await decode(Buffer.concat(parts), from);
          expect(reads.flatMap(({ records }) => records.map(plainRecord))).toEqual(all.records.map(plainRecord));
          expect(reads.at(-1)?.next ?? from).toBe(all.next);
        },
      ),
    );
  });

  it('has a bounded number of records in each, and no record twice', async () => {
    const fetched = batchOf(Array.from({ length: 10_000 }, () => noHeaders));
    const reads = await inReads(fetched, 3_000);
    expect(reads.map(({ records, next }) => [records.length, next])).toEqual([
      [3_000, 3_000],
      [3_000, 6_000],
      [3_000, 9_000],
      [1_000, 10_000],
    ]);
  });

  it('waits while it is the turn of the event loop', async () => {
    const turn = Promise.withResolvers<void>();
    const records = batchOf(Array.from({ length: 10_000 }, () => noHeaders));
    const order: string[] = [];
    const reading = decodeBatches({ records, aborted: [] }, 0, 'read_committed', () => turn.promise);
    const read = reading.then(() => order.push('read'));
    await nextTurn();
    order.push('turn');
    turn.resolve();
    await read;
    expect(order).toEqual(['turn', 'read']);
  });

  it('counts headers as well', async () => {
    const headers = Array.from({ length: 99 }, (_, i) => [Buffer.from(String(i)), Buffer.of(1)] as const);
    const reads = await inReads(batchOf(Array.from({ length: 100 }, () => ({ ...noHeaders, headers }))), 1_000);
    expect(reads.map(({ records }) => records.length)).toEqual(Array(10).fill(10));
  });

  it('replaces the part of a batch that was not returned yet when it turns out to be damaged', async () => {
    const body = Buffer.concat([0, 1, 2, 3, 4].map((i) => encodeRecord(plain(String(i)), i)));
    const damaged = batchAround(Buffer.concat([body, Buffer.of(0)]), { count: 5, lastOffsetDelta: 4 });
    const reads = await inReads(Buffer.concat([damaged, batchOf([plain('next')], { baseOffset: 5n })]), 2);
    expect(reads.map(({ records }) => offsetsOf(records))).toEqual([[0, 1], [2, 3], [4], [5]]);
    expect(reasonOf(reads[2]?.records[0])).toMatch(/^the batch is damaged/);
  });
});

describe('an unreadable batch', () => {
  const sound = () => batchOf([plain('a'), plain('b')], { baseOffset: 5n });
  const around = (bad: Buffer) =>
    Buffer.concat([batchOf([plain('before')]), bad, batchOf([plain('behind')], { baseOffset: 7n })]);
  const bodyOf = (...parts: Buffer[]) => Buffer.concat(parts);
  const [first, second] = [encodeRecord(plain('a')), encodeRecord(plain('b'), 1)];

  test.each([
    ['with fewer records than it says', batchAround(bodyOf(first, second), { count: 3, lastOffsetDelta: 1 })],
    ['with more records than it says', batchAround(bodyOf(first, second), { count: 1, lastOffsetDelta: 1 })],
    ['with bytes after its records', batchAround(bodyOf(first, second, Buffer.of(0)), { count: 2 })],
    ['with a length past its end', batchAround(bodyOf(first, varint(100), second), { count: 2 })],
    ['with a negative length', batchAround(bodyOf(first, varint(-5)), { count: 2 })],
    ['with a record longer than its fields', batchAround(bodyOf(first, longer(second)), { count: 2 })],
    ['with a record shorter than its fields', batchAround(bodyOf(first, shorter(second)), { count: 2 })],
    ['with an offset twice', batchAround(bodyOf(first, first), { count: 2 })],
    ['with an offset after its last', batchAround(bodyOf(first, encodeRecord(plain('b'), 2)), { count: 2 })],
    ['with an offset before its first', batchAround(bodyOf(encodeRecord(plain('b'), -1), second), { count: 2 })],
    ['with an endless number', batchAround(bodyOf(first, Buffer.alloc(20, 0xff)), { count: 2 })],
    ['with a negative number of headers', batchAround(bodyOf(first, headersOf(-1)), { count: 2 })],
    ['of an unknown codec', batchAround(bodyOf(first, second), { count: 2, attributes: 7 })],
  ])('%s becomes a record at each end that says why, and reading continues', async (what, bad) => {
    bad.writeInt32BE(5, 4); // its base offset, which the checksum does not cover
    const { records: found, next } = await decode(around(bad));
    expect(found.map(({ offset, value }) => [offset, value === null ? null : String(value)])).toEqual([
      [0, 'before'],
      [5, null],
      [6, null],
      [7, 'behind'],
    ]);
    expect(next).toBe(8);
    for (const one of found.slice(1, 3)) {
      expect(reasonOf(one)).toMatch(
        what.includes('codec') ? /^codec 7 is not supported: / : /^the batch is damaged \(/,
      );
      expect(reasonOf(one)).toMatch(/\(a batch of \d records, offsets 5 to 6\)$/);
    }
    const behind = await decode(bad, 6);
    expect([offsetsOf(behind.records), behind.next]).toEqual([[6], 7]);
  });

  it('with a single record becomes one record', async () => {
    const { records: found } = await decode(batchAround(Buffer.of(1), { count: 1 }));
    expect(offsetsOf(found)).toEqual([0]);
  });

  test.each([
    ['for a wrong checksum', flipped(sound(), 70), /^the checksum of the batch is wrong/],
    ['for a wrong checksum that hides where it ends', flipped(sound(), 24), /^the checksum of the batch is wrong/],
    ['for another format', Object.assign(sound(), { 16: 1 }), /^record format 1 is not supported/],
    ['for a length shorter than its head', shortened(sound(), 60), /^the batch is damaged/],
    ['for a last offset before its first', batchOf([plain('a')], { baseOffset: 5n, lastOffsetDelta: -1 }), /damaged/],
    ['for a count below zero', batchOf([plain('a')], { baseOffset: 5n, count: -1, lastOffsetDelta: 1 }), /damaged/],
  ])('with an invalid head, %s, becomes a record at its first offset', async (_, bad, reason) => {
    const { records: found, next } = await decode(around(bad));
    expect(offsetsOf(found)).toEqual([0, 5, 7]);
    expect(next).toBe(8);
    expect(reasonOf(found[1])).toMatch(reason);
    // Read again from after that offset, the rest isn't skipped silently either.
    const behind = await decode(bad, 6);
    expect([offsetsOf(behind.records), behind.next]).toEqual([[6], 7]);
  });

  test.each([
    ['not a safe integer', batchOf([plain('a')], { baseOffset: 2n ** 53n - 1n })],
    ['below zero', batchOf([plain('a')], { baseOffset: -3n })],
    ['far below the requested one', flipped(batchOf([plain('a')]), 65)],
  ])('with an offset that is %s takes the offset where reading continued', async (_, bad) => {
    const { records: found, next } = await decode(bad, 5);
    expect([offsetsOf(found), next]).toEqual([[5], 6]);
  });

  it('with an invalid length becomes a record, and what follows it is not read', async () => {
    const lost = sound();
    lost.writeInt32BE(-1, 8);
    const { records: found, next } = await decode(around(lost));
    expect([offsetsOf(found), next]).toEqual([[0, 5], 6]);
  });

  function headersOf(count: number): Buffer {
    const body = Buffer.concat([Buffer.of(0), varint(0), varint(1), varint(-1), varint(-1), varint(count)]);
    return Buffer.concat([varint(body.length), body]);
  }

  /** With a length that is one byte too long or too short; it is below 64, so it takes one byte. */
  function longer(record: Buffer): Buffer {
    return Buffer.concat([varint(record.length), record.subarray(1), Buffer.of(0)]);
  }

  function shorter(record: Buffer): Buffer {
    return Buffer.concat([varint(record.length - 2), record.subarray(1)]);
  }

  function flipped(batch: Buffer, at: number): Buffer {
    batch[at] = (batch[at] ?? 0) ^ 0x55;
    return batch;
  }

  function shortened(batch: Buffer, length: number): Buffer {
    const short = Buffer.from(batch.subarray(0, length));
    short.writeInt32BE(length - 12, 8);
    return sealed(short);
  }
});
