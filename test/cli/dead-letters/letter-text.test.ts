import { expect, test } from 'vitest';
import type { TopicRecord } from '../../../src/adapters/kafka/topics/spans.ts';
import { letterOf, lettersText, letterText, mayBeFixed } from '../../../src/cli/dead-letters/letter-view.ts';
import { encodeIdRequest } from '../../../src/codec/id-request.ts';
import { REPLIES } from '../../support/memory-records.ts';

/** A letter that somebody else has written, unless the fields say otherwise. */
function letter(fields: Partial<TopicRecord> = {}) {
  const place = { topic: 'dlt', partition: 2, offset: 5, timestampMs: 1_700_000_000_000 };
  return letterOf({ ...place, key: Buffer.from('k'), value: Buffer.from('v'), headers: {}, ...fields });
}

const lineOf = (name: string, fields: Partial<TopicRecord>) =>
  letterText(letter(fields))
    .split('\n')
    .find((line) => line.startsWith(name));

test.each([
  ['plain text as it is, up to 256 bytes', 'x'.repeat(256), `"${'x'.repeat(256)}"`],
  ['what is longer in hex, cut', 'x'.repeat(257), `0x${'78'.repeat(256)}… (257 bytes)`],
  ['what is no plain text in hex, whole', '\u0001b', '0x0162 (2 bytes)'],
])('a letter shows %s', (_, key, shown) => {
  expect(lineOf('key', { key: Buffer.from(key) })).toBe(`key      ${shown}`);
});

test('a letter shows a key and a value that are not there as such', () => {
  expect(lineOf('key', { key: null })).toBe('key      null');
  const lines = letterText(letter({ value: null })).split('\n');
  expect(lines).toEqual(expect.arrayContaining(['value    null', '         empty', 'headers  none']));
});

test('a letter shows what its value requests', () => {
  const wanted = { count: 3, correlationId: Buffer.from('order-7'), replyTopic: REPLIES };
  expect(letterText(letter({ value: encodeIdRequest(wanted) }))).toContain(
    `         IdRequest: count 3, correlation ID order-7, reply topic ${REPLIES}, encoding default\n`,
  );
});

test.each([
  [60, 'k'.repeat(60)],
  [61, `${'k'.repeat(59)}…`],
])('a list cuts a key of %i characters to 60', (length, shown) => {
  const [, row = ''] = lettersText([letter({ key: Buffer.alloc(length, 'k') })]).split('\n');
  expect(row.split(/ {2,}/).at(-1)).toBe(shown);
});

test('a list without letters says so, and by which code they were looked for', () => {
  expect([lettersText([]), lettersText([], 'EXPIRED')]).toEqual([
    'there are no dead letters\n',
    'there are no dead letters with code EXPIRED\n',
  ]);
});

test.each([
  ['REPLY_UNDELIVERABLE', true],
  ['INVALID_REPLY_TOPIC', true],
  ['UNKNOWN_SCHEMA', true],
  ['INVALID_COUNT', false],
])('a request that was refused as %s may be served later: %s', (code, isSo) => {
  const { record, note } = letter();
  expect(mayBeFixed({ record, note: { ...note, code } })).toBe(isSo);
});
