import { type FormName, requireId } from '../codec/form/form.ts';
import { openForm } from '../codec/form/forms.ts';
import type { FormKeys } from '../codec/form/keys.ts';
import { compose, decompose, type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { presetLayout } from '../core/presets.ts';
import { wallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/** A form of docs/reference/forms.md. */
export type IdForm = FormName;

/** The fields of an ID. */
export interface DecodedId {
  /** Start of the ID's tick, in ms since 1970. */
  readonly timestampMs: number;
  readonly datacenterId: number;
  readonly workerId: number;
  readonly sequence: number;
}

const DEFAULT_LAYOUT = presetLayout('default');

/**
 * The fields of an ID in the default layout or the given one; a string is read as decimal.
 *
 * @throws IdallocError INVALID_ID for a number, an invalid string, an ID outside the layout, and an explicitly
 * undefined layout: a batch with an unknown layout must not be decoded by the default one.
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
 * The smallest ID with the timestamp `date`: `WHERE id >= firstIdAt(from) AND id < firstIdAt(to)` selects rows by time
 * without an index on time. It is a bound, not an allocated ID. A date is rounded down to its tick; one before the
 * layout's epoch returns 0.
 *
 * @throws IdallocError INVALID_ID for an invalid Date, for one after the layout's last tick, and for an undefined
 * layout.
 */
export function firstIdAt(date: Date, ...given: [layout?: Layout]): bigint {
  const layout = layoutOf(given);
  const atMs = date instanceof Date ? date.getTime() : Number.NaN;
  if (Number.isNaN(atMs)) throw new IdallocError('INVALID_ID', 'firstIdAt needs a valid Date');
  if (atMs <= layout.epochMs) return 0n;
  const at = toTicks(layout, wallMs(atMs));
  return inLayout(() => compose(layout, { ticks: at, datacenter: 0, worker: 0, sequence: 0 }));
}

/** Settings that some forms need. */
export interface FormOptions {
  /** The layout of the ID, for forms that contain its time; by default the default layout. */
  readonly layout?: Layout;
  /** For `uuid4` and `number`: from `formKeys`. */
  readonly keys?: FormKeys;
  /** For `prefixed`, such as `ord`. */
  readonly prefix?: string;
}

/**
 * An ID as text.
 *
 * @throws IdallocError INVALID_ID for a number, an ID outside 0..2^63-1, an ID that the form can't hold and a missing
 * prefix; CONFIG_INVALID for a missing key.
 */
export function format(id: bigint, form: IdForm, options: FormOptions = {}): string {
  return openForm(form, withLayout(options)).format(id);
}

/**
 * The ID of a text that `format` wrote with the same options. Hexadecimal digits may be uppercase; base32 follows
 * Crockford: lowercase letters and hyphens are accepted, I and L are read as 1, and O as 0.
 *
 * @throws IdallocError INVALID_ID for any other text; CONFIG_INVALID for a missing key.
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
  throw new IdallocError('INVALID_ID', 'the layout is undefined: define it with presetLayout or customLayout');
}

function inLayout<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new IdallocError('INVALID_ID', error.message, { cause: error });
  }
}
