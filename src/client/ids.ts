import { type FormName, requireId } from '../codec/form/form.ts';
import { openForm } from '../codec/form/forms.ts';
import type { FormKeys } from '../codec/form/keys.ts';
import { compose, decompose, type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { presetLayout } from '../core/presets.ts';
import { wallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/** A way to write an ID: the forms of docs/reference/forms.md. */
export type IdForm = FormName;

/** What an ID says of itself. */
export interface DecodedId {
  /** Wall milliseconds at which the ID's tick begins. */
  readonly timestampMs: number;
  readonly datacenterId: number;
  readonly workerId: number;
  readonly sequence: number;
}

const DEFAULT_LAYOUT = presetLayout('default');

/**
 * When and by whom an ID was made, by the default layout or another one; a text is read as decimal.
 *
 * @throws IdallocError INVALID_ID for a number, a text that is no ID, an ID that the layout can't make, and a layout that is
 * undefined: a batch whose layout is unknown must not be read by the default one.
 */
export function decode(id: bigint | string, ...given: [layout?: Layout]): DecodedId {
  const layout = layoutOf(given);
  const value = typeof id === 'string' ? parse(id, 'decimal') : requireId(id);
  const parts = inLayout(() => decompose(layout, value));
  return {
    timestampMs: tickStartMs(layout, parts.ticks),
    datacenterId: parts.datacenter,
    workerId: parts.worker,
    sequence: parts.sequence,
  };
}

/**
 * The smallest ID that can be made at `date`: `WHERE id >= firstIdAt(from) AND id < firstIdAt(to)` finds what was made from
 * `from` on and before `to`, without an index on time. It is no ID that anybody was given. A date inside of a tick longer
 * than 1 ms counts as the tick's beginning; one before the layout's epoch gives 0.
 *
 * @throws IdallocError INVALID_ID for no valid Date, for one behind the layout's last tick, and for a layout that is undefined.
 */
export function firstIdAt(date: Date, ...given: [layout?: Layout]): bigint {
  const layout = layoutOf(given);
  const atMs = date instanceof Date ? date.getTime() : Number.NaN;
  if (Number.isNaN(atMs)) throw new IdallocError('INVALID_ID', 'firstIdAt takes a valid Date');
  if (atMs <= layout.epochMs) return 0n;
  const at = toTicks(layout, wallMs(atMs));
  return inLayout(() => compose(layout, { ticks: at, datacenter: 0, worker: 0, sequence: 0 }));
}

/** What `format` and `parse` may need besides the ID and the form. */
export interface FormOptions {
  /** The layout that made the ID, for the forms that carry its time; the default one if missing. */
  readonly layout?: Layout;
  /** For `uuid4` and `number`: from `formKeys`. */
  readonly keys?: FormKeys;
  /** For `prefixed`, such as `ord`. */
  readonly prefix?: string;
}

/**
 * An ID as text.
 *
 * @throws IdallocError INVALID_ID for a number, for what is not in 0..2^63-1, for an ID that the form can't hold and for a
 * missing prefix; CONFIG_INVALID for a missing key.
 */
export function format(id: bigint, form: IdForm, options: FormOptions = {}): string {
  return openForm(form, withLayout(options)).format(id);
}

/**
 * The ID in a text that `format` wrote with the same options. Hexadecimal digits may be capitals; base32 digits may be
 * small letters, with hyphens, I or L for 1 and O for 0, as Crockford asks of a reader.
 *
 * @throws IdallocError INVALID_ID for every other text; CONFIG_INVALID for a missing key.
 */
export function parse(text: string, form: IdForm, options: FormOptions = {}): bigint {
  return openForm(form, withLayout(options)).parse(text);
}

function withLayout(options: FormOptions): FormOptions & { readonly layout: Layout } {
  return { ...options, layout: options.layout ?? DEFAULT_LAYOUT };
}

function layoutOf(given: readonly (Layout | undefined)[]): Layout {
  if (given.length === 0) return DEFAULT_LAYOUT;
  const [layout] = given;
  if (layout !== undefined) return layout;
  throw new IdallocError(
    'INVALID_ID',
    'the layout is undefined: make the one of these IDs by presetLayout or customLayout',
  );
}

function inLayout<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new IdallocError('INVALID_ID', error.message, { cause: error });
  }
}
