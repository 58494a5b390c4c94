import fc from 'fast-check';
import type { FormName, FormSettings } from '../../src/codec/form/form.ts';
import { FORM_NAMES, FORMS } from '../../src/codec/form/forms.ts';
import { type FormKeys, parseFormKeys } from '../../src/codec/form/keys.ts';
import { compose, type Layout } from '../../src/core/layout.ts';
import { anyLayout, partsOf } from '../core/arbitraries.ts';

/** Published here, so of no use for anything else. */
export const KEY_1 = `1:${'0123456789abcdef'.repeat(4)}`;
export const KEY_2 = `2:${'fedcba9876543210'.repeat(4)}`;
export const KEYS: FormKeys = parseFormKeys(`${KEY_2}\n${KEY_1}`);

export const settingsOf = (layout: Layout): FormSettings => ({ layout, keys: KEYS, prefix: 'ord' });

/** Those whose `open` does not refuse the layout as a whole. */
export function formsFor(layout: Layout): FormName[] {
  return FORM_NAMES.filter((name) => FORMS[name].freeBits(layout) >= 0);
}

export const aLayoutAndIds = anyLayout.chain((layout) => {
  const anId = partsOf(layout).map((parts) => compose(layout, parts));
  return fc.record({ layout: fc.constant(layout), a: anId, b: anId });
});

/** The text, or undefined where the form refuses the ID. Any other error is a fault. */
export function tried<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if ((error as { code?: string }).code !== 'INVALID_ID') throw error;
    return undefined;
  }
}
