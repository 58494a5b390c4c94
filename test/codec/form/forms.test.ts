import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FORM_NAMES } from '../../../src/codec/form/form.ts';
import { FORMS, openForm } from '../../../src/codec/form/forms.ts';
import { compose, decompose, defineLayout } from '../../../src/core/layout.ts';
import { presetLayout } from '../../../src/core/presets.ts';
import { ticks } from '../../../src/core/units.ts';
import { aLayoutAndIds, formsFor, settingsOf, tried } from '../../support/form-samples.ts';

const DEFAULT = presetLayout('default');
const GOLDEN = 55_325_805_773_398_016n;
const RUNS = { numRuns: 200 };
const SORTED = FORM_NAMES.filter((name) => FORMS[name].sorts !== 'no');
const REFUSED = expect.objectContaining({ code: 'INVALID_ID' });

describe.each(FORM_NAMES)('form %s', (name) => {
  const form = FORMS[name];

  test('returns every ID that it can hold, in any layout', () => {
    let held = 0;
    fc.assert(
      fc.property(aLayoutAndIds, ({ layout, a }) => {
        fc.pre(formsFor(layout).includes(name));
        const { format, parse } = openForm(name, settingsOf(layout));
        const text = tried(() => format(a));
        if (text === undefined) return;
        held += 1;
        expect(text).toMatch(form.shape);
        expect(parse(text)).toBe(a);
      }),
      RUNS,
    );
    expect(held).toBeGreaterThan(30);
  });

  test('has different texts for different IDs', () => {
    fc.assert(
      fc.property(aLayoutAndIds, ({ layout, a, b }) => {
        fc.pre(formsFor(layout).includes(name) && a !== b);
        const { format } = openForm(name, settingsOf(layout));
        const texts = tried(() => [format(a), format(b)]);
        expect(new Set(texts).size).toBe(texts === undefined ? 0 : 2);
      }),
      RUNS,
    );
  });

  test('rejects invalid IDs, and texts of another shape', () => {
    const { format, parse } = openForm(name, settingsOf(DEFAULT));
    for (const wrong of [5, '5', undefined, -1n, 2n ** 63n]) expect(() => format(wrong as bigint)).toThrow(REFUSED);
    for (const wrong of [5, 5n, null, '', ' ', '-1', 'x', 'ß'.repeat(18), '9'.repeat(200), '٣'.repeat(11)]) {
      expect(() => parse(wrong as string)).toThrow(REFUSED);
    }
  });
});

/** Characters whose uppercase letters, or whose lowercase ones, are in ASCII. */
const LOOKALIKES = [
  ['S', 'ſ'],
  ['1', 'ı'],
  ['K', '\u212a'],
  ['SS', 'ß'],
  ['ST', 'ﬆ'],
  ['FF', 'ﬀ'],
] as const;

test.each(FORM_NAMES)('form %s accepts no character outside ASCII in place of one of its own', (name) => {
  const { format, parse } = openForm(name, settingsOf(DEFAULT));
  const texts = Array.from({ length: 2_000 }, (_, i) => format(GOLDEN + BigInt(i) * 987_654_321_123n));
  for (const [own, other] of LOOKALIKES) {
    for (const text of texts.filter((one) => one.toUpperCase().includes(own)).slice(0, 20)) {
      const at = text.toUpperCase().lastIndexOf(own);
      const odd = `${text.slice(0, at)}${other}${text.slice(at + own.length)}`;
      expect(() => parse(odd), odd).toThrow(REFUSED);
    }
  }
});

test.each(['base32', 'prefixed'] as const)('form %s accepts hyphens after its digits only', (name) => {
  const { format, parse } = openForm(name, settingsOf(DEFAULT));
  const [, head = '', body = ''] = /^(.*_)?(.*)$/.exec(format(GOLDEN)) ?? [];
  expect(parse(`${head}${body.slice(0, 4)}-${body.slice(4)}`)).toBe(GOLDEN);
  for (const wrong of [`-${body}`, `${'-'.repeat(13)}${body}`, `${body.slice(0, 4)}--${body.slice(4)}`]) {
    expect(() => parse(`${head}${wrong}`), wrong).toThrow(REFUSED);
  }
});

describe.each(SORTED)('form %s', (name) => {
  test('sorts like the IDs, including those of one tick and of adjacent ticks', () => {
    const { sorts } = FORMS[name];
    let compared = 0;
    fc.assert(
      fc.property(aLayoutAndIds, fc.integer({ min: 0, max: 2_000 }), ({ layout, a, b }, gap) => {
        fc.pre(formsFor(layout).includes(name));
        const near = decompose(layout, a).ticks + gap;
        const other = near < layout.endTicks ? compose(layout, { ...decompose(layout, b), ticks: ticks(near) }) : b;
        const { format } = openForm(name, settingsOf(layout));
        for (const id of [b, other]) {
          const texts = tried(() => [format(a), format(id)] as const);
          if (texts === undefined) continue;
          const [textA, text] = texts;
          compared += 1;
          if (sorts === 'text') expect(text).toHaveLength(textA.length);
          expect(sorts === 'text' ? textA < text : BigInt(textA) < BigInt(text)).toBe(a < id);
        }
      }),
      RUNS,
    );
    expect(compared).toBeGreaterThan(60);
  });
});

describe('a forged text', () => {
  const tight = FORM_NAMES.filter((name) => FORMS[name].freeBits(DEFAULT) >= 24);

  test('must match at least 24 bits in each form that has room for them', () => {
    expect(tight).toEqual(['uuid7', 'uuid4', 'ulid', 'ksuid', 'objectid', 'boundary']);
  });

  test.each(tight)('is refused in %s when one character of it differs', (name) => {
    const { format, parse } = openForm(name, settingsOf(DEFAULT));
    const text = format(GOLDEN);
    for (let at = 0; at < text.length; at += 1) {
      if (text[at] === '-') continue;
      const mistyped = `${text.slice(0, at)}${text[at] === '7' ? '6' : '7'}${text.slice(at + 1)}`;
      expect(() => parse(mistyped), mistyped).toThrow(REFUSED);
    }
  });

  test.each(tight)('is refused in %s when it has the right shape only', (name) => {
    const { parse } = openForm(name, settingsOf(DEFAULT));
    const anyText = fc.stringMatching(new RegExp(FORMS[name].shape.source));
    fc.assert(fc.property(anyText, (text) => tried(() => parse(text)) === undefined));
  });

  test.each(['uuid7', 'ulid', 'ksuid', 'objectid', 'boundary'] as const)(
    'is refused in %s when it was written with another layout that has the same fields',
    (name) => {
      const other = presetLayout('default', { epochMs: DEFAULT.epochMs - 1 });
      const text = openForm(name, settingsOf(other)).format(GOLDEN);
      expect(() => openForm(name, settingsOf(DEFAULT)).parse(text)).toThrow(
        "does not contain a valid ID of layout 'default'",
      );
    },
  );

  test('is rejected by its version when it is another kind of UUID', () => {
    const text = '00000000-0000-4000-8000-000000000000';
    expect(() => openForm('uuid7', settingsOf(DEFAULT)).parse(text)).toThrow(
      `"${text}" is not a valid ID in form uuid7: its version is 4, not 7`,
    );
  });

  test('is rejected when its time is inside a tick, or outside the layout', () => {
    const layout = presetLayout('sonyflake');
    const { format, parse } = openForm('uuid7', settingsOf(layout));
    const text = format(1_000n << 24n);
    expect(text.slice(0, 13)).toBe('01482e82-ff10');
    for (const ms of ['01482e82-ff11', '01482e75-d7ff', 'ffffffff-ffff']) {
      expect(() => parse(ms + text.slice(13))).toThrow(REFUSED);
    }
  });
});

describe('a form rejects IDs that it cannot hold, naming the limit', () => {
  test.each([
    ['simpleflake', 'sonyflake', 1n << 24n, "layout 'sonyflake' has 24 bits below the time, but the form only 23"],
    ['simpleflake', 'default', 2n ** 63n - 1n, 'its time is 2095-09-07T15:47:35.551Z, but the form covers 2000-01-01'],
    ['objectid', 'sonyflake', 2n ** 63n - 1n, 'the form covers 1970-01-01T00:00:00.000Z to 2106-02-07T06:28:15.000Z'],
    ['ksuid', 'twitter-2010', 0n, 'its time is 2010-11-04T01:42:54.657Z, but the form covers 2014-05-13T16:53:20.000Z'],
  ] as const)('%s in layout %s', (name, layout, id, message) => {
    expect(() => openForm(name, settingsOf(presetLayout(layout))).format(id)).toThrow(message);
  });

  test('boundary, for times after which its texts would be longer', () => {
    const late = presetLayout('default', { epochMs: Date.UTC(2284, 0, 1) });
    const { format, parse } = openForm('boundary', settingsOf(late));
    expect(parse(format(0n))).toBe(0n);
    expect(() => format(2n ** 62n)).toThrow('its time is after the year 2284');
  });

  test('every timed form, for an ID outside the layout', () => {
    const { timestamp, ...fields } = { timestamp: 16, worker: 8, sequence: 8 };
    const below = Object.entries(fields).map(([role, bits]) => ({
      role: role as 'worker' | 'sequence',
      bits,
      label: role,
    }));
    const narrow = defineLayout({
      name: 'narrow',
      fields: [{ role: 'timestamp', bits: timestamp, label: 'timestamp' }, ...below],
      tickMs: 1,
      epochMs: DEFAULT.epochMs,
      sequenceStartBelow: 1,
    });
    expect(() => openForm('ulid', settingsOf(narrow)).format(2n ** 32n)).toThrow(
      "4294967296 is not an ID of layout 'narrow'",
    );
  });
});

describe('what a form needs', () => {
  test.each([
    ['uuid4', {}, 'CONFIG_INVALID', 'form uuid4 needs a key: set FORM_KEY or FORM_KEY_FILE'],
    ['number', {}, 'CONFIG_INVALID', 'form number needs a key'],
    ['ulid', {}, 'INVALID_ID', "so it needs the ID's layout"],
    ['prefixed', {}, 'INVALID_ID', 'form prefixed needs a prefix, which is missing'],
    ['prefixed', { prefix: 'Ord' }, 'INVALID_ID', "needs a prefix, not 'Ord'"],
    ['prefixed', { prefix: 'a__b' }, 'INVALID_ID', 'with single _ between words'],
    ['prefixed', { prefix: 'a'.repeat(33) }, 'INVALID_ID', 'up to 32 characters'],
    ['roman', {}, 'INVALID_ID', "unknown form 'roman': use decimal, padded, hex"],
    ['constructor', {}, 'INVALID_ID', "unknown form 'constructor'"],
  ])('%s with %j', (name, settings, code, message) => {
    expect(() => openForm(name, settings)).toThrow(
      expect.objectContaining({ code, message: expect.stringContaining(message) }),
    );
  });
});
