import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalForm } from '../../src/codec/avro.ts';
import { fingerprint, frame, singleObjectHeader } from '../../src/codec/framing.ts';
import { ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import {
  decodeLedgerEntry,
  encodeLedgerEntry,
  type LedgerBatchEntry,
  requestHash,
} from '../../src/codec/ledger-entry.ts';
import { decodeLedgerKey, encodeLedgerKey, LEDGER_KEY_VERSION } from '../../src/codec/ledger-key.ts';
import { anyBatch, anyCorrelationId, BATCH, CORRELATION_ID, plainAvro } from './samples.ts';

const plain = plainAvro('ledger-entry');
const header = singleObjectHeader(fingerprint(canonicalForm(plain)));
const UNREADABLE = expect.objectContaining({ code: 'LEDGER_UNREADABLE' });

const ENTRY: LedgerBatchEntry = {
  kind: 'batch',
  requestHash: requestHash(5, 'id.replies.orders'),
  count: 5,
  replyTopic: 'id.replies.orders',
  requestOffset: 1_000_000,
  batch: BATCH,
  framing: 'SINGLE_OBJECT',
  schemaFingerprint: ID_REPLY_FINGERPRINT,
  end: 2_000_000,
  through: 999_999,
};

/** The entry with some fields replaced, written by avsc alone. */
function forged(change: { entry?: object; batch?: object }): Buffer {
  const value = plain.fromBuffer(encodeLedgerEntry(ENTRY).subarray(10));
  Object.assign(value, change.entry);
  if (value.batch) Object.assign(value.batch, change.batch);
  return frame(header, plain.toBuffer(value));
}

const offset = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER });
const anyEntry: fc.Arbitrary<LedgerBatchEntry> = fc
  .record({
    kind: fc.constant('batch' as const),
    requestHash: fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => Buffer.from(bytes)),
    replyTopic: fc.stringMatching(/^[a-z][a-z.]{0,100}$/),
    requestOffset: offset,
    batch: anyBatch,
    framing: fc.constantFrom('SINGLE_OBJECT' as const, 'CONFLUENT' as const),
    schemaFingerprint: fc.uint8Array({ minLength: 8, maxLength: 8 }).map((bytes) => Buffer.from(bytes)),
    end: offset,
    through: fc.oneof(offset, fc.constant(-1)),
  })
  .map((entry) => ({ ...entry, count: entry.batch.ranges.reduce((sum, range) => sum + range.count, 0) }));

describe('a ledger entry', () => {
  it('round-trips with all fields of its reply', () => {
    fc.assert(
      fc.property(anyEntry, (entry) => {
        expect(decodeLedgerEntry(encodeLedgerEntry(entry))).toEqual(entry);
      }),
    );
  });

  it('round-trips as a marker', () => {
    for (const marker of [
      { kind: 'marker' as const, end: 0, through: -1 },
      { kind: 'marker' as const, end: 7, through: Number.MAX_SAFE_INTEGER },
    ]) {
      expect(decodeLedgerEntry(encodeLedgerEntry(marker))).toEqual(marker);
    }
  });

  it('is compatible with unmodified avsc in both directions', () => {
    fc.assert(
      fc.property(anyEntry, (entry) => {
        const value = encodeLedgerEntry(entry);
        const wire = plain.fromBuffer(value.subarray(10));
        expect(wire.batch.request_offset).toBe(BigInt(entry.requestOffset));
        expect(plain.toBuffer(wire).equals(value.subarray(10))).toBe(true);
      }),
    );
  });

  it.each([
    ['another schema', frame(singleObjectHeader(ID_REPLY_FINGERPRINT), Buffer.alloc(20))],
    ['no frame', Buffer.from('{}')],
    ['nothing', Buffer.alloc(0)],
    ['a negative end', forged({ entry: { end: -1n } })],
    ['a through below -1', forged({ entry: { through: -2n } })],
    ['an offset beyond 2^53', forged({ batch: { request_offset: 2n ** 53n } })],
    ['a count that is not the sum of its ranges', forged({ batch: { count: 6 } })],
    ['no ranges', forged({ batch: { ranges: [], count: 0 } })],
    ['a negative first ID', forged({ batch: { ranges: [{ first: -1n, count: 5 }] } })],
    ['a step of 0', forged({ batch: { step: 0n } })],
  ])('is LEDGER_UNREADABLE with %s', (_, value) => {
    expect(() => decodeLedgerEntry(value)).toThrow(UNREADABLE);
  });

  it('is LEDGER_UNREADABLE wherever it is truncated, and with a byte after the end', () => {
    const good = encodeLedgerEntry(ENTRY);
    for (let length = 0; length < good.length; length++) {
      expect(() => decodeLedgerEntry(good.subarray(0, length))).toThrow(UNREADABLE);
    }
    expect(() => decodeLedgerEntry(Buffer.concat([good, Buffer.of(0)]))).toThrow(UNREADABLE);
  });

  it.each([
    ['a count that is not the sum of its ranges', { count: 4 }],
    ['a hash of another length', { requestHash: Buffer.alloc(15) }],
    ['a fingerprint of another length', { schemaFingerprint: Buffer.alloc(9) }],
    ['an offset that is no integer', { requestOffset: 1.5 }],
  ])("can't be written with %s", (_, change) => {
    expect(() => encodeLedgerEntry({ ...ENTRY, ...change })).toThrow();
  });
});

describe('a ledger key', () => {
  it('is the version and the correlation ID, exactly', () => {
    expect(LEDGER_KEY_VERSION).toBe(1);
    expect(encodeLedgerKey(CORRELATION_ID)).toEqual(Buffer.concat([Buffer.of(1), CORRELATION_ID]));
    fc.assert(
      fc.property(anyCorrelationId, (correlationId) => {
        expect(decodeLedgerKey(encodeLedgerKey(correlationId))).toEqual(correlationId);
      }),
    );
  });

  it.each([
    ['nothing', Buffer.alloc(0)],
    ['the version alone', Buffer.of(1)],
    ['another version', Buffer.of(2, 65)],
    ['version 0', Buffer.of(0, 65)],
    ['257 bytes of correlation ID', Buffer.alloc(258, 1)],
  ])('of %s is LEDGER_UNREADABLE', (_, key) => {
    expect(() => decodeLedgerKey(key)).toThrow(UNREADABLE);
  });

  it("can't be created without a correlation ID", () => {
    expect(() => encodeLedgerKey(Buffer.alloc(0))).toThrow(expect.objectContaining({ code: 'INVALID_CORRELATION_ID' }));
  });
});

describe("a request's hash", () => {
  it('is the first half of the SHA-256 of count, length of the topic, and topic', () => {
    const fields = Buffer.concat([Buffer.of(0, 0, 1, 0, 0, 0, 0, 4), Buffer.from('a.bc')]);
    expect(requestHash(256, 'a.bc')).toEqual(createHash('sha256').update(fields).digest().subarray(0, 16));
  });

  it('differs with the count and with the topic', () => {
    const hashes = [requestHash(1, 'a'), requestHash(2, 'a'), requestHash(1, 'b'), requestHash(1, 'a1')];
    expect(new Set(hashes.map((hash) => hash.toString('hex'))).size).toBe(4);
  });
});
