import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { asConfluent } from '../../src/codec/framing.ts';
import { encodeIdRequest, ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import { replyTopicViolation } from '../../src/codec/reply-policy.ts';
import { DEFAULT_HEADER_NAMES, type RecordHeaders } from '../../src/codec/request-headers.ts';
import { BAD_RECORDS, type Intake, type IntakeOptions, UNKNOWN_SCHEMAS } from '../../src/pipeline/intake.ts';
import { record, request } from '../support/memory-records.ts';
import { POLICY, readerFor } from '../support/memory-worker.ts';

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

describe('receiving a record', () => {
  it('never throws, and never accepts an address that is not allowed', () => {
    let accepted = 0;
    let rejected = 0;
    fc.assert(
      fc.property(values, headers, (value, its) => {
        const intake = readerFor({}).read(record(0, value, its));
        const topic = intake.kind === 'accepted' ? intake.request.replyTopic : intake.address.replyTopic;
        if (topic !== undefined) expect(replyTopicViolation(topic, POLICY)).toBeUndefined();
        if (intake.kind === 'accepted') accepted += 1;
        else rejected += 1;
      }),
      { numRuns: 2_000, seed: 7 },
    );
    expect([accepted > 50, rejected > 50]).toEqual([true, true]);
  });

  it('sends nothing to the topic of the HTTP API for a request that is not of it, not even a refusal', () => {
    const replyPolicy = { ...POLICY, apiReplies: 'id.replies.http' };
    const reader = readerFor({ replyPolicy });
    const large = { count: 100_000, encoding: 'IDS', replyTopic: 'id.replies.http' } as const;
    expect(reader.read(request(0, 'a', large))).toMatchObject({ code: 'INVALID_REPLY_TOPIC', address: {} });
    expect(reader.read(request(0, 'a', { ...large, replyTopic: 'id.replies.a' })).kind).toBe('accepted');
  });

  it('names who pays for it: the topic that it names, all bad records together, or all of unknown schemas', () => {
    const learned = { learn: async () => {}, replyId: () => 2, numbersReplyId: () => 3 };
    const payerIn = (header: Buffer | 'none' | undefined, value: Buffer, headers: RecordHeaders = {}) => {
      const intake = readerFor({ schemas: { ...learned, requestHeader: () => header } }).read(
        record(0, value, headers),
      );
      return intake.kind === 'rejected' ? [intake.code, intake.payer] : [];
    };
    const framed = Buffer.from([0, 0, 0, 0, 7, 1]);
    expect(payerIn(undefined, Buffer.from('junk'))).toEqual(['MALFORMED_REQUEST', BAD_RECORDS]);
    const { value } = request(0, 'a', { replyTopic: 'other' });
    expect(payerIn(undefined, value as Buffer)).toEqual(['INVALID_REPLY_TOPIC', 'other']);
    expect(payerIn('none', framed)).toEqual(['UNKNOWN_SCHEMA', UNKNOWN_SCHEMAS]);
    expect(payerIn(undefined, framed)).toEqual(['SCHEMA_REGISTRY_UNAVAILABLE', UNKNOWN_SCHEMAS]);
  });

  it('is of a late schema unless that is the first one, which every worker knows', () => {
    const learned = { learn: async () => {}, replyId: () => 2, numbersReplyId: () => 3 };
    const reader = readerFor({ schemas: { ...learned, requestHeader: () => ID_REQUEST_HEADER } });
    const { value } = request(0, 'a');
    const wide = request(0, 'b', { requestId: Buffer.from('order') });
    const unknown = Buffer.from(value as Buffer).fill(0, 2, 10);
    const confluent = asConfluent(7, value as Buffer);
    const isLate = (one: Buffer | null, headers?: RecordHeaders) => reader.read(record(0, one, headers)).isLate;
    expect([value, null, Buffer.alloc(0)].map((one) => isLate(one))).toEqual([false, false, false]);
    expect([isLate(wide.value), isLate(unknown), isLate(confluent)]).toEqual([true, true, true]);
    // A form that is shared is of the first schema.
    const bare = encodeIdRequest({ count: 1 });
    const bareWide = Buffer.concat([WIDE_REQUEST_HEADER, bare.subarray(ID_REQUEST_HEADER.length), Buffer.alloc(2)]);
    const inHeaders = { kafka_correlationId: Buffer.from('d'), kafka_replyTopic: Buffer.from('id.replies.a') };
    const twice = [bare, bareWide, asConfluent(7, bare)].flatMap((one) => [one, one]);
    const kinds = twice.map((one) => reader.read(record(0, one, inHeaders))).map(({ kind, isLate }) => [kind, isLate]);
    const of = (is: boolean) => ['accepted', is];
    expect(kinds).toEqual([of(false), of(false), of(true), of(true), of(true), of(true)]);
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
    expect(readerFor({}).read({ offset: 0, key: null, value: null, headers, timestampMs: 0 })).toMatchObject({
      code: 'INVALID_COUNT',
    });
    expect([new Set(limits), Error.stackTraceLimit]).toEqual([new Set([0]), before]);
  });

  it('has one hash for one request, whatever its encoding, expiry and offset', () => {
    const hashOf = (fields: Parameters<typeof request>[2], offset = 0) => {
      const intake = readerFor({}).read(request(offset, 'a', fields));
      return intake.kind === 'accepted' ? intake.hash.toString('hex') : intake.code;
    };
    const plain = hashOf({ count: 2 });
    expect(hashOf({ count: 2, encoding: 'IDS', expiresAtMs: 9 }, 5)).toBe(plain);
    expect(new Set([plain, hashOf({ count: 3 }), hashOf({ count: 2, replyTopic: 'id.replies.b' })]).size).toBe(3);
  });
});

describe('a request that follows another one', () => {
  /** What follows from a record, without the record. */
  const seen = (intake: Intake) =>
    intake.kind === 'rejected'
      ? { ...intake, record: undefined }
      : { ...intake.address, hash: intake.hash, key: intake.key.toBuffer(), home: intake.home };

  it('is read as if it were alone, whether or not it has the same form', () => {
    const id = fc.constantFrom('a', 'b', 'c', 'd', 'x'.repeat(256), 'x'.repeat(257), '');
    const rarely = (...values: string[]) =>
      fc.oneof({ weight: 4, arbitrary: fc.constant(undefined) }, fc.constantFrom(...values));
    const inHeaders = fc.record({
      kafka_correlationId: id,
      kafka_replyTopic: fc.constantFrom('id.replies.a', 'id.replies.b', 'elsewhere'),
      'idalloc-request-id': rarely('r', 's'),
      'idalloc-sequence': rarely('invoices', 'orders'),
      'idalloc-count': rarely('1', '2'),
      traceparent: rarely('t', 'u'),
    });
    const inBody = fc.record({
      count: fc.integer({ min: 1, max: 2 }),
      correlationId: rarely('a', 'b'),
    });
    const asked = fc.tuple(inHeaders, fc.option(inBody));
    const homeOf: IntakeOptions['homeOf'] = (key) => key.toString().charCodeAt(0) % 4;
    let shared = 0;
    fc.assert(
      fc.property(fc.array(fc.tuple(asked, fc.boolean()), { minLength: 2, maxLength: 6 }), (its) => {
        const together = readerFor({ homeOf });
        let previous: Intake | undefined;
        let [headers, body]: [
          Record<string, string | undefined>,
          { count?: number; correlationId?: string | undefined } | null,
        ] = [{}, null];
        for (const [[next, nextBody], isSame] of its) {
          // Half of them differ from the one before in their correlation ID alone.
          headers = isSame ? { ...headers, kafka_correlationId: next.kafka_correlationId } : next;
          if (!isSame) body = nextBody;
          const { correlationId, ...rest } = body ?? {};
          const value =
            body &&
            encodeIdRequest({ count: 1, ...rest, ...(correlationId && { correlationId: Buffer.from(correlationId) }) });
          const one = record(
            7,
            value,
            Object.fromEntries(Object.entries(headers).filter(([, its]) => its !== undefined)),
          );
          const intake = together.read(one);
          expect(seen(intake)).toEqual(seen(readerFor({ homeOf }).read(one)));
          if (intake.kind === 'accepted' && previous?.kind === 'accepted' && intake.request === previous.request)
            shared += 1;
          previous = intake;
        }
      }),
      { numRuns: 1_000, seed: 7 },
    );
    expect(shared).toBeGreaterThan(100);
  });

  it('is refused if it names another ID in its header than in its body', () => {
    const reader = readerFor({});
    const named = (id: string) => request(0, 'a', { headers: { kafka_correlationId: id } });
    expect(reader.read(named('a'))).toMatchObject({ kind: 'accepted' });
    expect(reader.read(named('b'))).toMatchObject({ code: 'MALFORMED_REQUEST' });
  });
});
