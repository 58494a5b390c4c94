import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeLedgerEntry, encodeLedgerEntry, type LedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { countsAt, readLedgerPosition } from '../../src/codec/ledger-position.ts';
import { examples } from '../support/examples.ts';
import { anyBatch, anyNumbers, anyStatement, BATCH } from './samples.ts';

const offset = fc.oneof(
  fc.integer({ min: 0, max: 300 }),
  fc.integer({ min: 0, max: 2 ** 40 }),
  fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
);
const anyBytes = (length: number) =>
  fc.uint8Array({ minLength: length, maxLength: length }).map((bytes) => Buffer.from(bytes));
const anyEntry: fc.Arbitrary<LedgerEntry> = fc.oneof(
  fc.record({ kind: fc.constant('marker' as const), end: offset, through: fc.oneof(offset, fc.constant(-1)) }),
  fc
    .record({
      kind: fc.constant('batch' as const),
      requestHash: anyBytes(16),
      replyTopic: fc.oneof(fc.stringMatching(/^[a-z][a-z.]{0,100}$/), fc.string({ maxLength: 20 })),
      requestOffset: offset,
      batch: fc.oneof(anyBatch, fc.constant(BATCH)),
      framing: fc.constantFrom('SINGLE_OBJECT' as const, 'CONFLUENT' as const),
      schemaFingerprint: anyBytes(8),
      end: offset,
      through: fc.oneof(offset, fc.constant(-1)),
    })
    .map((entry) => ({ ...entry, count: entry.batch.ranges.reduce((sum, range) => sum + range.count, 0) })),
  anyNumbers,
  anyStatement,
);

/** The position according to the full decoder; undefined if it rejects the value. */
function decoded(value: Buffer): unknown {
  try {
    const entry = decodeLedgerEntry(value);
    const requestOffset = 'requestOffset' in entry ? entry.requestOffset : undefined;
    return { end: entry.end, through: entry.through, requestOffset, at: 'at' in entry ? entry.at : undefined };
  } catch {
    return undefined;
  }
}

function read(value: Buffer): unknown {
  try {
    const { end, through, requestOffset, at } = readLedgerPosition(value);
    return { end, through, requestOffset, at };
  } catch (error) {
    expect(error).toMatchObject({ code: 'LEDGER_UNREADABLE' });
    return undefined;
  }
}

describe('a record of a sequence', () => {
  it('counts where it was written for, and nowhere else; a renewal, and every other record, anywhere', () => {
    const position = { end: 0, through: -1 };
    const counts = (at: number | undefined) => [6, 7, 8].map((offset) => countsAt({ ...position, at }, offset));
    expect(counts(7)).toEqual([false, true, false]);
    expect(counts(-1)).toEqual([true, true, true]);
    expect(counts(undefined)).toEqual([true, true, true]);
  });
});

describe('the position of an entry', () => {
  it('equals that of the full decoder', () => {
    fc.assert(
      fc.property(anyEntry, (entry) => {
        const value = encodeLedgerEntry(entry);
        expect(decoded(value)).toBeDefined();
        expect(read(value)).toEqual(decoded(value));
      }),
    );
  });

  it('is rejected exactly when decoding rejects, for any damage', () => {
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
      fc.property(anyEntry, fc.array(damage, { minLength: 1, maxLength: 3 }), (entry, damages) => {
        let value = encodeLedgerEntry(entry);
        for (const how of damages) value = damaged(value, how);
        const expected = decoded(value);
        expect(read(value)).toEqual(expected);
        if (expected === undefined) refused += 1;
        else accepted += 1;
      }),
      { numRuns: examples(20_000) },
    );
    // Of each kind a twentieth at least.
    const least = examples(20_000) / 20;
    expect([refused > least, accepted > least]).toEqual([true, true]);
  });

  it('is rejected for each flipped bit of an ordinary entry that decoding rejects', () => {
    const value = encodeLedgerEntry({
      kind: 'batch',
      requestHash: requestHash(5, 'id.replies.orders'),
      count: 5,
      replyTopic: 'id.replies.orders',
      requestOffset: 1_000_000,
      batch: BATCH,
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: Buffer.alloc(8, 7),
      end: 2_000_000,
      through: 999_999,
    });
    for (let bit = 0; bit < value.length * 8; bit++) {
      const flipped = Buffer.from(value);
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      expect(read(flipped)).toEqual(decoded(flipped));
    }
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
