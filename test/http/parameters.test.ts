import type { IncomingMessage } from 'node:http';
import { describe, expect, test } from 'vitest';
import { countParameter, idOf, requestKeyOf, requireNoOthers } from '../../src/http/parameters.ts';

describe('count', () => {
  test.each([
    [undefined, 1],
    ['1', 1],
    ['100000', 100_000],
  ])('%s is %s', (count, expected) => {
    expect(countParameter(count === undefined ? {} : { count }, 100_000)).toBe(expected);
  });

  test.each(['', '0', '-1', '01', '1.5', '1e3', ' 1', '0x10', '100001', '999999999999999999', '١', ['1', '2'], null])(
    '%j is refused as INVALID_COUNT',
    (count) => {
      expect(() => countParameter({ count }, 100_000)).toThrow(
        expect.objectContaining({ status: 400, code: 'INVALID_COUNT' }),
      );
    },
  );

  test('a misspelled parameter is rejected', () => {
    expect(() => countParameter({ cuont: '5' }, 100)).toThrow("unknown query parameter 'cuont': allowed: count");
    expect(() => requireNoOthers({ cuont: '5' }, ['at'])).toThrow("unknown query parameter 'cuont': allowed: at");
    expect(() => requireNoOthers({ cuont: '5' }, [])).toThrow("unknown query parameter 'cuont': none is allowed here");
  });
});

describe('an ID', () => {
  test.each([
    ['0', 0n],
    ['55325805773398016', 55325805773398016n],
    ['00c48e86f8092000', 55325805773398016n],
    ['00C48E86F8092000', 55325805773398016n],
    ['0x00c48e86f8092000', 55325805773398016n],
    ['0xc48e86f8092000', 55325805773398016n],
    ['9223372036854775807', 2n ** 63n - 1n],
    ['7fffffffffffffff', 2n ** 63n - 1n],
    ['1234567890123456', 1234567890123456n],
    ['0234567890123456', 0x0234567890123456n],
    ['0x1234567890123456', 0x1234567890123456n],
  ])('%s is read as %s', (text, id) => {
    expect(idOf(text)).toBe(id);
  });

  test.each(['', '-1', '1.0', '9223372036854775808', '0x', '0x8000000000000000', 'c48e86f8092000', 'ü', '1 ', ' 1'])(
    '%j is refused',
    (text) => {
      expect(() => idOf(text)).toThrow(expect.objectContaining({ status: 400, code: 'MALFORMED_REQUEST' }));
    },
  );
});

test('an idempotency key must be sent once, with 1 to 255 bytes', () => {
  const keyOf = (...keys: readonly string[]) => {
    const headers = keys.length === 0 ? {} : { 'idempotency-key': keys.join(', ') };
    const rawHeaders = keys.flatMap((key) => ['Idempotency-Key', key]);
    return requestKeyOf({ headers, rawHeaders } as unknown as IncomingMessage);
  };
  expect(keyOf()).toBeUndefined();
  expect(keyOf('k'.repeat(255))).toHaveLength(255);
  expect(keyOf(Buffer.from('ä').toString('latin1'))).toEqual(Buffer.from('ä'));
  for (const keys of [[''], ['k'.repeat(256)], ['a', 'a']]) {
    expect(() => keyOf(...keys)).toThrow('once, with 1 to 255 bytes');
  }
});
