import fc from 'fast-check';
import { expect, test } from 'vitest';
import { httpRequestId, isHttpRequestId, maxHttpKeyBytes } from '../../src/codec/http-key.ts';
import { checkRequestId } from '../../src/codec/request-checks.ts';

const bytes = (maxLength: number) => fc.uint8Array({ minLength: 1, maxLength }).map((array) => Buffer.from(array));

test.each([
  ['', 'order-1', 'http//order-1'],
  ['orders', 'order-1', 'http/orders/order-1'],
  ['team/orders', 'order-1', 'http/team%2Forders/order-1'],
  ['100%', 'a/b', 'http/100%25/a/b'],
])("the key of '%s' for '%s' is '%s' in the ledger", (caller, key, name) => {
  const id = httpRequestId(caller, Buffer.from(key));
  expect([String(id), isHttpRequestId(id)]).toEqual([name, true]);
});

test('two callers, or two keys, never have one request ID', () => {
  const names = fc.oneof(fc.string({ unit: 'grapheme', maxLength: 20 }), fc.stringMatching(/^[ab/%2F]{0,6}$/));
  const keys = fc.oneof(
    bytes(30),
    fc.stringMatching(/^[ab/%2F]{1,6}$/).map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(names, keys, names, keys, (caller, key, other, otherKey) => {
      const isSame = caller === other && key.equals(otherKey);
      expect(httpRequestId(caller, key).equals(httpRequestId(other, otherKey))).toBe(isSame);
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
