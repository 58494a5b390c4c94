import fc from 'fast-check';
import { FORM_NAMES, type FormName, type FormSettings } from '../../src/codec/form/form.ts';
import { FORMS } from '../../src/codec/form/forms.ts';
import { type FormKeys, parseFormKeys } from '../../src/codec/form/keys.ts';
import { compose, defineLayout, type FieldRole, type Layout } from '../../src/core/layout.ts';
import { anyLayout, partsOf } from '../core/arbitraries.ts';

/** A key that is published here, so it must not be used anywhere else. */
export const KEY_1 = `1:${'0123456789abcdef'.repeat(4)}`;
export const KEY_2 = `2:${'fedcba9876543210'.repeat(4)}`;
export const KEYS: FormKeys = parseFormKeys(`${KEY_2}\n${KEY_1}`);

export const settingsOf = (layout: Layout): FormSettings => ({ layout, keys: KEYS, prefix: 'ord' });

/** The forms that support the layout. */
export function formsFor(layout: Layout): FormName[] {
  return FORM_NAMES.filter((name) => FORMS[name].freeBits(layout) >= 0);
}

/** Layouts with the most and with the fewest possible bits below the timestamp. */
const EXTREMES = [
  { timestamp: 16, worker: 16, sequence: 32 },
  { timestamp: 48, worker: 1, sequence: 1 },
].map(({ timestamp, worker, sequence }) =>
  defineLayout({
    name: 'extreme',
    fields: Object.entries({ timestamp, sequence, worker }).map(([role, bits]) => ({
      role: role as FieldRole,
      bits,
      label: role,
    })),
    tickMs: 30,
    epochMs: 1_780_000_000_000,
    sequenceStartBelow: 1,
  }),
);

export const aLayoutAndIds = fc
  .oneof({ weight: 5, arbitrary: anyLayout }, fc.constantFrom(...EXTREMES))
  .chain((layout) => {
    const anId = partsOf(layout).map((parts) => compose(layout, parts));
    return fc.record({ layout: fc.constant(layout), a: anId, b: anId });
  });

/** The result of the work; undefined if the form refuses the ID. Rethrows any other error. */
export function tried<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if ((error as { code?: string }).code !== 'INVALID_ID') throw error;
    return undefined;
  }
}
