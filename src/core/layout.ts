import { IdallocError } from '../errors.ts';
import { type Ticks, ticks, type WallMs, wallMs } from './units.ts';

/** The content of a field: `worker` is leased, `datacenter` is configured. */
export type FieldRole = 'timestamp' | 'datacenter' | 'worker' | 'sequence';

export interface FieldSpec {
  readonly role: FieldRole;
  readonly bits: number;
  /** The field's name in the layout's original scheme, e.g. `shard`. */
  readonly label: string;
}

export interface LayoutSpec {
  readonly name: string;
  /** From the highest bits to the lowest. */
  readonly fields: readonly FieldSpec[];
  readonly tickMs: number;
  readonly epochMs: number;
  /** Each tick's first sequence number is random in [0, sequenceStartBelow); 1 means always 0. */
  readonly sequenceStartBelow: number;
}

/**
 * The position of a field: its lowest bit is bit `shift`, with the value `unit` = 2^shift. A missing datacenter has 0
 * bits.
 */
interface FieldPosition {
  readonly bits: number;
  readonly shift: number;
  readonly unit: number;
}

/** A validated, frozen layout with derived values; only `defineLayout` creates it. */
export interface Layout extends LayoutSpec {
  readonly positions: Readonly<Record<FieldRole, FieldPosition>>;
  /** places.timestamp.shift, ready for bigint arithmetic. */
  readonly timestampShift: bigint;
  /** False when the fields take all 64 bits. */
  readonly signBit: boolean;
  /** Whether every ID fits exactly into a JavaScript number: the fields have at most 53 bits. */
  readonly fitsNumber: boolean;
  /** The difference between two IDs with consecutive sequence numbers. */
  readonly step: bigint;
  readonly sequencesPerTick: number;
  /** Largest valid worker ID. */
  readonly maxWorker: number;
  /** Largest valid datacenter ID; 0 when the layout has no such field. */
  readonly maxDatacenter: number;
  /** The first unusable tick: the end of the field, or of the IDs below 2^63 if that is earlier. */
  readonly endTicks: Ticks;
  /** Largest batch: 100,000 IDs, or the guaranteed IDs of one second if that is less. */
  readonly maxCount: number;
  /** 16 hex digits: a hash of the spec without its name. */
  readonly fingerprint: string;
}

/** A problem with one property of a spec, worded to follow the property's name. */
export interface LayoutProblem {
  readonly property: keyof LayoutSpec;
  readonly problem: string;
}

export interface IdParts {
  readonly ticks: Ticks;
  readonly datacenter: number;
  readonly worker: number;
  readonly sequence: number;
}

/** A part keeps the generator busy for at most about this long; others wait for it. */
const PART_MAX_GENERATOR_MS = 50;
/** Whatever the layout: when requests want IDs listed one by one, this many take 30 ms to encode. */
const PART_MAX_LISTED_IDS = 200_000;
/** A request above this share of a part delays others by more than an append does. */
const LARGE_SHARE = 1 / 40;
const MAX_BATCH = 100_000;
const ID_BITS = 64;
/** A double represents all integers of this many bits. */
const NUMBER_BITS = 53;
/** IDs are sent as signed 64-bit integers, so they stay below 2^63 even in a layout without a sign bit. */
const USABLE_BITS = 63;
/** With at most 48 bits on either side, all arithmetic on either half of an ID is exact in a double. */
const TIMESTAMP_BITS = { least: 16, most: 48 };
const OTHER_BITS = { least: 1, most: 32 };
const MAX_TICK_MS = 1000;
/** The last instant that a Date can show. */
const MAX_DATE_MS = 8_640_000_000_000_000;
const LABEL = /^[a-z][a-z0-9_-]{0,31}$/;
const NO_PLACE: FieldPosition = Object.freeze({ bits: 0, shift: 0, unit: 1 });

/**
 * Validates a layout and computes its derived values. Throws CONFIG_INVALID with all problems.
 */
export function defineLayout(spec: LayoutSpec): Layout {
  const problems = layoutProblems(spec).map(({ property, problem }) => `${property} ${problem}`);
  if (problems.length > 0) throw new IdallocError('CONFIG_INVALID', `layout '${spec.name}': ${problems.join('; ')}`);
  const positions = placeFields(spec.fields);
  const sequencesPerTick = 2 ** positions.sequence.bits;
  const surePerTick = sequencesPerTick - (spec.sequenceStartBelow - 1);
  return Object.freeze({
    name: spec.name,
    fields: Object.freeze(spec.fields.map(({ role, bits, label }) => Object.freeze({ role, bits, label }))),
    tickMs: spec.tickMs,
    epochMs: spec.epochMs,
    sequenceStartBelow: spec.sequenceStartBelow,
    positions,
    timestampShift: BigInt(positions.timestamp.shift),
    signBit: totalBits(spec.fields) < ID_BITS,
    fitsNumber: totalBits(spec.fields) <= NUMBER_BITS,
    step: 1n << BigInt(positions.sequence.shift),
    sequencesPerTick,
    maxWorker: 2 ** positions.worker.bits - 1,
    maxDatacenter: 2 ** positions.datacenter.bits - 1,
    endTicks: endOf(positions.timestamp),
    maxCount: Math.min(MAX_BATCH, Math.floor((1000 * surePerTick) / spec.tickMs)),
    fingerprint: fingerprintOf(layoutText(spec)),
  });
}

/** All problems of a spec; empty for a valid one. */
export function layoutProblems(spec: LayoutSpec): LayoutProblem[] {
  const problems = fieldProblems(spec.fields).map((problem): LayoutProblem => ({ property: 'fields', problem }));
  const add = (property: keyof LayoutSpec, problem: string) => problems.push({ property, problem });
  if (!LABEL.test(spec.name)) add('name', `'${spec.name}' must match ${LABEL.source}`);
  if (!isWhole(spec.tickMs, 1, MAX_TICK_MS)) add('tickMs', `is ${spec.tickMs}, must be 1..${MAX_TICK_MS}`);
  const positions = placeFields(spec.fields);
  const endMs = spec.epochMs + endOf(positions.timestamp) * spec.tickMs;
  if (!isWhole(spec.epochMs, 0, MAX_DATE_MS)) {
    add('epochMs', `is ${spec.epochMs}, must be whole milliseconds since 1970 in 0..${MAX_DATE_MS}`);
  } else if (endMs > MAX_DATE_MS) {
    add('fields', `lasts past the year 275760; use fewer timestamp bits or a shorter tick`);
  }
  const sequencesPerTick = 2 ** positions.sequence.bits;
  if (!isWhole(spec.sequenceStartBelow, 1, sequencesPerTick)) {
    add('sequenceStartBelow', `is ${spec.sequenceStartBelow}, must be 1..${sequencesPerTick}`);
  }
  return problems;
}

function fieldProblems(fields: readonly FieldSpec[]): string[] {
  const problems: string[] = [];
  for (const { role, bits, label } of fields) {
    const { least, most } = role === 'timestamp' ? TIMESTAMP_BITS : OTHER_BITS;
    if (!isWhole(bits, least, most)) problems.push(`gives '${label}' ${bits} bits, must give it ${least}..${most}`);
    if (!LABEL.test(label)) problems.push(`has the label '${label}', which must match ${LABEL.source}`);
  }
  for (const role of ['timestamp', 'worker', 'sequence', 'datacenter'] as const) {
    const found = fields.filter((field) => field.role === role).length;
    if (role === 'datacenter' && found > 1) problems.push(`has ${found} datacenter fields, may have one`);
    if (role !== 'datacenter' && found !== 1) problems.push(`has ${found} ${role} fields, must have exactly one`);
  }
  if (fields[0]?.role !== 'timestamp') {
    problems.push(
      'must begin with the timestamp: only in the highest bits does it make the IDs of a worker rise with time',
    );
  }
  const total = totalBits(fields);
  if (total > ID_BITS) problems.push(`takes ${total} bits, more than ${ID_BITS}`);
  return problems;
}

function placeFields(fields: readonly FieldSpec[]): Readonly<Record<FieldRole, FieldPosition>> {
  const positions = { timestamp: NO_PLACE, datacenter: NO_PLACE, worker: NO_PLACE, sequence: NO_PLACE };
  let shift = 0;
  for (const { role, bits } of fields.toReversed()) {
    positions[role] = Object.freeze({ bits, shift, unit: 2 ** shift });
    shift += bits;
  }
  return Object.freeze(positions);
}

function totalBits(fields: readonly FieldSpec[]): number {
  return fields.reduce((sum, field) => sum + field.bits, 0);
}

function endOf(timestamp: FieldPosition): Ticks {
  return ticks(2 ** Math.min(timestamp.bits, USABLE_BITS - timestamp.shift));
}

function isWhole(value: number, least: number, most: number): boolean {
  return Number.isSafeInteger(value) && value >= least && value <= most;
}

/**
 * A layout without its name as one line of ASCII: the input of the fingerprint, and the description of a custom layout.
 * Labels are validated to contain no separators.
 */
export function layoutText({ fields, tickMs, epochMs, sequenceStartBelow }: Omit<LayoutSpec, 'name'>): string {
  const list = fields.map(({ role, bits, label }) => `${role}:${bits}:${label}`).join(',');
  return `${list};tick_ms=${tickMs};epoch_ms=${epochMs};start_below=${sequenceStartBelow}`;
}

/** 64-bit FNV-1a (Fowler, Noll, Vo) of an ASCII text. */
function fingerprintOf(text: string): string {
  let hash = 0xcbf29ce484222325n;
  for (let at = 0; at < text.length; at += 1) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(text.charCodeAt(at))) * 0x100000001b3n);
  }
  return formatHex(hash);
}

/** The ID with these `parts`. Throws RangeError when a field does not fit, or when the ID would reach 2^63. */
export function compose(layout: Layout, parts: IdParts): bigint {
  requireFit(layout, 'ticks', parts.ticks, layout.endTicks - 1);
  requireFit(layout, 'datacenter', parts.datacenter, layout.maxDatacenter);
  requireFit(layout, 'worker', parts.worker, layout.maxWorker);
  requireFit(layout, 'sequence', parts.sequence, layout.sequencesPerTick - 1);
  const { sequence } = layout.positions;
  const low = fixedFields(layout, parts.datacenter, parts.worker) + parts.sequence * sequence.unit;
  return joinHalves(layout, parts.ticks, low);
}

/** The bits that stay the same during a term, datacenter and worker. Unchecked. */
export function fixedFields(layout: Layout, datacenter: number, worker: number): number {
  return datacenter * layout.positions.datacenter.unit + worker * layout.positions.worker.unit;
}

/** The ID of a tick and of the bits below the timestamp. Unchecked, for the generator's hot path. */
export function joinHalves(layout: Layout, idTicks: Ticks, low: number): bigint {
  return (BigInt(idTicks) << layout.timestampShift) | BigInt(low);
}

/** The parts of an ID. Throws RangeError for an ID outside this layout: negative, too large, or 2^63 and above. */
export function decompose(layout: Layout, id: bigint): IdParts {
  const idTicks = Number(id >> layout.timestampShift);
  if (id < 0n || idTicks >= layout.endTicks) throw new RangeError(`${id} is not an ID of layout '${layout.name}'`);
  const low = Number(BigInt.asUintN(layout.positions.timestamp.shift, id));
  const read = ({ bits, unit }: FieldPosition): number => Math.floor(low / unit) % 2 ** bits;
  const { datacenter, worker, sequence } = layout.positions;
  return { ticks: ticks(idTicks), datacenter: read(datacenter), worker: read(worker), sequence: read(sequence) };
}

/** The tick that contains a wall time; negative before the layout's epoch. */
export function toTicks(layout: Layout, wall: WallMs): Ticks {
  return ticks(Math.floor((wall - layout.epochMs) / layout.tickMs));
}

/** The wall time at which a tick begins. */
export function tickStartMs(layout: Layout, at: Ticks): WallMs {
  return wallMs(layout.epochMs + at * layout.tickMs);
}

/**
 * The most IDs that the requests of a part, which are decided together, may request, at least 1; a request for more
 * gets a separate part.
 */
export function partMaxIds(layout: Layout): number {
  const perTick = layout.sequencesPerTick - layout.sequenceStartBelow + 1;
  const most = Math.floor((perTick * PART_MAX_GENERATOR_MS) / layout.tickMs);
  return Math.max(1, Math.min(PART_MAX_LISTED_IDS, most));
}

/** Whether a request for this many IDs lets others go first. */
export function isLarge(layout: Layout, ids: number): boolean {
  return ids > partMaxIds(layout) * LARGE_SHARE;
}

/** The most IDs of a request that is answered at once, also while large ones wait; at least 1. */
export function maxSmallCount(layout: Layout): number {
  return Math.max(1, Math.floor(partMaxIds(layout) * LARGE_SHARE));
}

/** An ID as 16 lowercase hex digits. Throws RangeError outside [0, 2^64). */
export function formatHex(id: bigint): string {
  if (id < 0n || id >> 64n !== 0n) throw new RangeError(`${id} is not an unsigned 64-bit integer`);
  return id.toString(16).padStart(16, '0');
}

/** Throws RangeError for a datacenter or worker ID outside the layout. */
export function requireIdentity(layout: Layout, datacenter: number, worker: number): void {
  requireFit(layout, 'datacenter', datacenter, layout.maxDatacenter);
  requireFit(layout, 'worker', worker, layout.maxWorker);
}

function requireFit(layout: Layout, what: string, value: number, most: number): void {
  if (isWhole(value, 0, most)) return;
  throw new RangeError(`${what} ${value} is outside 0..${most} of layout '${layout.name}'`);
}

/** The name of every layout that is not a preset. */
export const CUSTOM = 'custom';

/** The syntax of parseFields, for error messages. */
export const FIELDS_HELP =
  'role:bits or role:bits:label, separated by commas, from the highest bits to the lowest; the roles are timestamp, ' +
  'datacenter, worker and sequence';

const FIELD = /^(timestamp|datacenter|worker|sequence):([0-9]{1,2})(?::([a-z][a-z0-9_-]{0,31}))?$/;
const MAX_FIELDS = 4;
const LAYOUT = /^([^;]*);tick_ms=([0-9]{1,16});epoch_ms=([0-9]{1,16});start_below=([0-9]{1,16})$/;

/**
 * Parses fields such as `timestamp:41,worker:10:shard,sequence:12`; the default label is the role. layoutProblems
 * checks whether they form a layout. Throws RangeError for a syntax error.
 */
export function parseFields(text: string): readonly FieldSpec[] {
  const items = text.split(',').map((item) => item.trim());
  if (items.length > MAX_FIELDS) throw new RangeError(`has ${items.length} fields, must have at most ${MAX_FIELDS}`);
  return items.map((item): FieldSpec => {
    const [, role, bits, label] = FIELD.exec(item) ?? [];
    if (role === undefined) throw new RangeError(`has '${item.slice(0, 40)}', must be ${FIELDS_HELP}`);
    return { role: role as FieldRole, bits: Number(bits), label: label ?? role };
  });
}

/** The inverse of parseFields, without labels that only repeat the role. */
export function fieldsText(fields: readonly FieldSpec[]): string {
  return fields.map(({ role, bits, label }) => `${role}:${bits}${label === role ? '' : `:${label}`}`).join(',');
}

/** The inverse of `layoutText`, as a custom layout. Throws RangeError for any other text. */
export function parseLayoutText(text: string): LayoutSpec {
  const [, fields = '', tickMs, epochMs, sequenceStartBelow] = LAYOUT.exec(text) ?? [];
  const spec = {
    name: CUSTOM,
    fields: parseFields(fields),
    tickMs: Number(tickMs),
    epochMs: Number(epochMs),
    sequenceStartBelow: Number(sequenceStartBelow),
  };
  // Any other spelling would have another fingerprint.
  if (layoutText(spec) === text) return spec;
  throw new RangeError(`'${text.slice(0, 100)}' is not a layout text`);
}
