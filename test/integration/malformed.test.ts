import { afterAll, beforeAll, expect, test } from 'vitest';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import type { Followed } from '../support/followed.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

type Headers = Readonly<Record<string, Buffer | string | (Buffer | string)[]>>;

/** A record of the request topic, and the expected outcome. */
interface Case {
  readonly name: string;
  readonly value: Buffer | null;
  readonly headers?: Headers;
  /** The code of its dead letter; undefined if it is served. */
  readonly code?: string;
  /** Whether the sender gets a reply. */
  readonly isReported: boolean;
}

const PARTITION = 1;
const HUGE_BYTES = 900_000;

let realm: Realm;
let replies: Followed;
let letters: Followed;
let denied: string;
let cases: readonly Case[];
let baseOffset: number;

function request(name: string, fields: { count?: number; replyTopic?: string } = {}): Buffer {
  const { count = 2, replyTopic = realm.replyTopic } = fields;
  return encodeIdRequest({ count, correlationId: Buffer.from(name), replyTopic });
}

function withByte(bytes: Buffer, at: number, byte: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at] = byte;
  return copy;
}

/** The reply address in headers, so that an unreadable body does not hide it. */
function addressed(name: string): Headers {
  return { kafka_correlationId: name, kafka_replyTopic: realm.replyTopic };
}

const isHuge = ({ headers }: Case) => headers?.junk !== undefined;

function good(name: string, headers: Headers = {}): Case {
  return { name, value: request(name), headers, isReported: true };
}

function makeCases(): readonly Case[] {
  const bad = (name: string, code: string, value: Buffer | null, headers?: Headers, isReported = true): Case => {
    return { name, code, value, isReported, ...(headers === undefined ? {} : { headers }) };
  };
  const unreported = (...args: [string, string, Buffer | null, Headers?]) =>
    bad(args[0], args[1], args[2], args[3], false);
  const anonymous = encodeIdRequest({ count: 2, replyTopic: realm.replyTopic });
  const junk = Buffer.alloc(HUGE_BYTES, 'x');
  const malformed = [
    unreported('null', 'MALFORMED_REQUEST', null),
    bad('null-addressed', 'MALFORMED_REQUEST', null, addressed('null-addressed')),
    bad('truncated', 'MALFORMED_REQUEST', request('truncated').subarray(0, -3), addressed('truncated')),
    unreported('truncated-unaddressed', 'MALFORMED_REQUEST', request('truncated-unaddressed').subarray(0, -3)),
    bad('trailing', 'MALFORMED_REQUEST', Buffer.concat([request('trailing'), Buffer.of(0)]), addressed('trailing')),
    bad('unframed', 'MALFORMED_REQUEST', Buffer.from('{"count":2}'), addressed('unframed')),
    bad('fingerprint', 'UNKNOWN_SCHEMA', withByte(request('fingerprint'), 2, 0), addressed('fingerprint')),
    bad('confluent', 'UNKNOWN_SCHEMA', withByte(request('confluent'), 0, 0), addressed('confluent')),
    bad('too-long', 'MALFORMED_REQUEST', Buffer.alloc(20_000, request('too-long')), addressed('too-long')),
    bad('disagreeing', 'MALFORMED_REQUEST', request('disagreeing'), { 'idalloc-count': '3' }),
    bad('count-0', 'INVALID_COUNT', request('count-0', { count: 0 })),
    bad('count-100001', 'INVALID_COUNT', request('count-100001', { count: 100_001 })),
    bad('twice', 'MALFORMED_REQUEST', request('twice'), { kafka_correlationId: ['twice', 'twice'] }),
    unreported('anonymous', 'INVALID_CORRELATION_ID', anonymous),
    unreported('long-id', 'INVALID_CORRELATION_ID', anonymous, { kafka_correlationId: 'x'.repeat(257) }),
    unreported('denied', 'INVALID_REPLY_TOPIC', request('denied', { replyTopic: denied })),
    unreported('internal', 'INVALID_REPLY_TOPIC', request('internal', { replyTopic: '__consumer_offsets' })),
    unreported('ledger', 'INVALID_REPLY_TOPIC', request('ledger', { replyTopic: realm.ledgerTopic })),
    unreported('nameless', 'INVALID_REPLY_TOPIC', request('nameless', { replyTopic: '' })),
    unreported('missing', 'REPLY_UNDELIVERABLE', request('missing', { replyTopic: `${realm.replyTopic}.none` })),
    unreported('huge', 'MALFORMED_REQUEST', null, { ...addressed('huge'), junk }),
    unreported('huge-request', 'MALFORMED_REQUEST', request('huge-request'), { junk }),
  ];
  const served = [good('proto', JSON.parse('{"__proto__":"x","constructor":"y"}'))];
  const mixed = malformed.flatMap((one, i) => [good(`good-${i}`), one]);
  return [...mixed, ...served, good('last')];
}

beforeAll(async () => {
  realm = await Realm.create(suiteServers());
  denied = `denied-${realm.requestTopic}`;
  await realm.createTopic(denied);
  [replies, letters] = await Promise.all([realm.follow(), realm.follow(realm.deadLetterTopic)]);
  cases = makeCases();
  const messages = cases.map(({ name, value, headers }) => {
    return { key: `key-${name}`, value, partition: PARTITION, ...(headers === undefined ? {} : { headers }) };
  });
  // Huge records are sent alone: a record batch may have 1 MiB.
  const small = messages.filter((_, i) => !isHuge(cases[i] as Case));
  const huge = messages.filter((_, i) => isHuge(cases[i] as Case));
  const sent = await realm.sendRaw(small);
  baseOffset = Number(sent[0]?.baseOffset);
  for (const message of huge) await realm.sendRaw([message]);
  cases = [...small, ...huge].map(({ key }) => cases.find(({ name }) => `key-${name}` === key) as Case);
  await realm.worker().ready();
});

afterAll(() => realm?.[Symbol.asyncDispose]());

test('every good record among the bad ones is served', async () => {
  for (const { name } of cases.filter(({ code }) => code === undefined)) {
    const { reply } = await replies.reply(name);
    expect('batch' in reply, name).toBe(true);
  }
});

test('every bad record gets an error reply if its address is known and allowed, and none otherwise', async () => {
  const reported = cases.filter(({ isReported }) => isReported);
  await replies.replies(reported.length);
  for (const { name, code } of reported.filter((one) => one.code !== undefined)) {
    const { reply } = await replies.reply(name);
    expect('error' in reply ? reply.error : undefined, name).toMatchObject({
      code,
      message: expect.stringMatching(/./),
    });
  }
  // The last records of the partition are answered by now, and so are all before them.
  const replied = new Set(replies.seen.map(({ message }) => String(message.key)));
  expect(replied).toEqual(new Set(reported.map(({ name }) => name)));
});

test('every bad record is a dead letter with its original bytes, headers and place, and the reason', async () => {
  const bad = cases.flatMap((one, i) => (one.code === undefined ? [] : [{ ...one, offset: baseOffset + i }]));
  await letters.until(`${bad.length} dead letters`, (seen) => seen.length >= bad.length);
  for (const { name, value, headers: own = {}, code, offset } of bad.filter((one) => !isHuge(one))) {
    const isOfIt = (key: string | Buffer | null) => key !== null && [`key-${name}`, name].includes(String(key));
    const letter = letters.seen.find(({ message: { key } }) => isOfIt(key))?.message;
    const { headers = {} } = letter ?? {};
    expect(letter?.value, name).toEqual(value);
    for (const [header, text] of Object.entries(own)) {
      expect(String(headers[header]) === String(text), `${name}: ${header}`).toBe(true);
    }
    const numbers = (header: string) => headers[header] as Buffer;
    expect(String(headers['kafka_dlt-original-topic']), name).toBe(realm.requestTopic);
    const place = [
      numbers('kafka_dlt-original-partition').readInt32BE(),
      Number(numbers('kafka_dlt-original-offset').readBigInt64BE()),
    ];
    // A record that was forwarded before it was rejected has its first place in a header.
    const [cameTo, cameAt] = String(headers['idalloc-origin'] ?? place.join('/')).split('/');
    expect([Number(cameTo), Number(cameAt)], name).toEqual([PARTITION, offset]);
    expect(Number(numbers('kafka_dlt-original-timestamp').readBigInt64BE()), name).toBeGreaterThan(0);
    expect(String(headers['kafka_dlt-exception-fqcn']), name).toBe(code);
    expect(String(headers['kafka_dlt-exception-message']), name).not.toBe('');
  }
  expect(letters.seen).toHaveLength(bad.length);
});

test('a record that is longer than any request is a dead letter with its place and the reason alone', async () => {
  const offsets = cases.flatMap((one, i) => (isHuge(one) ? [baseOffset + i] : []));
  expect(offsets).toHaveLength(2);
  const letterAt = (offset: number) =>
    letters.seen.find(({ message: { headers } }) => {
      const at = headers?.['kafka_dlt-original-offset'] as Buffer;
      return Number(at.readBigInt64BE()) === offset;
    })?.message;
  await letters.until('both letters', () => offsets.every((offset) => letterAt(offset) !== undefined));
  for (const { key, value, headers = {} } of offsets.map((offset) => letterAt(offset) ?? expect.fail())) {
    expect([key, value, String(headers['kafka_dlt-exception-fqcn'])]).toEqual([null, null, 'MALFORMED_REQUEST']);
    expect([String(headers['idalloc-record-left-out']), headers.junk]).toEqual(['1', undefined]);
  }
});

test('nothing is written to a topic that is not allowed', async () => {
  // The reply to the last request that is served: everything for earlier records was written before it.
  await replies.reply('last');
  expect(await realm.records(denied)).toBe(0);
  const decided = cases.filter(({ code }) => code === undefined);
  expect(await realm.decisions(await realm.follow(realm.ledgerTopic))).toBe(decided.length);
});
