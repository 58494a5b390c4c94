import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { customText, findLayout, layoutFinder } from '../../src/core/find-layout.ts';
import { type Layout, layoutText } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { fieldsText, parseFields, parseLayoutText } from '../../src/core/layout-text.ts';
import { anyLayout, presetLayouts } from './arbitraries.ts';

const referenceOf = ({ epochMs, fingerprint }: Layout) => ({ epochMs, layoutFingerprint: fingerprint });
const custom = customLayout({ fields: 'timestamp:42,sequence:9,worker:12:shard', epochMs: 1_700_000_000_000 });

describe('the text of fields', () => {
  it('parses back to its fields, in every layout', () => {
    fc.assert(
      fc.property(anyLayout, ({ fields }) => {
        expect(parseFields(fieldsText(fields))).toEqual(fields);
      }),
    );
  });

  it('has a label only where it differs from the role, and allows spaces around commas', () => {
    expect(fieldsText(custom.fields)).toBe('timestamp:42,sequence:9,worker:12:shard');
    expect(parseFields('timestamp:42 , worker:12:worker')).toEqual([
      { role: 'timestamp', bits: 42, label: 'timestamp' },
      { role: 'worker', bits: 12, label: 'worker' },
    ]);
  });

  it.each([
    '',
    'timestamp',
    'timestamp:',
    'timestamp:4x',
    'timestamp:041',
    'time:41',
    'worker:1:A',
    'worker:1:a:b',
    ',',
  ])("that is '%s' is refused, with the grammar in the message", (text) => {
    expect(() => parseFields(text)).toThrow(/role:bits or role:bits:label/);
  });

  it('has at most four fields', () => {
    expect(() => parseFields('worker:1,worker:1,worker:1,worker:1,worker:1')).toThrow(/has 5 fields/);
  });
});

describe('a layout that is described by a text', () => {
  it('is found by fingerprint and text, in every layout', () => {
    fc.assert(
      fc.property(anyLayout, (layout) => {
        const text = customText(layout);
        expect(findLayout(referenceOf(layout), text)).toMatchObject({
          fields: layout.fields,
          positions: layout.positions,
        });
        expect(parseLayoutText(layoutText(layout))).toMatchObject({ tickMs: layout.tickMs, epochMs: layout.epochMs });
      }),
    );
  });

  it('needs no text for a preset, whatever its name and epoch', () => {
    for (const preset of presetLayouts) {
      const { epochMs } = preset;
      expect([customText(preset), findLayout(referenceOf(preset))?.fields]).toEqual([undefined, preset.fields]);
      expect(customText(customLayout({ ...preset, fields: fieldsText(preset.fields), epochMs: epochMs + 1 }))).toBe(
        undefined,
      );
    }
  });

  it('is unknown without its text, and with the text of another layout', () => {
    const other = customLayout({ fields: 'timestamp:42,sequence:9,worker:12:host', epochMs: custom.epochMs });
    const wrong = [undefined, '', layoutText(other), `${layoutText(custom)} `, layoutText({ ...custom, tickMs: 2 })];
    for (const text of wrong) expect(findLayout(referenceOf(custom), text)).toBeUndefined();
    expect(findLayout({ ...referenceOf(custom), epochMs: custom.epochMs + 1 }, layoutText(custom))).toBeUndefined();
    expect(findLayout(referenceOf(custom), layoutText(custom))?.fingerprint).toBe(custom.fingerprint);
  });

  it('is found by a caching reader that saw it without a text before', () => {
    const find = layoutFinder();
    expect(find(referenceOf(custom))).toBeUndefined();
    expect(find(referenceOf(custom), layoutText(custom))?.fingerprint).toBe(custom.fingerprint);
    expect(find(referenceOf(custom))).toBeUndefined();
  });

  it('has exactly one spelling: any other has another fingerprint', () => {
    for (const text of [
      '',
      'x',
      layoutText(custom).replace(':shard', ''),
      layoutText(custom).replace('tick_ms=1', 'tick_ms=01'),
    ]) {
      expect(() => parseLayoutText(text)).toThrow(RangeError);
    }
  });
});
