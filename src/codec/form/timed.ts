import { type Layout, tickStartMs } from '../../core/layout.ts';
import { ticks } from '../../core/units.ts';
import { CheckBits } from './check-bits.ts';
import {
  type Form,
  type FormName,
  type FormSettings,
  isId,
  layoutFor,
  refusedId,
  refusedText,
  requireId,
} from './form.ts';

/** A scheme whose values start with a time. */
export interface TimedForm {
  readonly name: FormName;
  readonly sorts: Form['sorts'];
  readonly shape: RegExp;
  /** Milliseconds since 1970 at which the scheme's time is 0. */
  readonly epochMs: number;
  readonly unitMs: 1 | 1000;
  readonly timeBits: number;
  /** Bits below the time. */
  readonly restBits: number;
  /**
   * The value, below 2^(timeBits + restBits), as the scheme writes it. Throws INVALID_ID for a value outside the
   * scheme.
   */
  readonly write: (value: bigint) => string;
  /** The value in a text. Throws INVALID_ID. */
  readonly read: (text: string) => bigint;
}

/** Converts between IDs and values of a timed form. */
interface Packing {
  pack(id: bigint): bigint;
  /** Undefined for a value without an ID. */
  unpack(value: bigint): bigint | undefined;
}

/** A second has 1000 ms. */
const MS_BITS = 10;

/**
 * A form of a scheme whose values start with a time. From the highest bits, a value has: the start of the ID's tick in
 * the scheme's unit; the ms within the second, if that unit is the second (10 bits); the bits of the ID below its
 * timestamp; and a hash of the ID in the remaining bits. This is the ID's own order, so the values sort like the IDs.
 */
export function timedForm(scheme: TimedForm): Form {
  const { name, sorts, shape, write, read } = scheme;
  const packings = new WeakMap<Layout, Packing>();
  const packingOf = (settings: FormSettings): Packing => {
    const layout = layoutFor(name, settings);
    const known = packings.get(layout);
    if (known !== undefined) return known;
    const made = packing(scheme, layout);
    packings.set(layout, made);
    return made;
  };
  return {
    name,
    sorts,
    needs: ['layout'],
    shape,
    freeBits: (layout) => freeBits(scheme, layout),
    open: (settings) => {
      const { pack, unpack } = packingOf(settings);
      return {
        format: (id) => write(pack(requireId(id))),
        parse: (text) => {
          const id = unpack(read(text));
          if (id !== undefined) return id;
          throw notOurs(name, text, settings.layout?.name);
        },
      };
    },
  };
}

function notOurs(name: FormName, text: string, layout: string | undefined): Error {
  return refusedText(name, text, `it does not contain a valid ID of layout '${layout}'`);
}

function freeBits({ unitMs, restBits }: TimedForm, layout: Layout): number {
  return restBits - (unitMs === 1 ? 0 : MS_BITS) - layout.positions.timestamp.shift;
}

function packing(scheme: TimedForm, layout: Layout): Packing {
  const { name, epochMs, unitMs, timeBits } = scheme;
  const free = freeBits(scheme, layout);
  if (free < 0) {
    const { shift } = layout.positions.timestamp;
    throw refusedId(
      name,
      `layout '${layout.name}' has ${shift} bits below the time, but the form only ${shift + free}`,
    );
  }
  const check = new CheckBits(name, layout, free);
  const checkShift = BigInt(free);
  const lowShift = layout.timestampShift;
  const msShift = BigInt(unitMs === 1 ? 0 : MS_BITS);
  const end = 2 ** timeBits;
  const body = (id: bigint, time: number, ms: number): bigint => {
    const at = (BigInt(time) << msShift) | BigInt(ms);
    return (at << lowShift) | BigInt.asUintN(layout.positions.timestamp.shift, id);
  };
  return {
    pack(id) {
      const sinceMs = startOf(name, layout, id) - epochMs;
      const time = Math.floor(sinceMs / unitMs);
      if (time < 0 || time >= end) {
        const reach = `${timeText(epochMs)} to ${timeText(epochMs + (end - 1) * unitMs)}`;
        throw refusedId(name, `its time is ${timeText(sinceMs + epochMs)}, but the form covers ${reach}`);
      }
      return (body(id, time, sinceMs - time * unitMs) << checkShift) | check.of(id);
    },
    unpack(value) {
      const at = value >> (checkShift + lowShift);
      const ms = Number(BigInt.asUintN(Number(msShift), at));
      const tick = (epochMs + Number(at >> msShift) * unitMs + ms - layout.epochMs) / layout.tickMs;
      if (ms >= unitMs || !Number.isInteger(tick) || tick < 0 || tick >= layout.endTicks) return undefined;
      const low = BigInt.asUintN(layout.positions.timestamp.shift, value >> checkShift);
      const id = (BigInt(tick) << lowShift) | low;
      return isId(id) && check.of(id) === BigInt.asUintN(free, value) ? id : undefined;
    },
  };
}

/** Wall milliseconds of the start of the ID's tick. */
function startOf(name: FormName, layout: Layout, id: bigint): number {
  const tick = Number(id >> layout.timestampShift);
  if (tick < layout.endTicks) return tickStartMs(layout, ticks(tick));
  throw refusedId(name, `${id} is not an ID of layout '${layout.name}'`);
}

function timeText(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms since 1970` : date.toISOString();
}
