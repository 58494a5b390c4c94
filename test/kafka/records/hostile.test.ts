import { setImmediate as nextTurn } from 'node:timers/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeBatches } from '../../../src/kafka/records/decode.ts';
import { encodeBatch } from '../../../src/kafka/records/encode.ts';
import { examples } from '../../support/examples.ts';
import { batchAround, batchOf, CODEC, encodeRecord, plain, sealed } from '../../support/record-bytes.ts';

/** Names that a plain object inherits. */
function inheritedNames(headers: object): readonly (string | symbol)[] {
  const parent: object | null = Object.getPrototypeOf(headers);
  return parent === null ? [] : [...Reflect.ownKeys(parent), ...inheritedNames(parent)];
}

/**
 * Decodes, and checks what must hold for any bytes: offsets rise within the range read, and reading never goes back.
 */
async function decodeSoundly(records: Buffer, from: number) {
  const aborted = [{ producerId: 7n, firstOffset: 3 }];
  const decoded = await decodeBatches({ records, aborted }, from, 'read_committed', nextTurn);
  let least = from;
  for (const { offset, timestampMs, headers } of decoded.records) {
    expect(offset).toBeGreaterThanOrEqual(least);
    expect(Number.isSafeInteger(offset)).toBe(true);
    expect(Number.isSafeInteger(timestampMs) || Number.isNaN(timestampMs)).toBe(true);
    expect(inheritedNames(headers)).toEqual([]);
    least = offset + 1;
  }
  expect(decoded.next).toBeGreaterThanOrEqual(least);
  return decoded;
}

const offset = fc.nat(20);
const sound = () =>
  Buffer.concat([
    encodeBatch([{ key: Buffer.from('k'), value: Buffer.from('v'), headers: { a: 'b', c: ['d', null] } }], 1_000),
    batchOf([plain('a'), plain('b'), plain('c')], { baseOffset: 1n, attributes: 0x10 }),
    batchOf([plain('d')], { baseOffset: 4n }),
  ]);

describe('crafted bytes', () => {
  it('decode to valid results when they are random', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), offset, async (bytes, from) => {
        await decodeSoundly(Buffer.from(bytes), from);
      }),
      { numRuns: examples(1_000) },
    );
  });

  it('decode to valid results when they are random after a valid head', async () => {
    const fields = fc.record({
      attributes: fc.integer({ min: 0, max: 0x3f }),
      baseOffset: fc.bigInt({ min: 0n, max: 30n }),
      count: fc.integer({ min: 0, max: 5 }),
      lastOffsetDelta: fc.integer({ min: 0, max: 5 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), fields, offset, async (bytes, its, from) => {
        const { next } = await decodeSoundly(batchAround(Buffer.from(bytes), its), from);
        expect(next).toBe(Math.max(from, Number(its.baseOffset) + its.lastOffsetDelta + 1));
      }),
      { numRuns: examples(2_000) },
    );
  });

  it('decode to valid results when a few bytes were changed', async () => {
    const change = fc.tuple(fc.nat(sound().length - 1), fc.nat(255));
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 5 }), offset, async (changes, from) => {
        const bytes = sound();
        for (const [at, byte] of changes) bytes[at] = byte;
        await decodeSoundly(bytes, from);
      }),
      { numRuns: examples(1_000) },
    );
  });

  it('decode to valid results when a few bytes were changed and the checksum with them', async () => {
    const batch = () => batchOf([plain('a'), plain('b'), plain('c')]);
    const change = fc.tuple(fc.integer({ min: 21, max: batch().length - 1 }), fc.nat(255));
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 3 }), offset, async (changes, from) => {
        const bytes = batch();
        for (const [at, byte] of changes) bytes[at] = byte;
        await decodeSoundly(sealed(bytes), from);
      }),
      { numRuns: examples(2_000) },
    );
  });

  it('decode up to the last whole batch wherever they are truncated', async () => {
    const [bytes, expected] = [sound(), [0, 1, 4, 5]];
    for (let end = 0; end <= bytes.length; end += 1) {
      const { next } = await decodeSoundly(bytes.subarray(0, end), 0);
      expect(expected).toContain(next);
    }
  });

  it.each(Object.entries(CODEC))('decode to valid results when %s decompresses them', async (_, attributes) => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 300 }), async (bytes) => {
        await decodeSoundly(batchAround(Buffer.from(bytes), { count: 1, attributes }), 0);
      }),
      { numRuns: examples(500) },
    );
  });

  it("don't affect a valid batch after them", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 100 }), fc.constantFrom(0, 1, 2, 3, 4), async (bytes, attributes) => {
        const bad = batchAround(Buffer.from(bytes), { count: 1, attributes });
        const good = batchAround(encodeRecord(plain('a')), { count: 1, baseOffset: 1n });
        const { records, next } = await decodeSoundly(Buffer.concat([bad, good]), 0);
        expect([String(records.at(-1)?.value), next]).toEqual(['a', 2]);
      }),
    );
  });
});
