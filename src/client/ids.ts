import { compose, decompose, type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { presetLayout } from '../core/presets.ts';
import { wallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';

/**
 * How an ID is written. All but `decimal` have a fixed length, and their text order is the order of the IDs.
 *
 * decimal  1 to 19 digits, as in JSON      padded  19 digits
 * hex      16 lowercase digits             base62  11 of 0-9 A-Z a-z
 * base32   13 of Crockford's digits, which leave out I, L, O and U
 */
export type IdForm = 'decimal' | 'padded' | 'hex' | 'base62' | 'base32';

/** What an ID says of itself. */
export interface DecodedId {
  /** Wall milliseconds at which the ID's tick begins. */
  readonly timestampMs: number;
  readonly datacenterId: number;
  readonly workerId: number;
  readonly sequence: number;
}

interface Writing {
  /** In rising order of their character codes, so that texts sort as the numbers do. */
  readonly digits: string;
  /** Digits that hold every ID. */
  readonly length: number;
  readonly fixed: boolean;
}

const MAX_ID = 2n ** 63n - 1n;
const DECIMAL = '0123456789';
const UPPER = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';

const WRITINGS: Readonly<Record<IdForm, Writing>> = {
  decimal: { digits: DECIMAL, length: 19, fixed: false },
  padded: { digits: DECIMAL, length: 19, fixed: true },
  hex: { digits: `${DECIMAL}abcdef`, length: 16, fixed: true },
  base62: { digits: `${DECIMAL}${UPPER}${UPPER.toLowerCase()}`, length: 11, fixed: true },
  base32: { digits: `${DECIMAL}ABCDEFGHJKMNPQRSTVWXYZ`, length: 13, fixed: true },
};

const DEFAULT_LAYOUT = presetLayout('default');

/**
 * When and by whom an ID was made, by the default layout or another one; a text is read as decimal.
 *
 * @throws IdallocError INVALID_ID for a number, a text that is no ID, an ID that the layout can't make, and a layout that is
 * undefined: a batch whose layout is unknown must not be read by the default one.
 */
export function decode(id: bigint | string, ...given: [layout?: Layout]): DecodedId {
  const layout = layoutOf(given);
  const value = typeof id === 'string' ? parse(id, 'decimal') : checkId(id);
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

/**
 * An ID as text.
 *
 * @throws IdallocError INVALID_ID for a number, and for what is not in 0..2^63-1.
 */
export function format(id: bigint, form: IdForm): string {
  const { digits, length, fixed } = writingOf(form);
  const base = BigInt(digits.length);
  let text = '';
  for (let rest = checkId(id); rest > 0n; rest /= base) text = digits.charAt(Number(rest % base)) + text;
  return text.padStart(fixed ? length : 1, '0');
}

/**
 * The ID in a text that `format` wrote. Hex may have capitals and begin with 0x; base32 may have small letters, hyphens,
 * I or L for 1 and O for 0, as Crockford asks of a reader.
 *
 * @throws IdallocError INVALID_ID for every other text, and for an ID above 2^63-1.
 */
export function parse(text: string, form: IdForm): bigint {
  const { digits, length, fixed } = writingOf(form);
  if (typeof text !== 'string') throw notText(text);
  const written = asWritten(text, form);
  const base = BigInt(digits.length);
  let id = 0n;
  let isFaulty = fixed ? written.length !== length : !/^(0|[1-9][0-9]{0,18})$/.test(written);
  for (let at = 0; at < written.length && !isFaulty; at += 1) {
    const digit = digits.indexOf(written.charAt(at));
    isFaulty = digit < 0;
    id = id * base + BigInt(digit);
  }
  if (!isFaulty && id <= MAX_ID) return id;
  const shown = JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
  throw new IdallocError(
    'INVALID_ID',
    `${shown} is no ID in ${form}: ${fixed ? '' : 'up to '}${length} digits below 2^63`,
  );
}

/** What readers may write otherwise than `format` does. */
function asWritten(text: string, form: IdForm): string {
  if (form === 'hex') return text.replace(/^0x/, '').toLowerCase();
  if (form !== 'base32' || text.length > 40) return text;
  return text.replaceAll('-', '').toUpperCase().replaceAll('O', '0').replace(/[IL]/g, '1');
}

function writingOf(form: IdForm): Writing {
  if (Object.hasOwn(WRITINGS, form)) return WRITINGS[form];
  throw new IdallocError('INVALID_ID', `there is no form '${form}': use ${Object.keys(WRITINGS).join(', ')}`);
}

function checkId(id: bigint): bigint {
  if (typeof id !== 'bigint') throw notText(id);
  if (id >= 0n && id <= MAX_ID) return id;
  throw new IdallocError('INVALID_ID', `${id} is no ID: it must be in 0..${MAX_ID}`);
}

/** A number above 2^53 has lost its last digits before it gets here, so not even a small one is taken. */
function notText(value: unknown): IdallocError {
  const hint = typeof value === 'number' ? ': JavaScript numbers lose digits above 2^53, so keep IDs as strings' : '';
  return new IdallocError('INVALID_ID', `an ID is a bigint or a text, not a ${typeof value}${hint}`);
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
