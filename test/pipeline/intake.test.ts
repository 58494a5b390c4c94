import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { replyTopicViolation } from '../../src/codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES, type RecordHeaders } from '../../src/codec/request-headers.ts';
import { receive } from '../../src/pipeline/intake.ts';
import { record, request } from '../support/memory-records.ts';
import { POLICY } from '../support/memory-worker.ts';

const bytes = (max: number) => fc.uint8Array({ maxLength: max }).map((array) => Buffer.from(array));
const headerValue = fc.oneof(bytes(20), fc.string(), fc.constantFrom('id.replies.a', 'id.ledger', '7', '-1'));
const headers: fc.Arbitrary<RecordHeaders> = fc.dictionary(
  fc.oneof(fc.constantFrom(...Object.values(DEFAULT_HEADER_NAMES), 'traceparent', '__proto__'), fc.string()),
  fc.oneof(headerValue, fc.array(headerValue, { maxLength: 3 })),
);
/** Any bytes, and good requests with some bytes changed. */
const values = fc.oneof(
  fc.constant(null),
  bytes(200),
  fc.tuple(fc.nat(60), fc.nat(255)).map(([at, byte]) => {
    const value = Buffer.from(request(0, 'some id', { count: 3, expiresAtMs: 5, encoding: 'IDS' }).value ?? []);
    value[at % value.length] = byte;
    return value;
  }),
);

const DEPS = { names: DEFAULT_HEADER_NAMES, replyPolicy: POLICY, homeOf: () => 0 };

describe('receiving a record', () => {
  it('never throws, and never accepts an address that is not allowed', () => {
    let accepted = 0;
    let rejected = 0;
    fc.assert(
      fc.property(values, headers, (value, its) => {
        const intake = receive(record(0, value, its), DEPS);
        const topic = intake.kind === 'accepted' ? intake.request.replyTopic : intake.address.replyTopic;
        if (topic !== undefined) expect(replyTopicViolation(topic, POLICY)).toBeUndefined();
        if (intake.kind === 'accepted') accepted += 1;
        else rejected += 1;
      }),
      { numRuns: 2_000, seed: 7 },
    );
    expect([accepted > 50, rejected > 50]).toEqual([true, true]);
  });

  it('does not spend time on the stack of a rejection', () => {
    const before = Error.stackTraceLimit;
    const limits: number[] = [];
    const headers = {
      get 'idalloc-count'() {
        limits.push(Error.stackTraceLimit);
        return 'many';
      },
    };
    expect(receive(record(0, null, headers), DEPS)).toMatchObject({ code: 'INVALID_COUNT' });
    expect([new Set(limits), Error.stackTraceLimit]).toEqual([new Set([0]), before]);
  });

  it('has one hash for one request, whatever its encoding, expiry and offset', () => {
    const hashOf = (fields: Parameters<typeof request>[2], offset = 0) => {
      const intake = receive(request(offset, 'a', fields), DEPS);
      return intake.kind === 'accepted' ? intake.hash.toString('hex') : intake.code;
    };
    const plain = hashOf({ count: 2 });
    expect(hashOf({ count: 2, encoding: 'IDS', expiresAtMs: 9 }, 5)).toBe(plain);
    expect(new Set([plain, hashOf({ count: 3 }), hashOf({ count: 2, replyTopic: 'id.replies.b' })]).size).toBe(3);
  });
});
