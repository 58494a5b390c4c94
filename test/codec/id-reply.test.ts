import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { frame, singleObjectHeader } from '../../src/codec/framing.ts';
import { collapseIds, expandIds, MAX_BATCH_COUNT } from '../../src/codec/id-batch.ts';
import { decodeIdReply, encodeIdReply, ID_REPLY_FINGERPRINT, idReplyBytes } from '../../src/codec/id-reply.ts';
import { leastCpuMs } from '../support/cpu-time.ts';
import { anyBatch, anyCorrelationId, BATCH, CORRELATION_ID, plainAvro } from './samples.ts';

const plain = plainAvro('id-reply');
const header = singleObjectHeader(ID_REPLY_FINGERPRINT);
const encodings = fc.constantFrom('RANGES' as const, 'IDS' as const);

/** The body as avsc alone reads it. */
function body(bytes: Buffer) {
  return plain.fromBuffer(bytes.subarray(10));
}

/** A reply with some fields of its batch replaced, written by avsc alone. */
function forged(change: Record<string, unknown>): Buffer {
  const value = body(encodeIdReply({ correlationId: CORRELATION_ID, batch: BATCH }, 'RANGES'));
  Object.assign(value.result['idalloc.IdBatch'], change);
  return frame(header, plain.toBuffer(value));
}

describe('an IdReply', () => {
  it('round-trips a batch as ranges', () => {
    fc.assert(
      fc.property(anyBatch, anyCorrelationId, (batch, correlationId) => {
        const reply = { correlationId, batch };
        expect(decodeIdReply(encodeIdReply(reply, 'RANGES'))).toEqual({ ...reply, encoding: 'RANGES' });
      }),
    );
  });

  it('round-trips the IDs of a batch one by one', () => {
    fc.assert(
      fc.property(anyBatch, anyCorrelationId, (batch, correlationId) => {
        const { encoding, ...reply } = decodeIdReply(encodeIdReply({ correlationId, batch }, 'IDS'));
        if (!('batch' in reply)) throw new Error('no batch');
        expect(encoding).toBe('IDS');
        expect(expandIds(reply.batch)).toEqual(expandIds(batch));
        expect({ ...reply.batch, ranges: [] }).toEqual({ ...batch, ranges: [] });
      }),
      { numRuns: 30 },
    );
  });

  it('lists IDs across every boundary of 32 bits, at any step', () => {
    const runs = [
      [2n ** 31n - 2n, 1n],
      [2n ** 32n - 2n, 1n],
      [2n ** 62n + 2n ** 31n - 2n, 1n],
      [0n, 2n ** 31n],
      [5n, 2n ** 33n + 1n],
      [2n ** 63n - 4n, 1n],
    ] as const;
    for (const [first, step] of runs) {
      const batch = { ...BATCH, ranges: [{ first, count: 4 }], step };
      const listed = body(encodeIdReply({ correlationId: Buffer.alloc(256, 7), batch }, 'IDS')).result[
        'idalloc.IdBatch'
      ];
      expect(listed.ids).toEqual(expandIds(batch));
    }
  });

  it('is read by unmodified avsc, with every ID exact', () => {
    fc.assert(
      fc.property(anyBatch, encodings, (batch, encoding) => {
        const { result } = body(encodeIdReply({ correlationId: CORRELATION_ID, batch }, encoding));
        const wire = result['idalloc.IdBatch'];
        expect(wire.ranges.map((range: object) => ({ ...range }))).toEqual(encoding === 'RANGES' ? batch.ranges : []);
        expect(wire.ids).toEqual(encoding === 'IDS' ? expandIds(batch) : []);
        expect(wire.fence).toBe(batch.fence);
        expect(wire.layout_fingerprint.toString('hex')).toBe(batch.layoutFingerprint);
      }),
      { numRuns: 30 },
    );
  });

  it('round-trips an error, with the same bytes in either encoding', () => {
    const reply = { correlationId: CORRELATION_ID, error: { code: 'CONFLICT', message: 'count differs — ask again' } };
    expect(decodeIdReply(encodeIdReply(reply, 'RANGES'))).toEqual({ ...reply, encoding: 'RANGES' });
    expect(encodeIdReply(reply, 'IDS')).toEqual(encodeIdReply(reply, 'RANGES'));
  });

  it('carries the largest 64-bit ID', () => {
    const batch = { ...BATCH, ranges: [{ first: 2n ** 63n - 1n, count: 1 }] };
    for (const encoding of ['RANGES', 'IDS'] as const) {
      expect(decodeIdReply(encodeIdReply({ correlationId: CORRELATION_ID, batch }, encoding))).toMatchObject({ batch });
    }
  });

  it('lists IDs with the stride of the layout', () => {
    const batch = { ...BATCH, step: 65536n, ranges: [{ first: 5n, count: 3 }] };
    expect(expandIds(batch)).toEqual([5n, 65541n, 131077n]);
    expect(decodeIdReply(encodeIdReply({ correlationId: CORRELATION_ID, batch }, 'IDS'))).toMatchObject({ batch });
  });

  it('of 100,000 single IDs is written and read without stalling the event loop', () => {
    const batch = { ...BATCH, ranges: [{ first: BATCH.ranges[0]?.first ?? 0n, count: MAX_BATCH_COUNT }] };
    const bytes = encodeIdReply({ correlationId: CORRELATION_ID, batch }, 'IDS');
    expect(decodeIdReply(bytes)).toMatchObject({ batch: { ranges: batch.ranges } });
    expect(leastCpuMs(() => encodeIdReply({ correlationId: CORRELATION_ID, batch }, 'IDS'))).toBeLessThan(100);
    expect(leastCpuMs(() => decodeIdReply(bytes))).toBeLessThan(100);
  });

  it('has the same bytes wherever a list of IDs is written, and changes none around them', () => {
    fc.assert(
      fc.property(anyBatch, anyCorrelationId, fc.nat(20), (batch, correlationId, at) => {
        const bytes = idReplyBytes({ correlationId, batch }, 'IDS');
        const around = Buffer.alloc(at + bytes.length + 20, 0xaa);
        bytes.copy(around, at);
        const whole = encodeIdReply({ correlationId, batch }, 'IDS');
        expect(around.equals(Buffer.concat([Buffer.alloc(at, 0xaa), whole, Buffer.alloc(20, 0xaa)]))).toBe(true);
      }),
      { numRuns: 30 },
    );
  });

  it("can't be written with more than 100,000 IDs", () => {
    const batch = { ...BATCH, ranges: [{ first: 0n, count: MAX_BATCH_COUNT + 1 }] };
    expect(() => encodeIdReply({ correlationId: CORRELATION_ID, batch }, 'RANGES')).toThrow(RangeError);
  });
});

describe('bytes that are not an IdReply', () => {
  it.each([
    ['neither ranges nor ids', { ranges: [] }],
    ['both ranges and ids', { ids: [1n] }],
    ['an empty range', { ranges: [{ first: 1n, count: 0 }] }],
    ['a range of 2^31-1 IDs', { ranges: [{ first: 1n, count: 0x7fff_ffff }] }],
    ['a negative ID', { ranges: [{ first: -1n, count: 1 }] }],
    ['an ID above 2^63', { ranges: [{ first: 2n ** 63n - 1n, count: 2 }] }],
    ['a step of 0', { step: 0n }],
    ['a time beyond 2^53', { generated_at: 2n ** 60n }],
    ['100,001 IDs', { ranges: [], ids: Array.from({ length: MAX_BATCH_COUNT + 1 }, (_, i) => BigInt(i)) }],
  ])('are rejected with %s', (_, change) => {
    expect(() => decodeIdReply(forged(change))).toThrow(expect.objectContaining({ code: 'MALFORMED_REPLY' }));
  });

  it('are rejected wherever they are truncated, and with a byte after the end', () => {
    const good = encodeIdReply({ correlationId: CORRELATION_ID, batch: BATCH }, 'IDS');
    for (let length = 0; length < good.length; length++) {
      expect(() => decodeIdReply(good.subarray(0, length))).toThrow(
        expect.objectContaining({ code: 'MALFORMED_REPLY' }),
      );
    }
    expect(() => decodeIdReply(Buffer.concat([good, Buffer.of(0)]))).toThrow();
  });
});

describe('collapsing IDs', () => {
  it('is the reverse of expanding, and joins adjacent ranges', () => {
    expect(collapseIds([1n, 2n, 3n, 7n, 8n, 20n], 1n)).toEqual([
      { first: 1n, count: 3 },
      { first: 7n, count: 2 },
      { first: 20n, count: 1 },
    ]);
    expect(collapseIds([], 1n)).toEqual([]);
  });
});
