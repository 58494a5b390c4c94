import { pino } from 'pino';
import { expect, test } from 'vitest';
import { RequestRefused } from '../src/client/refusals.ts';
import { describeError, IdallocError } from '../src/errors.ts';

test.each<[unknown, string]>([
  [new IdallocError('NOT_FOUND', 'no such ID'), 'NOT_FOUND: no such ID'],
  [new Error('error:0A000086:certificate verify failed\n'), 'error:0A000086:certificate verify failed'],
  [new Error('Last error: connect ECONNREFUSED. Resolution note: '), 'Last error: connect ECONNREFUSED'],
  [new Error('No addresses. Resolution note: ENOTFOUND'), 'No addresses. Resolution note: ENOTFOUND'],
  ['a text', 'a text'],
])('%s is described without what libraries leave at the end', (thrown, text) => {
  expect(describeError(thrown)).toBe(text);
});

test('an error has the fields that are known, as JSON and in a log too', () => {
  const plain = new IdallocError('NOT_FOUND', 'no such ID', { cause: new Error('why') });
  expect([Object.keys(plain), plain.cause]).toEqual([['code', 'name'], new Error('why')]);
  const told = { name: 'IdallocError', code: 'NOT_FOUND', message: 'no such ID', retryable: false };
  expect(JSON.parse(JSON.stringify(plain))).toEqual(told);
  const about = { correlationId: 'order-4711', count: 3, retryAfterMs: 1_490 };
  const refused = new RequestRefused('QUOTA_EXCEEDED', 'later', about);
  const all = { name: 'RequestRefused', code: 'QUOTA_EXCEEDED', message: 'later', retryable: true, ...about };
  expect(JSON.parse(JSON.stringify({ error: refused }))).toEqual({
    error: { ...all, serverCode: 'QUOTA_EXCEEDED' },
  });
  const lines: string[] = [];
  pino({ base: null, timestamp: false }, { write: (line) => lines.push(line) }).error(refused);
  expect(JSON.parse(lines[0] ?? '')).toMatchObject({ err: { ...about, code: 'QUOTA_EXCEEDED' } });
});

test.each([
  [Buffer.from('order-4711'), 'order-4711'],
  [Uint8Array.of(0, 255), '0x00ff'],
  [Buffer.from('a b'), '0x612062'],
])('the JSON of an error has the correlation ID %o as %s', (correlationId, text) => {
  expect(new IdallocError('NO_REPLY', '', { correlationId }).toJSON()).toMatchObject({ correlationId: text });
});
