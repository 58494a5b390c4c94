import { mkdtempDisposableSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { FORM_NAMES, type FormName } from '../../src/codec/form/form.ts';
import { openForm } from '../../src/codec/form/forms.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { KEY_1, KEY_2, settingsOf } from '../support/form-samples.ts';
import { cli } from './harness.ts';

const GOLDEN = 55_325_805_773_398_016n;
const SETTINGS = settingsOf(presetLayout('default'));
const ENV = { FORM_KEY: `${KEY_2}\n${KEY_1}` };
const PLAIN = ['decimal', 'padded', 'hex'];

const firstOf = (out: string) => JSON.parse(out).ids[0];

const textIn = (form: FormName) => openForm(form, SETTINGS).format(GOLDEN);
const prefixFor = (form: FormName) => (form === 'prefixed' ? ['--prefix', 'ord'] : []);

describe.each(FORM_NAMES)('idalloc decode, form %s', (form) => {
  const [text, prefix] = [textIn(form), prefixFor(form)];

  test('reads it with --form', async () => {
    const { code, out } = await cli(['decode', '--json', '--form', form, ...prefix, text], ENV);
    expect([code, firstOf(out).value_string]).toEqual([0, String(GOLDEN)]);
  });

  test('writes it with --as', async () => {
    const { code, out } = await cli(['decode', '--as', form, ...prefix, String(GOLDEN)], ENV);
    expect(code).toBe(0);
    expect(out.split('\n')[1]?.trim().split(/\s+/).at(-1)).toBe(text);
    const json = firstOf((await cli(['decode', '--json', '--as', form, ...prefix, String(GOLDEN)], ENV)).out);
    expect(json.value_form).toBe(text);
  });
});

/** A simpleflake is a decimal number, too. */
test.each(FORM_NAMES.filter((form) => form !== 'simpleflake'))(
  'idalloc decode recognises form %s, and says so unless it is decimal or hexadecimal',
  async (form) => {
    const { code, out } = await cli(['decode', '--json', textIn(form)], ENV);
    expect(code).toBe(0);
    expect(firstOf(out)).toMatchObject({
      value_string: String(GOLDEN),
      breakdown: { datacenter_id: 4, worker_id: 18 },
    });
    expect(firstOf(out).form).toBe(PLAIN.includes(form) ? undefined : form);
  },
);

describe('idalloc decode', () => {
  test('reads a number above every ID, which a simpleflake may be, as a simpleflake', async () => {
    const id = BigInt(Date.UTC(2040, 0) - Date.UTC(2026, 0)) << 22n;
    const text = openForm('simpleflake', SETTINGS).format(id);
    expect(text).toHaveLength(20);
    const { out } = await cli(['decode', '--json', text]);
    expect(firstOf(out)).toMatchObject({ value_string: String(id), form: 'simpleflake' });
  });

  test('shows the form in which each of several IDs was read', async () => {
    const texts = ['ulid', 'hex', 'prefixed'].map((form) => openForm(form, SETTINGS).format(GOLDEN));
    const [table = ''] = (await cli(['decode', ...texts])).out.split('\n\n');
    expect(table.split('\n').map((line) => line.trim().split(/ {2,}/).at(-1))).toEqual([
      'read as',
      'ulid',
      '0',
      'prefixed',
    ]);
  });

  test('rejects text that fits several forms, and lists them for --form', async () => {
    const text = openForm('simpleflake', SETTINGS).format(GOLDEN);
    const { code, out, err } = await cli(['decode', text]);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain(`"${text}" is an ID in decimal and simpleflake: choose one with --form`);
  });

  test.each([
    ['c232ab00-9414-11ec-b3c8-9f6bdeced846', `is not an ID in any form: the forms are ${FORM_NAMES.join(', ')}`],
    ['017f22e2-79b0-7cc3-98c4-dc0c0c07398f', "it does not contain a valid ID of layout 'default'"],
    ['01ARZ3NDEKTSV4RRFFQ69G5FAV', 'is not a valid ID in form ulid'],
    ['0ujtsYcgvSTl8PAuAdqWYSMnLOv', 'is not a valid ID in form ksuid'],
    ['507f1f77bcf86cd799439011', 'is not a valid ID in form objectid'],
    ['ord_01H4EGVW0J8005', 'wrong check symbol'],
    ['111111111111111111111', 'is not a valid ID in form number'],
    ['99999999999999999999999', 'is larger than any ID: the largest is 9223372036854775807'],
    ['9223372036854775808', 'error: "9223372036854775808" is larger than any ID: the largest is 9223372036854775807\n'],
    ['99999999999999999999', 'is larger than any ID'],
    ['0xffffffffffffffff', 'is larger than any ID'],
    ['3b241101-e2bb-4255-8caf-4136c566a962', 'it was not written with any of the keys'],
  ])('rejects %s, which no form wrote', async (text, message) => {
    const { code, out, err } = await cli(['decode', text], ENV);
    expect({ code, out }).toEqual({ code: 2, out: '' });
    expect(err).toContain(message);
  });

  test('checks the prefix only if --prefix names one', async () => {
    const text = openForm('prefixed', SETTINGS).format(GOLDEN);
    expect((await cli(['decode', '--prefix', 'inv', text])).err).toContain('it does not start with inv_');
    expect((await cli(['decode', '--form', 'prefixed', text])).err).toContain('needs a prefix, which is missing');
  });

  test('reads keys only where they are needed, and never shows one', async () => {
    const faulty = { FORM_KEY: `1:${'0123456789abcdef'.repeat(3)}` };
    expect((await cli(['decode', '1'], faulty)).code).toBe(0);
    const run = await cli(['decode', '--as', 'uuid4', '1'], faulty);
    expect(run).toMatchObject({
      code: 78,
      out: '',
      err: expect.stringContaining('FORM_KEY: line 1 must be number:key'),
    });
    expect(run.err).not.toContain('0123');
    const without = await cli(['decode', '--as', 'number', '1']);
    expect(without).toMatchObject({ code: 78, out: '', err: expect.stringContaining('set FORM_KEY or FORM_KEY_FILE') });
  });

  test('reads keys from a file', async () => {
    using folder = mkdtempDisposableSync(join(tmpdir(), 'idalloc-form-key-'));
    writeFileSync(join(folder.path, 'keys'), `# rotated\n${KEY_2}\n${KEY_1}\n`);
    const { out } = await cli(['decode', '--json', '--as', 'number', '1'], {
      FORM_KEY_FILE: join(folder.path, 'keys'),
    });
    expect(firstOf(out).value_form).toBe(openForm('number', SETTINGS).format(1n));
  });
});

describe('idalloc range --form', () => {
  const SPAN = ['range', '--from', '2026-06-02', '--to', '2026-06-03'];

  test('prints bounds that enclose the texts of all IDs between', async () => {
    for (const form of FORM_NAMES) {
      const { code, out, err } = await cli([...SPAN, '--json', '--form', form, ...prefixFor(form)], ENV);
      if (form === 'uuid4' || form === 'number') {
        const message = `form ${form} does not sort as the IDs do: it has no ranges`;
        expect({ code, out: JSON.parse(out) }).toEqual({ code: 2, out: { error: { code: 'USAGE', message } } });
        expect(err).toContain(`form ${form} does not sort as the IDs do`);
        continue;
      }
      const { first, last, first_form, last_form } = JSON.parse(out);
      const { format } = openForm(form, SETTINGS);
      expect([first_form, last_form]).toEqual([format(BigInt(first)), format(BigInt(last))]);
      if (form === 'decimal' || form === 'simpleflake') continue;
      expect(first_form <= format(GOLDEN) && format(GOLDEN) <= last_form).toBe(true);
    }
  });

  test('quotes text, but not numbers', async () => {
    expect((await cli([...SPAN, '--form', 'ulid'])).out).toMatch(
      /WHERE id BETWEEN '01[0-9A-Z]{24}' AND '01[0-9A-Z]{24}'\n$/,
    );
    expect((await cli([...SPAN, '--form', 'simpleflake'])).out).toMatch(/WHERE id BETWEEN [0-9]{19} AND [0-9]{19}\n$/);
  });
});

test.each([
  [['request', '--form', 'prefixed'], 2, 'needs a prefix, which is missing'],
  [['request', '--form', 'uuid4'], 78, 'set FORM_KEY or FORM_KEY_FILE'],
  [['request', '--form', 'roman'], 2, 'must be one of decimal, padded'],
])('%j is refused before anything is sent', async (args, code, message) => {
  expect(await cli(args)).toMatchObject({ code, out: '', err: expect.stringContaining(message) });
});
