import { sha256 } from '@noble/hashes/sha2.js';
import { type Layout, tickStartMs } from '../../core/layout.ts';
import { ticks } from '../../core/units.ts';
import { BASE62, CROCKFORD, HEX, normalisedCrockford } from './digits.ts';
import {
  type Form,
  type FormName,
  type FormSettings,
  isId,
  layoutFor,
  refusedId,
  refusedText,
  requireId,
  requireString,
} from './form.ts';
import { readUuid, UUID_BITS, uuidShape, writeUuid } from './uuid.ts';

/** A scheme whose values start with a time. */
interface TimedForm {
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
function timedForm(scheme: TimedForm): Form {
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

const ID_BYTES = 8;
/** Maximum number of hash bits. */
const MOST_BITS = 128;

/**
 * Fills the bits that an ID leaves free in a form: the first bits of SHA-256 over the ASCII text
 * `idalloc:FORM:FINGERPRINT:` and the ID as 8 bytes, big-endian. It detects typing errors, foreign texts and other
 * layouts, but anyone with the layout can compute it, so it proves nothing. SHA-256 is available in every language, and
 * the input fits into one block.
 */
class CheckBits {
  readonly #message: Uint8Array;
  readonly #idAt: DataView;
  readonly #unused: bigint;

  /** `bits`: 0 to 128. */
  constructor(form: FormName, layout: Layout, bits: number) {
    const head = new TextEncoder().encode(`idalloc:${form}:${layout.fingerprint}:`);
    this.#message = new Uint8Array(head.length + ID_BYTES);
    this.#message.set(head);
    this.#idAt = new DataView(this.#message.buffer, head.length);
    this.#unused = BigInt(MOST_BITS - bits);
  }

  of(id: bigint): bigint {
    this.#idAt.setBigUint64(0, id);
    const hash = sha256(this.#message);
    const read = new DataView(hash.buffer, hash.byteOffset);
    return ((read.getBigUint64(0) << 64n) | read.getBigUint64(8)) >> this.#unused;
  }
}

/** UUID version 7 (RFC 9562, 5.7): 48 bits of ms, which are the start of the ID's tick, and 74 bits of payload. */
export const uuid7 = timedForm({
  name: 'uuid7',
  sorts: 'text',
  shape: uuidShape(7),
  epochMs: 0,
  unitMs: 1,
  timeBits: 48,
  restBits: UUID_BITS - 48,
  write: (value) => writeUuid(7, value),
  read: (text) => readUuid('uuid7', 7, text),
});

/**
 * ULID: 48 bits of ms and 80 bits of payload, in 26 digits of Crockford's base32, which have room for two bits more.
 */
export const ulid = timedForm({
  name: 'ulid',
  sorts: 'text',
  shape: /^[0-7][0-9A-Z]{25}$/i,
  epochMs: 0,
  unitMs: 1,
  timeBits: 48,
  restBits: 80,
  write: (value) => CROCKFORD.write(value, 26),
  read: (text) => {
    const value = ulid.shape.test(requireString(text)) ? CROCKFORD.read(normalisedCrockford(text)) : undefined;
    if (value !== undefined) return value;
    throw refusedText('ulid', text, 'a ULID has 26 Crockford base32 digits, the first at most 7');
  },
});

/** KSUID: 32 bits of seconds since 2014-05-13T16:53:20Z and 128 bits of payload, in base62. */
export const ksuid = timedForm({
  name: 'ksuid',
  sorts: 'text',
  shape: /^[0-9A-Za-z]{27}$/,
  epochMs: 1_400_000_000_000,
  unitMs: 1000,
  timeBits: 32,
  restBits: 128,
  write: (value) => BASE62.write(value, 27),
  read: (text) => {
    const value = requireString(text).length === 27 ? BASE62.read(text) : undefined;
    if (value !== undefined && value < 2n ** 160n) return value;
    throw refusedText('ksuid', text, 'a KSUID has 27 characters of 0-9 A-Z a-z and is below 2^160');
  },
});

/** MongoDB's ObjectID: 32 bits of seconds since 1970 and 64 bits of payload, in 24 hexadecimal digits. */
export const objectid = timedForm({
  name: 'objectid',
  sorts: 'text',
  shape: /^[0-9a-f]{24}$/i,
  epochMs: 0,
  unitMs: 1000,
  timeBits: 32,
  restBits: 64,
  write: (value) => HEX.write(value, 24),
  read: (text) => {
    if (objectid.shape.test(requireString(text))) return BigInt(`0x${text}`);
    throw refusedText('objectid', text, 'an ObjectID has 24 hexadecimal digits');
  },
});

/** The length of a flake from 1975 to 2284 without leading zeros, as Boundary writes them. */
const FLAKE_LENGTH = 18;
const FLAKE_END = 62n ** BigInt(FLAKE_LENGTH);

/**
 * Boundary's Flake: 64 bits of ms since 1970, then 48 bits of worker and 16 of sequence. Here those 64 bits hold the
 * rest of the ID and its hash: a layout's sequence may have more than 16 bits or lie above the worker, and only the
 * ID's own bit order sorts as the IDs do.
 */
export const boundary = timedForm({
  name: 'boundary',
  sorts: 'text',
  shape: /^[0-9A-Za-z]{18}$/,
  epochMs: 0,
  unitMs: 1,
  timeBits: 64,
  restBits: 64,
  write: (value) => {
    if (value < FLAKE_END) return BASE62.write(value, FLAKE_LENGTH);
    const reason = `its time is after the year 2284, when a flake no longer fits into ${FLAKE_LENGTH} characters`;
    throw refusedId('boundary', reason);
  },
  read: (text) => {
    const value = requireString(text).length === FLAKE_LENGTH ? BASE62.read(text) : undefined;
    if (value !== undefined) return value;
    throw refusedText('boundary', text, `a flake has ${FLAKE_LENGTH} characters of 0-9 A-Z a-z`);
  },
});

/** Simpleflake: 41 bits of ms since 2000-01-01T05:00:00Z and 23 bits of payload, as an unsigned decimal number. */
export const simpleflake = timedForm({
  name: 'simpleflake',
  sorts: 'number',
  shape: /^(0|[1-9][0-9]{0,19})$/,
  epochMs: 946_702_800_000,
  unitMs: 1,
  timeBits: 41,
  restBits: 23,
  write: String,
  read: (text) => {
    const value = simpleflake.shape.test(requireString(text)) ? BigInt(text) : 2n ** 64n;
    if (value < 2n ** 64n) return value;
    throw refusedText('simpleflake', text, 'a simpleflake is a decimal number below 2^64');
  },
});
