import { createRequire } from 'node:module';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeAssignment,
  decodeSubscription,
  encodeAssignment,
  encodeSubscription,
} from '../../../src/kafka/loops/member-claims.ts';

/** kafkajs' own reading and writing of the same bytes. */
interface Kafkajs {
  readonly MemberMetadata: {
    encode(metadata: { version: number; topics: readonly string[]; userData?: Buffer }): Buffer;
    decode(bytes: Buffer): { version: number; topics: string[]; userData: Buffer };
  };
  readonly MemberAssignment: {
    encode(assignment: { version: number; assignment: Record<string, readonly number[]>; userData?: Buffer }): Buffer;
    decode(bytes: Buffer): { version: number; assignment: Record<string, number[]>; userData: Buffer } | null;
  };
}

const kafkajs = createRequire(import.meta.url)('kafkajs/src/consumer/assignerProtocol.js') as Kafkajs;

const TOPIC = 'id.requests';
const userData = Buffer.from('0100000007cafe', 'hex');
const owned = [{ topic: TOPIC, partitions: [0, 2, 11] }];
const none = Buffer.alloc(0);

/** Written by ConsumerProtocol of Kafka 4.1.1's own client. */
const GOLDEN = {
  version0: '000000000001000b69642e7265717565737473000000070100000007cafe',
  version0WithoutUserData: '000000000001000b69642e7265717565737473ffffffff',
  version1:
    '000100000001000b69642e7265717565737473000000070100000007cafe00000001000b69642e72657175657374730000000300000000000000020000000b',
  version1OfNothing: '000100000001000b69642e7265717565737473000000070100000007cafe00000000',
  version3:
    '000300000002000b69642e726571756573747300056f74686572ffffffff00000001000b69642e72657175657374730000000300000000000000020000000b0000000900047261636b',
  assignment: '000000000001000b69642e72657175657374730000000300000000000000020000000b00000000',
  assignmentWithoutUserData: '000000000001000b69642e72657175657374730000000300000000000000020000000bffffffff',
  assignmentOfNothing: '000000000000ffffffff',
} as const;

const bytes = (hex: string) => Buffer.from(hex, 'hex');

describe('the consumer protocol', () => {
  it("has the same bytes as Kafka's own client", () => {
    const topics = [TOPIC];
    expect(encodeSubscription({ topics, userData }).toString('hex')).toBe(GOLDEN.version0);
    expect(encodeSubscription({ topics, userData: null }).toString('hex')).toBe(GOLDEN.version0WithoutUserData);
    expect(encodeSubscription({ topics, userData, owned }).toString('hex')).toBe(GOLDEN.version1);
    expect(encodeSubscription({ topics, userData, owned: [] }).toString('hex')).toBe(GOLDEN.version1OfNothing);
    expect(encodeAssignment({ assigned: owned, userData: none }).toString('hex')).toBe(GOLDEN.assignment);
    expect(encodeAssignment({ assigned: owned, userData: null }).toString('hex')).toBe(
      GOLDEN.assignmentWithoutUserData,
    );
    expect(encodeAssignment({ assigned: [], userData: null }).toString('hex')).toBe(GOLDEN.assignmentOfNothing);
  });

  it('round-trips, with the rack of those that say it', () => {
    expect(decodeSubscription(bytes(GOLDEN.version0))).toEqual({ topics: [TOPIC], userData });
    expect(decodeSubscription(bytes(GOLDEN.version1))).toEqual({ topics: [TOPIC], userData, owned });
    expect(decodeSubscription(bytes(GOLDEN.version3))).toEqual({
      topics: [TOPIC, 'other'],
      userData: null,
      owned,
      rack: 'rack',
    });
    const zoned = { topics: [TOPIC], userData, owned, rack: 'zone-1' };
    expect(decodeSubscription(encodeSubscription(zoned))).toEqual(zoned);
    // What members of earlier releases read comes first.
    const known = encodeSubscription({ topics: [TOPIC], userData, owned }).subarray(2);
    expect(encodeSubscription(zoned).subarray(2, 2 + known.length)).toEqual(known);
    expect(decodeAssignment(bytes(GOLDEN.assignment))).toEqual({ assigned: owned, userData: none });
    expect(decodeAssignment(bytes(GOLDEN.assignmentOfNothing))).toEqual({ assigned: [], userData: null });
    expect(decodeAssignment(none)).toEqual({ assigned: [], userData: null });
  });

  it('is compatible with kafkajs in both directions', () => {
    const decoded = kafkajs.MemberMetadata.decode(encodeSubscription({ topics: [TOPIC], userData, owned }));
    expect(decoded).toEqual({ version: 1, topics: [TOPIC], userData });
    const theirs = kafkajs.MemberMetadata.encode({ version: 0, topics: [TOPIC] });
    expect(decodeSubscription(theirs)).toEqual({ topics: [TOPIC], userData: none });
    const assigned = kafkajs.MemberAssignment.decode(encodeAssignment({ assigned: owned, userData: none }));
    expect(assigned?.assignment).toEqual({ [TOPIC]: [0, 2, 11] });
    const given = kafkajs.MemberAssignment.encode({ version: 0, assignment: { [TOPIC]: [3, 1], more: [] } });
    expect(decodeAssignment(given).assigned).toEqual([
      { topic: TOPIC, partitions: [3, 1] },
      { topic: 'more', partitions: [] },
    ]);
  });

  it('rejects truncated bytes, wherever they end', () => {
    const whole = bytes(GOLDEN.version1);
    for (let length = 0; length < whole.length; length += 1) {
      expect(() => decodeSubscription(whole.subarray(0, length))).toThrow(RangeError);
    }
    const assignment = bytes(GOLDEN.assignment);
    for (let length = 1; length < assignment.length; length += 1) {
      expect(() => decodeAssignment(assignment.subarray(0, length))).toThrow(RangeError);
    }
  });

  it('accepts any bytes or rejects them as out of range, without allocating memory for false counts', () => {
    const head = fc.constantFrom('0000', '0001', '0003', '7fff', 'ffff').map(bytes);
    const count = fc.constantFrom('7fffffff', 'ffffffff', '00000001', '00100000').map(bytes);
    const rest = fc.uint8Array({ maxLength: 40 }).map((array) => Buffer.from(array));
    fc.assert(
      fc.property(fc.tuple(head, count, rest).map(Buffer.concat.bind(Buffer)), (any) => {
        for (const decode of [decodeSubscription, decodeAssignment]) {
          try {
            decode(any);
          } catch (error) {
            expect(error).toBeInstanceOf(RangeError);
          }
        }
      }),
    );
  });
});
