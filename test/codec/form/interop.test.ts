import { ObjectId } from 'bson';
import KSUID from 'ksuid';
import { decodeTime, isValid as isUlid } from 'ulid';
import { validate, version } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { FormName } from '../../../src/codec/form/form.ts';
import { openForm } from '../../../src/codec/form/forms.ts';
import { decompose, type Layout, tickStartMs } from '../../../src/core/layout.ts';
import { presetLayouts } from '../../core/arbitraries.ts';
import { settingsOf } from '../../support/form-samples.ts';

/** An ID of each preset at about 2026-06-02, with the highest values in all fields below the timestamp. */
const SAMPLES = presetLayouts.map((layout) => {
  const tick = BigInt(Math.floor((1_780_416_300_789 - layout.epochMs) / layout.tickMs));
  return [layout.name, layout, ((tick + 1n) << layout.timestampShift) - 1n] as const;
});

const write = (form: FormName, layout: Layout, id: bigint) => openForm(form, settingsOf(layout)).format(id);
const startOf = (layout: Layout, id: bigint): number => tickStartMs(layout, decompose(layout, id).ticks);

describe.each(SAMPLES)('for IDs of layout %s', (_, layout, id) => {
  const ms = startOf(layout, id);
  const seconds = Math.floor(ms / 1000);

  test('uuid recognises both UUID versions, with our time in version 7', () => {
    const [four, seven] = [write('uuid4', layout, id), write('uuid7', layout, id)];
    expect([validate(four), version(four), validate(seven), version(seven)]).toEqual([true, 4, true, 7]);
    expect(Number.parseInt(seven.slice(0, 13).replace('-', ''), 16)).toBe(ms);
  });

  test('ulid reads our time', () => {
    const text = write('ulid', layout, id);
    expect([isUlid(text), decodeTime(text)]).toEqual([true, ms]);
  });

  test('ksuid reads our time, and writes the same text', () => {
    const parsed = KSUID.parse(write('ksuid', layout, id));
    expect(parsed.timestamp + 1_400_000_000).toBe(seconds);
    expect(parsed.date).toEqual(new Date(seconds * 1000));
    expect(parsed.string).toBe(write('ksuid', layout, id));
  });

  test('bson reads our time, and writes the same text', () => {
    const text = write('objectid', layout, id);
    const parsed = new ObjectId(text);
    expect([parsed.getTimestamp(), parsed.toHexString()]).toEqual([new Date(seconds * 1000), text]);
  });

  test("a flake has our ms in its upper 64 bits, in Boundary's digit order", () => {
    const digits = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    const value = [...write('boundary', layout, id)].reduce((sum, one) => sum * 62n + BigInt(digits.indexOf(one)), 0n);
    expect(value >> 64n).toBe(BigInt(ms));
  });
});

test.each(SAMPLES.filter(([, layout]) => layout.positions.timestamp.shift <= 23))(
  'a simpleflake of layout %s has our ms in its upper 41 bits',
  (_, layout, id) => {
    const value = BigInt(write('simpleflake', layout, id));
    expect(Number(value >> 23n) + 946_702_800_000).toBe(startOf(layout, id));
  },
);
