import fc from 'fast-check';
import { expect, test } from 'vitest';
import { apiRepliesViolation, httpRequestId, isHttpRequestId, maxHttpKeyBytes } from '../../src/codec/http-key.ts';
import { checkRequestId } from '../../src/codec/request-checks.ts';

test.each([
  ['', 'order-1', 'http//order-1'],
  ['orders', 'order-1', 'http/orders/order-1'],
  ['team/orders', 'order-1', 'http/team%2Forders/order-1'],
  ['100%', 'a/b', 'http/100%25/a/b'],
])("the key of '%s' for '%s' is '%s' in the ledger", (caller, key, name) => {
  const id = httpRequestId(caller, Buffer.from(key));
  expect([String(id), isHttpRequestId(id)]).toEqual([name, true]);
});

test('two callers, or two keys, never have one request ID, wherever their slashes are', () => {
  const part = fc.oneof(
    fc.string({ unit: 'grapheme', maxLength: 5 }),
    fc.constantFrom('', 'a', '%', '%2F', '%25', '/'),
  );
  const id = (caller: string, key: string) => httpRequestId(caller, Buffer.from(key)).toString('hex');
  fc.assert(
    fc.property(part, part, part, (one, two, three) => {
      const ids = [
        id(one, `${two}/${three}`),
        id(`${one}/${two}`, three),
        id(`${one}%2F${two}`, three),
        id(`${one}%2f${two}`, three),
      ];
      expect(new Set(ids).size).toBe(ids.length);
    }),
  );
});

test('a key of the most bytes fits into the ledger, and one byte more does not', () => {
  for (const caller of ['', 'orders', 'ä/ö', 'x'.repeat(64)]) {
    const most = maxHttpKeyBytes(caller);
    expect(checkRequestId(httpRequestId(caller, Buffer.alloc(most, 1)))).toHaveLength(256);
    expect(() => checkRequestId(httpRequestId(caller, Buffer.alloc(most + 1, 1)))).toThrow('it must have 1 to 256');
  }
});

test('the ID of another request is none', () => {
  for (const id of ['order-1', 'http', 'http:/x/y', 'HTTP/x/y']) expect(isHttpRequestId(Buffer.from(id))).toBe(false);
});

test('only what the HTTP API asks may name the topic of its replies', () => {
  const apiReplies = 'id.replies.http';
  const policy = { prefix: 'id.replies.', requestTopic: 'id.requests', ownTopics: [], apiReplies };
  const violation = (fields: Partial<Parameters<typeof apiRepliesViolation>[0]>, its = policy) =>
    apiRepliesViolation({ replyTopic: apiReplies, encoding: 'RANGES', ...fields }, its);
  const requestId = httpRequestId('orders', Buffer.from('k'));
  expect(violation({ requestId })).toBeUndefined();
  expect(violation({ requestId: Buffer.from('document 7'), sequence: 'invoices' })).toBeUndefined();
  for (const other of [
    {},
    { sequence: 'invoices' },
    { requestId: Buffer.from('document 7') },
    { requestId, encoding: 'IDS' },
  ] as const) {
    expect(violation(other)).toContain('API_REPLY_TOPIC');
    expect(violation({ ...other, replyTopic: 'id.replies.orders' })).toBeUndefined();
    expect(violation(other, { ...policy, apiReplies: undefined as unknown as string })).toBeUndefined();
  }
});
