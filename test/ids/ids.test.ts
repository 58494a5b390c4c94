import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { compose } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { decode, firstIdAt, format, type IdForm, parse } from '../../src/ids/ids.ts';
import { anyLayout, partsOf } from '../core/arbitraries.ts';

const GOLDEN = 55_325_805_773_398_016n;
const MAX_ID = 2n ** 63n - 1n;
const FORMS: readonly IdForm[] = ['decimal', 'padded', 'hex', 'base62', 'base32'];
const FIXED: readonly IdForm[] = ['padded', 'hex', 'base62', 'base32'];

const anId = fc.oneof(fc.bigInt({ min: 0n, max: MAX_ID }), fc.constantFrom(0n, 1n, MAX_ID, 2n ** 53n + 1n));
/** `atEnd`: so close to the layout's last tick that there may be no next tick. */
const anIdOfALayout = anyLayout.chain((layout) =>
  partsOf(layout).map((parts) => {
    return { layout, id: compose(layout, parts), atEnd: (layout.endTicks - parts.ticks) * layout.tickMs < 2_200 };
  }),
);
const aForm = fc.constantFrom(...FORMS);

describe('an ID as text', () => {
  test('has the published forms', () => {
    expect(FORMS.map((form) => format(GOLDEN, form))).toEqual([
      '55325805773398016',
      '0055325805773398016',
      '00c48e86f8092000',
      '045OLpqvoae',
      '01H4EGVW0J800',
    ]);
  });

  test('is read back from every form', () => {
    fc.assert(fc.property(anId, aForm, (id, form) => parse(format(id, form), form) === id));
  });

  test('sorts as the IDs do where its length is fixed', () => {
    fc.assert(
      fc.property(anId, anId, fc.constantFrom(...FIXED), (a, b, form) => {
        const [textA, textB] = [format(a, form), format(b, form)];
        expect(textA).toHaveLength(textB.length);
        expect(textA < textB).toBe(a < b);
      }),
    );
  });

  test('has one text in each form, apart from documented leniency', () => {
    fc.assert(
      fc.property(
        fc.string({ maxLength: 20 }),
        fc.constantFrom('decimal', 'padded', 'base62' as IdForm),
        (text, form) => {
          let id: bigint;
          try {
            id = parse(text, form);
          } catch (error) {
            expect(error).toMatchObject({ code: 'INVALID_ID' });
            return;
          }
          expect(format(id, form)).toBe(text);
        },
      ),
    );
    expect(parse('0x00C48E86F8092000', 'hex')).toBe(GOLDEN);
    expect(parse('o1h4-egvw-oj8o-o', 'base32')).toBe(GOLDEN);
    expect(parse('0000000000I1L', 'base32')).toBe(parse('0000000000111', 'base32'));
  });

  test.each<[string, IdForm]>([
    ['9223372036854775808', 'decimal'],
    ['8000000000000000', 'hex'],
    ['AzL8n0Y58m8', 'base62'],
    ['8000000000000', 'base32'],
    ['01H4EGVW0J80U', 'base32'],
    ['', 'decimal'],
    ['007', 'decimal'],
    ['-1', 'decimal'],
    ['1e3', 'decimal'],
    [' 1', 'decimal'],
    ['c48e86f8092000', 'hex'],
  ])('%j is not an ID in %s', (text, form) => {
    expect(() => parse(text, form)).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
  });

  test('is never read from a JavaScript number, which may have lost digits', () => {
    const number = Number(GOLDEN) as unknown as bigint;
    for (const use of [() => format(number, 'hex'), () => decode(number), () => parse(number as never, 'decimal')]) {
      expect(use).toThrow(/numbers lose digits above 2\^53/);
    }
  });

  test.each([-1n, MAX_ID + 1n])('%d is rejected, not formatted', (id) => {
    expect(() => format(id, 'hex')).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
  });

  test('rejects an unknown form', () => {
    expect(() => format(1n, 'constructor' as IdForm)).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
  });
});

describe('a decoded ID', () => {
  const parts = { timestampMs: 1_780_416_300_000, datacenterId: 4, workerId: 18, sequence: 0 };

  test('has time, datacenter, worker and sequence, from a bigint or decimal text', () => {
    expect(decode(GOLDEN)).toEqual(parts);
    expect(decode(String(GOLDEN))).toEqual(parts);
  });

  test('is rejected if its ID is outside the layout', () => {
    expect(() => decode(MAX_ID, presetLayout('sonyflake'))).not.toThrow();
    expect(() => decode(-1n)).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
  });
});

describe('the first ID at a date', () => {
  test('separates the IDs before the date from those at and after it', () => {
    fc.assert(
      fc.property(anIdOfALayout, fc.integer({ min: -1_100, max: 1_100 }), ({ layout, id, atEnd }, awayMs) => {
        const madeMs = decode(id, layout).timestampMs;
        const date = new Date(madeMs + awayMs);
        if (atEnd && awayMs > 0) return;
        const first = firstIdAt(date, layout);
        const tickMs = Math.floor((date.getTime() - layout.epochMs) / layout.tickMs) * layout.tickMs + layout.epochMs;
        expect(id >= first).toBe(madeMs >= tickMs);
      }),
    );
  });

  test('is 0 before the epoch', () => {
    expect(firstIdAt(new Date(0))).toBe(0n);
    expect(firstIdAt(new Date(Date.UTC(2026, 0, 1)))).toBe(0n);
    expect(firstIdAt(new Date(Date.UTC(2026, 0, 1) + 1))).toBe(1n << 22n);
  });

  test('is rejected for an invalid date, and after the end of the layout', () => {
    for (const date of [new Date(Number.NaN), 0 as unknown as Date, new Date(Date.UTC(2100, 0, 1))]) {
      expect(() => firstIdAt(date)).toThrow(expect.objectContaining({ code: 'INVALID_ID' }));
    }
  });
});
