import { IdallocError } from '../../errors.ts';
import { FORM_NAMES, type Form, type FormName, type FormSettings, type OpenForm } from './form.ts';
import { number } from './number.ts';
import { base32, base62, decimal, hex, padded } from './plain.ts';
import { prefixed } from './prefixed.ts';
import { boundary, ksuid, objectid, simpleflake, ulid, uuid7 } from './timed.ts';
import { uuid4 } from './uuid.ts';

/** All forms by name. */
export const FORMS: Readonly<Record<FormName, Form>> = {
  decimal,
  padded,
  hex,
  base62,
  base32,
  uuid7,
  uuid4,
  ulid,
  ksuid,
  objectid,
  boundary,
  simpleflake,
  prefixed,
  number,
};

/** True for the name of a form. */
export function isFormName(name: string): name is FormName {
  return Object.hasOwn(FORMS, name);
}

/**
 * A form with its settings, checked once for any number of IDs.
 *
 * @throws IdallocError INVALID_ID for an unknown form, a missing prefix or layout, and a layout that does not fit;
 * CONFIG_INVALID for a missing key.
 */
export function openForm(name: string, settings: FormSettings = {}): OpenForm {
  if (isFormName(name)) return FORMS[name].open(settings);
  throw new IdallocError('INVALID_ID', `unknown form '${String(name).slice(0, 50)}': use ${FORM_NAMES.join(', ')}`);
}
