import { fieldsText, type Layout } from '../core/layout.ts';
import { customText, findLayout } from '../core/layout-choice.ts';
import { type Ticks, ticks } from '../core/units.ts';
import { describeError, IdallocError } from '../errors.ts';
import { parseExactObject, requireExactObject, requireInteger, requireText } from './strict-json.ts';

/** The namespace format that this release reads and writes. */
export const DESCRIPTOR_FORMAT_VERSION = 1;

/** The settings that all workers of a namespace must agree on: otherwise IDs are not unique. */
export interface Descriptor {
  readonly formatVersion: number;
  /** People read the name; the fingerprint identifies the layout. */
  readonly layoutName: string;
  /** 16 lowercase hex digits. */
  readonly layoutFingerprint: string;
  /** From layoutText; only for a layout that is not a preset. */
  readonly layoutText?: string | undefined;
  readonly epochMs: number;
  readonly datacenterId: number;
  /** Worker IDs that may be leased, both ends included. */
  readonly pool: { readonly first: number; readonly last: number };
  /** Identifies this namespace permanently: a rebuilt one has another. */
  readonly uuid: string;
}

/** The descriptor that a configuration requires of its namespace. */
export function descriptorOf(
  config: Pick<Descriptor, 'datacenterId' | 'pool'> & { readonly layout: Layout },
  uuid: string,
): Descriptor {
  const { layout, datacenterId, pool } = config;
  return {
    formatVersion: DESCRIPTOR_FORMAT_VERSION,
    layoutName: layout.name,
    layoutFingerprint: layout.fingerprint,
    layoutText: customText(layout),
    epochMs: layout.epochMs,
    datacenterId,
    pool,
    uuid,
  };
}

/** A field in which two descriptors differ, by its name in the JSON, with both values as text. */
export interface DescriptorDifference {
  readonly field: string;
  readonly stored: string;
  readonly wanted: string;
}

/** Maximum number of worker IDs in a namespace. */
export const MAX_POOL = 1_024;

const DESCRIPTOR_KEYS = ['format_version', 'layout', 'epoch_ms', 'datacenter_id', 'pool', 'uuid'] as const;
const NAME = /^[\x20-\x7e]{1,64}$/;
const FINGERPRINT = /^[0-9a-f]{16}$/;
const LAYOUT_TEXT = /^[\x20-\x7e]{1,512}$/;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** The layout that a namespace has; undefined when it is unknown to this release. */
export function layoutOfDescriptor(descriptor: Descriptor): Layout | undefined {
  return findLayout(descriptor, descriptor.layoutText);
}

/** UTF-8 JSON, the same bytes for the same descriptor: etcd compares it as a whole. */
export function encodeDescriptor(descriptor: Descriptor): Buffer {
  const { layoutName: name, layoutFingerprint: fingerprint, layoutText: text } = descriptor;
  return Buffer.from(
    JSON.stringify({
      format_version: descriptor.formatVersion,
      layout: { name, fingerprint, text },
      epoch_ms: descriptor.epochMs,
      datacenter_id: descriptor.datacenterId,
      pool: { first: descriptor.pool.first, last: descriptor.pool.last },
      uuid: descriptor.uuid,
    }),
  );
}

/** Decodes a descriptor. Throws NAMESPACE_DAMAGED for anything that encodeDescriptor does not write. */
export function decodeDescriptor(value: Buffer): Descriptor {
  try {
    const fields = parseExactObject(value, DESCRIPTOR_KEYS);
    const layout = requireLayout(fields.layout);
    const range = requireExactObject(fields.pool, ['first', 'last']);
    const pool = requirePool({ first: requireInteger(range, 'first', 0), last: requireInteger(range, 'last', 0) });
    return {
      formatVersion: requireFormat(requireInteger(fields, 'format_version', 1)),
      layoutName: requireText(layout, 'name', NAME),
      layoutFingerprint: requireText(layout, 'fingerprint', FINGERPRINT),
      layoutText: layout.text === undefined ? undefined : requireText(layout, 'text', LAYOUT_TEXT),
      epochMs: requireInteger(fields, 'epoch_ms', Number.MIN_SAFE_INTEGER),
      datacenterId: requireInteger(fields, 'datacenter_id', 0),
      pool,
      uuid: requireText(fields, 'uuid', UUID),
    };
  } catch (error) {
    throw new IdallocError('NAMESPACE_DAMAGED', `a descriptor can't be read: ${describeError(error)}`, {
      cause: error,
    });
  }
}

/** A pool's worker IDs are listed and looked up one by one, so its size is bounded. */
function requirePool(pool: Descriptor['pool']): Descriptor['pool'] {
  const { first, last } = pool;
  if (last < first) throw new RangeError(`the pool ends at ${last}, before its start ${first}`);
  if (last - first < MAX_POOL) return pool;
  throw new RangeError(`the pool from ${first} to ${last} has more than ${MAX_POOL} worker IDs`);
}

/** Presets have no text, so that their bytes are those of every release. */
function requireLayout(value: unknown): Readonly<Record<string, unknown>> {
  const hasText = typeof value === 'object' && value !== null && Object.hasOwn(value, 'text');
  return requireExactObject(value, ['name', 'fingerprint', ...(hasText ? ['text'] : [])]);
}

/**
 * The differences that keep a worker with descriptor `wanted` out of a namespace with descriptor `stored`; empty if it
 * may work there. The layout's name and the UUID are not compared: one is for people, the other unknown to the worker.
 */
export function compareDescriptors(stored: Descriptor, wanted: Descriptor): DescriptorDifference[] {
  const has = { ...layoutRows(stored, wanted), ...decisive(stored) };
  const wants = { ...layoutRows(wanted, stored), ...decisive(wanted) };
  return Object.keys(has)
    .map((field) => ({ field, stored: has[field] ?? '', wanted: wants[field] ?? '' }))
    .filter((difference) => difference.stored !== difference.wanted);
}

/**
 * The rows of one layout that are compared with another. If both layouts are known and differ in a part, these are the
 * parts, since fingerprints mean nothing to people; otherwise the fingerprint. That includes the epoch, which has a
 * separate row, so it is left out where only the epochs differ.
 */
function layoutRows(one: Descriptor, other: Descriptor): Record<string, string> {
  if (one.layoutFingerprint === other.layoutFingerprint) return { layout: one.layoutFingerprint };
  const [rows, others] = [one, other].map((descriptor) => partRows(layoutOfDescriptor(descriptor)));
  const differs = rows && others && Object.keys(rows).some((field) => rows[field] !== others[field]);
  if (differs) return rows;
  const isEpochAlone = rows && others && one.epochMs !== other.epochMs;
  return isEpochAlone ? {} : { layout: one.layoutFingerprint };
}

function partRows(layout: Layout | undefined): Record<string, string> | undefined {
  if (layout === undefined) return undefined;
  return {
    'layout.fields': fieldsText(layout.fields),
    'layout.tick_ms': String(layout.tickMs),
    'layout.sequence_start_below': String(layout.sequenceStartBelow),
  };
}

function decisive(descriptor: Descriptor): Record<string, string> {
  return {
    format_version: String(descriptor.formatVersion),
    epoch_ms: String(descriptor.epochMs),
    datacenter_id: String(descriptor.datacenterId),
    pool: `${descriptor.pool.first}..${descriptor.pool.last}`,
  };
}

function requireFormat(version: number): number {
  if (version === DESCRIPTOR_FORMAT_VERSION) return version;
  throw new RangeError(
    `its format version is ${version}, but this release supports ${DESCRIPTOR_FORMAT_VERSION}: upgrade the worker`,
  );
}

/**
 * A worker ID's ceiling: the first tick that no worker may use yet, and the nonce of the attempt that wrote it, by
 * which its writer recognises it.
 *
 *   ceiling = ticks " " nonce;  ticks: decimal, no leading zero, below 2^53;  nonce: 1..64 of A-Z a-z 0-9 _ -
 */
export interface Ceiling {
  /** Whole ticks since the layout's epoch, from 0 up. */
  readonly ticks: Ticks;
  readonly nonce: string;
}

const CEILING = /^(0|[1-9][0-9]{0,15}) ([A-Za-z0-9_-]{1,64})$/;
const MAX_CEILING_BYTES = 16 + 1 + 64;

/** Encodes a ceiling. RangeError for one that decodeCeiling would reject. */
export function encodeCeiling(ceiling: Ceiling): Buffer {
  const text = `${ceiling.ticks} ${ceiling.nonce}`;
  if (parse(text) === undefined) throw new RangeError(`${JSON.stringify(text)} is not a ceiling`);
  return Buffer.from(text, 'latin1');
}

/**
 * Decodes the value of a ceiling's key. Throws NAMESPACE_DAMAGED if it is malformed: that must never count as "none
 * yet".
 */
export function decodeCeiling(value: Buffer): Ceiling {
  const ceiling = value.length <= MAX_CEILING_BYTES ? parse(value.toString('latin1')) : undefined;
  if (ceiling !== undefined) return ceiling;
  throw new IdallocError(
    'NAMESPACE_DAMAGED',
    `a ceiling of ${value.length} bytes is not of the form "<ticks> <nonce>": ` +
      'something else wrote to the namespace; restore the ceiling above every ID that was issued',
  );
}

function parse(text: string): Ceiling | undefined {
  const [, digits, nonce] = CEILING.exec(text) ?? [];
  if (digits === undefined || nonce === undefined) return undefined;
  const value = Number(digits);
  return Number.isSafeInteger(value) ? { ticks: ticks(value), nonce } : undefined;
}

/** The holder of a worker ID: the value of an owner key. Only for operators; nothing depends on it. */
export interface LeaseRecord {
  readonly assignedWorkerIp: string;
  readonly leaseTtlSeconds: number;
  readonly heartbeatToken: string;
  /** Wall milliseconds. */
  readonly grantedAtMs: number;
}

const LEASE_KEYS = ['assigned_worker_ip', 'lease_ttl_seconds', 'heartbeat_token', 'granted_at'] as const;
const IP = /^[0-9A-Fa-f.:]{2,45}$/;
const TOKEN = /^[\x21-\x7e]{1,128}$/;
const UTC_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/;

/** UTF-8 JSON with exactly four fields; the time as ISO 8601 in UTC. RangeError for an invalid time. */
export function encodeLeaseRecord(record: LeaseRecord): Buffer {
  return Buffer.from(
    JSON.stringify({
      assigned_worker_ip: record.assignedWorkerIp,
      lease_ttl_seconds: record.leaseTtlSeconds,
      heartbeat_token: record.heartbeatToken,
      granted_at: new Date(record.grantedAtMs).toISOString(),
    }),
  );
}

/** Decodes an owner key's value. Throws NAMESPACE_DAMAGED for anything that encodeLeaseRecord does not write. */
export function decodeLeaseRecord(value: Buffer): LeaseRecord {
  try {
    const fields = parseExactObject(value, LEASE_KEYS);
    const grantedAtMs = Date.parse(requireText(fields, 'granted_at', UTC_TIME));
    if (Number.isNaN(grantedAtMs)) throw new TypeError('granted_at is not a valid time');
    return {
      assignedWorkerIp: requireText(fields, 'assigned_worker_ip', IP),
      leaseTtlSeconds: requireInteger(fields, 'lease_ttl_seconds', 1),
      heartbeatToken: requireText(fields, 'heartbeat_token', TOKEN),
      grantedAtMs,
    };
  } catch (error) {
    throw new IdallocError('NAMESPACE_DAMAGED', `a lease record can't be read: ${describeError(error)}`, {
      cause: error,
    });
  }
}
