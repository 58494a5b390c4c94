import { readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { FORM_NAMES, type FormName } from '../../../src/codec/form/form.ts';
import { FORMS, openForm } from '../../../src/codec/form/forms.ts';
import { parseFormKeys } from '../../../src/codec/form/keys.ts';
import type { Layout } from '../../../src/core/layout.ts';
import { presetLayouts } from '../../core/arbitraries.ts';
import { KEY_1, KEY_2, tried } from '../../support/form-samples.ts';

/*
 * schemas/golden/forms.json has IDs of each layout in each form, for other implementations. A changed text breaks users
 * who stored the old one. After an intended change: UPDATE_GOLDEN=1 vitest run --project unit
 * test/codec/form/golden.test.ts
 */
const FILE = new URL('../../../schemas/golden/forms.json', import.meta.url);
const PREFIX = 'ord';
const KEY_LINES = [KEY_2, KEY_1];
/** A time at which every layout here has IDs. */
const SOME_MS = 1_780_416_300_789;

interface Vectors {
  readonly about: string;
  readonly prefix: string;
  readonly form_key: readonly string[];
  readonly layouts: readonly {
    readonly name: string;
    readonly epoch_ms: number;
    readonly tick_ms: number;
    readonly bits_below_timestamp: number;
    readonly fingerprint: string;
    readonly free_bits: Readonly<Record<string, number>>;
    readonly ids: readonly { readonly id: string; readonly forms: Readonly<Record<string, string | null>> }[];
  }[];
  readonly older_key: Readonly<Record<string, string>>;
  readonly refused: readonly { readonly layout: string; readonly form: string; readonly text: string }[];
}

const keys = parseFormKeys(KEY_LINES.join('\n'));
const settingsFor = (layout: Layout) => ({ layout, keys, prefix: PREFIX });
const GOLDEN = 55_325_805_773_398_016n;

function idsOf(layout: Layout): bigint[] {
  const tick = BigInt(Math.floor((SOME_MS - layout.epochMs) / layout.tickMs));
  const first = tick << layout.timestampShift;
  return [0n, first, first + 1n, ((tick + 1n) << layout.timestampShift) - 1n, 2n ** 63n - 1n];
}

/** The same text with another last character of the same kind. */
function mistyped(text: string): string {
  return text.slice(0, -1) + (text.endsWith('3') ? '4' : '3');
}

function vectors(): Vectors {
  const [layout] = presetLayouts;
  if (layout === undefined) throw new TypeError('there is a layout');
  const older = parseFormKeys(KEY_1);
  const refusable = FORM_NAMES.filter((name) => FORMS[name].freeBits(layout) > 3 || name === 'number');
  return {
    about:
      'IDs as the forms of docs/reference/forms.md write them; null where a form can not hold the ID. form_key has the ' +
      'lines of FORM_KEY, the first of which formats. free_bits are those that parse compares.',
    prefix: PREFIX,
    form_key: KEY_LINES,
    layouts: presetLayouts.map((one) => ({
      name: one.name,
      epoch_ms: one.epochMs,
      tick_ms: one.tickMs,
      bits_below_timestamp: one.positions.timestamp.shift,
      fingerprint: one.fingerprint,
      free_bits: Object.fromEntries(FORM_NAMES.map((name) => [name, FORMS[name].freeBits(one)])),
      ids: idsOf(one).map((id) => ({
        id: String(id),
        forms: Object.fromEntries(
          FORM_NAMES.map((name) => [name, tried(() => openForm(name, settingsFor(one)).format(id)) ?? null]),
        ),
      })),
    })),
    older_key: Object.fromEntries(
      (['uuid4', 'number'] as const).map((name) => [name, openForm(name, { keys: older }).format(GOLDEN)]),
    ),
    refused: refusable.map((form) => {
      const text = mistyped(openForm(form, settingsFor(layout)).format(GOLDEN));
      return { layout: layout.name, form, text };
    }),
  };
}

if (process.env.UPDATE_GOLDEN === '1') writeFileSync(FILE, `${JSON.stringify(vectors(), null, 2)}\n`);

const stored = JSON.parse(readFileSync(FILE, 'utf8')) as Vectors;

describe('golden forms', () => {
  test('match what is written today', () => {
    expect(stored).toEqual(vectors());
  });

  test.each(stored.layouts.map((one) => [one.name, one] as const))('of layout %s are read today', (name, { ids }) => {
    const layout = presetLayouts.find((one) => one.name === name);
    if (layout === undefined) throw new TypeError(`there is a layout ${name}`);
    const texts = ids.flatMap(({ id, forms }) => Object.entries(forms).map(([form, text]) => ({ id, form, text })));
    for (const { id, form, text } of texts) {
      if (text !== null) expect(openForm(form, settingsFor(layout)).parse(text), form).toBe(BigInt(id));
    }
    expect(texts.filter(({ text }) => text !== null).length).toBeGreaterThan(40);
  });

  test('of an older key are read today', () => {
    for (const [form, text] of Object.entries(stored.older_key))
      expect(openForm(form, { keys }).parse(text)).toBe(GOLDEN);
  });

  test('that are forged are rejected', () => {
    expect(stored.refused.map(({ form }) => form as FormName)).toEqual([
      'uuid7',
      'uuid4',
      'ulid',
      'ksuid',
      'objectid',
      'boundary',
      'prefixed',
      'number',
    ]);
    for (const { layout: name, form, text } of stored.refused) {
      const layout = presetLayouts.find((one) => one.name === name);
      expect(
        tried(() => openForm(form, { layout, keys, prefix: PREFIX }).parse(text)),
        text,
      ).toBeUndefined();
    }
  });
});
