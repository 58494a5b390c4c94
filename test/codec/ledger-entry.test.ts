import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalForm } from '../../src/codec/avro.ts';
import { fingerprint, frame, singleObjectHeader } from '../../src/codec/framing.ts';
import type { IdBatch } from '../../src/codec/id-batch.ts';
import { ID_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import {
  countsAt,
  decodeLedgerEntry,
  EMPTY_MARKER,
  encodeLedgerEntry,
  type LedgerBatchEntry,
  type LedgerEntry,
  readLedgerPosition,
  requestHash,
} from '../../src/codec/ledger-entry.ts';
import { decodeLedgerKey, encodeLedgerKey, LEDGER_KEY_VERSION } from '../../src/codec/ledger-key.ts';
import { examples } from '../support/examples.ts';
import { decodedByAvsc } from './avsc-ledger.ts';
import { anyBatch, anyCorrelationId, anyNumbers, anyStatement, BATCH, CORRELATION_ID, plainAvro } from './samples.ts';

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

  it.each<[keyof IdBatch, Partial<IdBatch>]>([
    ['step', { step: 2n }],
    ['datacenterId', { datacenterId: 5 }],
    ['workerId', { workerId: 19 }],
    ['fence', { fence: 4712n }],
    ['epochMs', { epochMs: BATCH.epochMs + 1 }],
    ['layoutFingerprint', { layoutFingerprint: 'ff66554433221100' }],
    ['generatedAtMs', { generatedAtMs: BATCH.generatedAtMs + 1 }],
  ])('shows its own %s, though the entry before it differs in nothing else', (_, change) => {
    const other = { ...ENTRY, batch: { ...BATCH, ...change } };
    for (const entry of [ENTRY, other, ENTRY]) expect(decodeLedgerEntry(encodeLedgerEntry(entry))).toEqual(entry);
  });

  it('round-trips as a marker', () => {
    for (const marker of [
      { kind: 'marker' as const, end: 0, through: -1 },
      { kind: 'marker' as const, end: 7, through: Number.MAX_SAFE_INTEGER },
    ]) {
      expect(decodeLedgerEntry(encodeLedgerEntry(marker))).toEqual(marker);
    }
    expect(encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 })).toEqual(EMPTY_MARKER);
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

const someOffset = fc.oneof(
  fc.integer({ min: 0, max: 300 }),
  fc.integer({ min: 0, max: 2 ** 40 }),
  fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
);
const anyBytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((bytes) => Buffer.from(bytes));
const anyLedgerEntry: fc.Arbitrary<LedgerEntry> = fc.oneof(
  fc.record({ kind: fc.constant('marker' as const), end: someOffset, through: fc.oneof(someOffset, fc.constant(-1)) }),
  fc
    .record({
      kind: fc.constant('batch' as const),
      requestHash: anyBytes(16),
      replyTopic: fc.oneof(fc.stringMatching(/^[a-z][a-z.]{0,100}$/), fc.string({ maxLength: 20 })),
      requestOffset: someOffset,
      batch: fc.oneof(anyBatch, fc.constant(BATCH)),
      framing: fc.constantFrom('SINGLE_OBJECT' as const, 'CONFLUENT' as const),
      schemaFingerprint: anyBytes(8),
      end: someOffset,
      through: fc.oneof(someOffset, fc.constant(-1)),
    })
    .map((entry) => ({ ...entry, count: entry.batch.ranges.reduce((sum, range) => sum + range.count, 0) })),
  anyNumbers,
  anyStatement,
);

/** What avsc makes of the value; undefined if it must be rejected. */
function expected(value: Buffer): LedgerEntry | undefined {
  try {
    return decodedByAvsc(value);
  } catch {
    return undefined;
  }
}

/** What a reader makes of the value; undefined if it rejects it. */
function outcome<T>(read: (value: Buffer) => T, value: Buffer): T | undefined {
  try {
    return read(value);
  } catch (error) {
    expect(error).toMatchObject({ code: 'LEDGER_UNREADABLE' });
    return undefined;
  }
}

/** Both readings of the value are those of avsc, or are rejected as by avsc. */
function expectAsAvsc(value: Buffer): LedgerEntry | undefined {
  const entry = expected(value);
  expect(outcome(decodeLedgerEntry, value)).toEqual(entry);
  const position = outcome(readLedgerPosition, value);
  if (entry === undefined) expect(position).toBeUndefined();
  else expect(entry).toMatchObject(position as object);
  return entry;
}

describe('a record of a sequence', () => {
  it('counts where it was written for, and nowhere else; a renewal, and every other record, anywhere', () => {
    const position = { end: 0, through: -1 };
    const counts = (at: number | undefined) => [6, 7, 8].map((someOffset) => countsAt({ ...position, at }, someOffset));
    expect(counts(7)).toEqual([false, true, false]);
    expect(counts(-1)).toEqual([true, true, true]);
    expect(counts(undefined)).toEqual([true, true, true]);
  });
});

describe('the reader of entries', () => {
  it('reads what avsc reads, and of a position the part that the index needs', () => {
    fc.assert(
      fc.property(anyLedgerEntry, (entry) => {
        expect(expectAsAvsc(encodeLedgerEntry(entry))).toBeDefined();
      }),
    );
  });

  it('rejects exactly what avsc rejects, for any damage', () => {
    const damage = fc.oneof(
      fc.record({ at: fc.nat(400), put: fc.nat(255) }),
      fc.record({ at: fc.nat(400), xor: fc.constantFrom(1, 2, 4, 8, 16, 32, 64, 128) }),
      fc.record({ cut: fc.nat(400) }),
      fc.record({ insert: fc.nat(400), put: fc.constantFrom(0, 1, 0x80, 0xff) }),
      fc.record({ remove: fc.nat(400) }),
    );
    let refused = 0;
    let accepted = 0;
    fc.assert(
      fc.property(anyLedgerEntry, fc.array(damage, { minLength: 1, maxLength: 3 }), (entry, damages) => {
        let value = encodeLedgerEntry(entry);
        for (const how of damages) value = damaged(value, how);
        if (expectAsAvsc(value) === undefined) refused += 1;
        else accepted += 1;
      }),
      { numRuns: examples(20_000) },
    );
    // Of each kind a twentieth at least.
    const least = examples(20_000) / 20;
    expect([refused > least, accepted > least]).toEqual([true, true]);
  });

  it('agrees with avsc on each flipped bit of an ordinary entry', () => {
    const value = encodeLedgerEntry(ENTRY);
    for (let bit = 0; bit < value.length * 8; bit++) {
      const flipped = Buffer.from(value);
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      expectAsAvsc(flipped);
    }
  });

  it('agrees with avsc on ranges at the end of all IDs, where doubles are rounded', () => {
    const last = 2n ** 63n - 1n;
    const values = [last, last - 1n, last - 8n, last - 1_000n, 2n ** 62n, 2n ** 62n - 5n].flatMap((first) =>
      [1n, 2n, 250n, 2n ** 40n, 2n ** 61n, 2n ** 62n, last].map((step) =>
        forged({ batch: { ranges: [{ first, count: 5 }], step } }),
      ),
    );
    const accepted = values.map(expectAsAvsc).filter((entry) => entry !== undefined);
    expect([accepted.length > 0, accepted.length < values.length]).toEqual([true, true]);
  });

  it('keeps no bytes of the record', () => {
    const value = encodeLedgerEntry(ENTRY);
    const entry = decodeLedgerEntry(value);
    value.fill(0);
    expect(entry).toEqual(ENTRY);
  });
});

type Damage =
  | { at: number; put: number }
  | { at: number; xor: number }
  | { cut: number }
  | { insert: number; put: number }
  | { remove: number };

function damaged(value: Buffer, how: Damage): Buffer {
  const copy = Buffer.from(value);
  if ('cut' in how) return copy.subarray(0, how.cut);
  if ('remove' in how) return Buffer.concat([copy.subarray(0, how.remove), copy.subarray(how.remove + 1)]);
  if ('insert' in how) {
    return Buffer.concat([copy.subarray(0, how.insert), Buffer.from([how.put]), copy.subarray(how.insert)]);
  }
  if (copy.length === 0) return copy;
  const at = how.at % copy.length;
  copy[at] = 'put' in how ? how.put : (copy[at] ?? 0) ^ how.xor;
  return copy;
}
