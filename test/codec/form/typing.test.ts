import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { openForm } from '../../../src/codec/form/forms.ts';
import { parseFormKeys } from '../../../src/codec/form/keys.ts';
import { dammDigit } from '../../../src/codec/form/number.ts';
import { presetLayout } from '../../../src/core/presets.ts';
import { KEY_1, KEY_2, KEYS, settingsOf } from '../../support/form-samples.ts';

const GOLDEN = 55_325_805_773_398_016n;
const SETTINGS = settingsOf(presetLayout('default'));
const anId = fc.bigInt({ min: 0n, max: 2n ** 63n - 1n });
const REFUSED = expect.objectContaining({ code: 'INVALID_ID' });

/** All texts with one of the characters from `first` on replaced, and all with two neighbours there exchanged. */
function mistyped(text: string, first: number, alphabet: string): string[] {
  const found: string[] = [];
  for (let at = first; at < text.length; at += 1) {
    const [before, one = '', next = '', after] = [text.slice(0, at), text[at], text[at + 1], text.slice(at + 2)];
    for (const other of alphabet) if (other !== one) found.push(before + other + text.slice(at + 1));
    if (next !== '' && next !== one) found.push(before + next + one + after);
  }
  return found;
}

describe('a number', () => {
  const { format, parse } = openForm('number', SETTINGS);

  test('is rejected with any digit wrong, and with any adjacent digits swapped', () => {
    fc.assert(
      fc.property(anId, (id) => {
        for (const wrong of mistyped(format(id), 1, '0123456789')) expect(() => parse(wrong), wrong).toThrow(REFUSED);
      }),
      { numRuns: 20 },
    );
  });

  test('reveals neither volume nor order', () => {
    const texts = Array.from({ length: 64 }, (_, k) => format(GOLDEN + BigInt(k)));
    const firstDigits = new Set(texts.map((text) => text.slice(1, 3)));
    expect(firstDigits.size).toBeGreaterThan(20);
    expect(texts.map((text) => text.length)).toEqual(texts.map(() => 21));
    expect(texts.toSorted()).not.toEqual(texts);
  });

  test('is rejected at 2^63 and above', () => {
    const permutation = KEYS.writing.permutation('number', 10);
    const digits = permutation.encrypt(Array.from(String(2n ** 63n), Number));
    const body = `2${digits.join('')}`;
    expect(() => parse(`${body}${dammDigit(body)}`)).toThrow('it was not written with key 2');
  });
});

test('the check digit of 572 is the published one', () => {
  expect([dammDigit('572'), dammDigit('5724')]).toEqual([4, 0]);
});

describe('a prefixed ID', () => {
  const { format, parse } = openForm('prefixed', SETTINGS);

  test('is rejected with any character wrong, and with any adjacent characters swapped', () => {
    fc.assert(
      fc.property(anId, (id) => {
        for (const wrong of mistyped(format(id), 4, '0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U')) {
          expect(() => parse(wrong), wrong).toThrow(REFUSED);
        }
      }),
      { numRuns: 20 },
    );
  });

  test('is read with Crockford leniency, except for its prefix', () => {
    const text = format(GOLDEN);
    expect(text).toBe('ord_01H4EGVW0J8004');
    for (const same of ['ord_01h4egvw0j8004', 'ord_OLH4-EGVW-0J80-04', 'ord_0iH4EGVWoJ8oO4'])
      expect(parse(same)).toBe(GOLDEN);
    for (const other of ['ORD_01H4EGVW0J8004', 'orders_01H4EGVW0J8004', '01H4EGVW0J8004', 'ord01H4EGVW0J8004']) {
      expect(() => parse(other)).toThrow('it does not start with ord_');
    }
  });

  test('is rejected above 2^63, whatever its check symbol', () => {
    expect(() => parse('ord_80000000000000')).toThrow('13 base32 digits below 2^63');
  });
});

describe('readers are lenient', () => {
  test.each([
    ['hex', '0x00C48E86F8092000'],
    ['base32', 'oih4-egvw-oj80-0'],
  ] as const)('in %s', (name, text) => {
    expect(openForm(name, SETTINGS).parse(text)).toBe(GOLDEN);
  });

  test.each(['uuid7', 'uuid4', 'ulid', 'objectid'] as const)('in %s with capitals and small letters', (name) => {
    const { format, parse } = openForm(name, SETTINGS);
    expect(parse(format(GOLDEN).toUpperCase())).toBe(GOLDEN);
    expect(parse(format(GOLDEN).toLowerCase())).toBe(GOLDEN);
  });

  test.each(['uuid7', 'uuid4'] as const)('%s names the version of another UUID', (name) => {
    expect(() => openForm(name, SETTINGS).parse('c232ab00-9414-11ec-b3c8-9f6bdeced846')).toThrow(
      'its version is 1, not',
    );
  });
});

describe('keys', () => {
  test('are all tried by parse, and the first one formats', () => {
    const [old, both] = [parseFormKeys(KEY_1), parseFormKeys(`# newest first\n\n ${KEY_2} \r\n${KEY_1}\n`)];
    for (const name of ['uuid4', 'number'] as const) {
      const before = openForm(name, { keys: old }).format(GOLDEN);
      const after = openForm(name, { keys: both }).format(GOLDEN);
      expect(after).not.toBe(before);
      expect([before, after].map((text) => openForm(name, { keys: both }).parse(text))).toEqual([GOLDEN, GOLDEN]);
      expect(() => openForm(name, { keys: old }).parse(after)).toThrow(REFUSED);
    }
    expect(() => openForm('number', { keys: old }).parse(openForm('number', { keys: both }).format(1n))).toThrow(
      'unknown key 2: see FORM_KEY',
    );
  });

  test('appear neither in JSON nor in errors', () => {
    expect(JSON.stringify(KEYS)).not.toMatch(/0123456789abcdef|fedcba9876543210|[0-9]{3}/);
  });

  test.each([
    ['', 'has no line of number:key'],
    ['# 1:00', 'has no line of number:key'],
    [`0${KEY_1.slice(1)}`, 'line 1 must be number:key'],
    [`1:${'0'.repeat(63)}`, 'a key of 64 hexadecimal digits'],
    [`${KEY_1}\n${KEY_1}`, 'line 2 repeats the number 1'],
    [`${KEY_1}\n3${KEY_1.slice(1).toUpperCase()}`, 'line 2 has the key of another number'],
  ])('are rejected as %j, without being shown', (text, message) => {
    expect(() => parseFormKeys(text)).toThrow(message);
    expect(() => parseFormKeys(text)).not.toThrow(/[0-9a-f]{8}/i);
  });
});
