import avro, { type Type } from 'avsc';
import { FINGERPRINT_BYTES, fingerprint, HEADER_BYTES, isFramed, singleObjectHeader } from './framing.ts';
import { isInt64, readLong, writeLong } from './long.ts';

/** The cursor that avsc passes to a type's _read; `pos` may exceed the length, which avsc checks only at the end. */
interface Tap {
  readonly buf: Buffer;
  pos: number;
  readLong(): number;
}

interface Readable {
  _read(tap: Tap): unknown;
}

/**
 * Bytes whose length is checked before it is used. avsc reads a length of more than 1024 bits as NaN, and from then on
 * every byte field that the process reads is empty.
 */
class BoundedBytes extends avro.types.BytesType {
  /** A view of the message, not a copy. */
  _read(tap: Tap): Buffer {
    const length = readCount(tap, 'bytes');
    const start = tap.pos;
    tap.pos = start + length;
    return tap.buf.subarray(start, tap.pos);
  }
}

/** An array whose item count can't exceed the remaining bytes, since five bytes can claim millions of items. */
class BoundedArray extends avro.types.ArrayType {
  _read(tap: Tap): unknown[] {
    const itemType = this.itemsType as unknown as Readable;
    const items: unknown[] = [];
    for (let left = readCount(tap, 'array'); left > 0; left = readCount(tap, 'array')) {
      for (; left > 0; left--) items.push(itemType._read(tap));
    }
    return items;
  }
}

function readCount(tap: Tap, what: string): number {
  const count = tap.readLong();
  if (!(count >= 0 && count <= tap.buf.length - tap.pos)) {
    throw new RangeError(`${what} of length ${count} with ${tap.buf.length - tap.pos} bytes left`);
  }
  return count;
}

const boundedBytes = new BoundedBytes();

function compare(a: bigint, b: bigint): number {
  if (a === b) return 0;
  return a < b ? -1 : 1;
}

/**
 * In place of the hooks by which avsc converts a long, which get a Buffer for every value, and cost several times as
 * much: `_read` and `_write` below use avsc's own buffer.
 */
function unused(): never {
  throw new Error('avsc converts no long by a hook');
}

const hooked = avro.types.LongType.__with(
  { toBuffer: unused, fromBuffer: unused, toJSON: String, fromJSON: BigInt, isValid: isInt64, compare },
  true,
);

/**
 * Used for every long of every schema: an exact 64-bit integer, never a rounded double. It is read as a BigInt, and
 * written from that or from a safe integer. avsc freezes its types, so this one inherits from one of them.
 */
export const bigintLong: typeof hooked = Object.create(hooked, {
  _read: { value: readLong },
  _write: { value: writeLong },
});

type Hook = NonNullable<NonNullable<Parameters<typeof avro.Type.forSchema>[1]>['typeHook']>;

/** Replaces three of avsc's types; also in `{"type": "long", "logicalType": ...}`. */
const ourTypes: Hook = (schema, options) => {
  const name = typeof schema === 'object' && 'type' in schema ? schema.type : schema;
  if (name === 'long') return bigintLong;
  if (name === 'bytes') return boundedBytes;
  if (name === 'array') return new BoundedArray(schema, options);
  return undefined;
};

export interface MessageSchema {
  readonly type: Type;
  /** CRC-64-AVRO of the canonical form, little endian. */
  readonly fingerprint: Buffer;
  /** The bytes before each body: marker and fingerprint. */
  readonly header: Buffer;
  /** Longer bodies are rejected. */
  readonly maxBodyBytes: number;
}

/**
 * The fingerprint of a schema's text; undefined for text that is not a schema of idalloc in any case. Compiles nothing:
 * avsc generates code for records, which takes seconds for a schema made for that.
 */
export function schemaFingerprint(text: string): Buffer | undefined {
  const form = canonicalFormOf(text);
  return form === undefined ? undefined : fingerprint(form);
}

/** The bytes before each body of one of idalloc's schemas, from its text. Compiles nothing either. */
export function schemaHeader(text: string): Buffer {
  const print = schemaFingerprint(text);
  if (print === undefined) throw new Error('the text is not a schema');
  return singleObjectHeader(print);
}

/** Loads one of idalloc's schemas from its text. */
export function loadSchema(text: string, maxBodyBytes: number): MessageSchema {
  const type = avro.Type.forSchema(JSON.parse(text), { typeHook: ourTypes, omitRecordMethods: true });
  const print = fingerprint(canonicalForm(type));
  return { type, fingerprint: print, header: singleObjectHeader(print), maxBodyBytes };
}

/** Parsing Canonical Form: avsc keeps only the attributes that matter, by full names, in the specification's order. */
export function canonicalForm(type: Type): string {
  return JSON.stringify(type.schema());
}

/** Encoding happens here first, so that a message costs one allocation of its exact size. */
const workspace = Buffer.alloc(HEADER_BYTES + 16 * 1024);

/** Encodes a framed message. Throws Error if the value does not match the schema, which is a bug of the caller. */
export function encodeFramed(schema: MessageSchema, value: unknown): Buffer {
  workspace.set(schema.header);
  const end = schema.type.encode(value, workspace, HEADER_BYTES);
  if (end >= 0) {
    const framed = Buffer.allocUnsafe(end);
    workspace.copy(framed, 0, 0, end);
    return framed;
  }
  const large = Buffer.allocUnsafe(workspace.length - end);
  large.set(schema.header);
  schema.type.encode(value, large, HEADER_BYTES);
  return large;
}

/**
 * Decodes a body that must be exactly what this codec writes. The length is checked first; then the value is encoded
 * again and compared, because avsc accepts overlong varints and replaces invalid UTF-8. Throws Error for a malformed
 * body. Byte fields are views of the bytes. `start`: where the body starts in them.
 */
export function decodeStrict(schema: MessageSchema, bytes: Buffer, start = 0): unknown {
  const length = bytes.length - start;
  if (length > schema.maxBodyBytes) throw new RangeError(`${length} bytes; at most ${schema.maxBodyBytes} are allowed`);
  const { value, offset } = schema.type.decode(bytes, start);
  if (offset !== bytes.length) throw new Error(offset < 0 ? 'truncated buffer' : 'trailing data');
  const again = length <= workspace.length ? workspace : Buffer.allocUnsafe(length);
  const end = schema.type.encode(value, again, 0);
  if (end !== length || bytes.compare(again, 0, end, start) !== 0) {
    throw new Error('not in the canonical encoding (overlong varint, invalid UTF-8 or split array)');
  }
  return value;
}

/** Decodes a framed message; undefined if it has another schema or no frame. Throws as decodeStrict does. */
export function decodeFramed(schema: MessageSchema, bytes: Buffer): unknown {
  return isFramed(schema.header, bytes) ? decodeStrict(schema, bytes, HEADER_BYTES) : undefined;
}

/** Eight bytes as 16 lowercase hex digits, as a layout's fingerprint is written in text. */
export function fingerprintHex(bytes: Buffer): string {
  return bytes.toString('hex');
}

/** The reverse of fingerprintHex. RangeError for anything but 16 lowercase hex digits. */
export function fingerprintBytes(hex: string): Buffer {
  const bytes = Buffer.from(hex, 'hex');
  if (hex.length !== 2 * FINGERPRINT_BYTES || bytes.length !== FINGERPRINT_BYTES || hex !== hex.toLowerCase()) {
    throw new RangeError(`fingerprint ${JSON.stringify(hex)} is not 16 lowercase hex digits`);
  }
  return bytes;
}

/** Longer schema texts are not read: they come from a registry to which others may write. */
const MAX_SCHEMA_CHARS = 8 * 1024;

const PRIMITIVES = new Set(['null', 'boolean', 'int', 'long', 'float', 'double', 'bytes', 'string']);

type SchemaAttributes = Readonly<Record<string, unknown>>;

/**
 * The Parsing Canonical Form of a schema's text, without compiling the schema. Undefined for text that is not JSON, is
 * clearly not a schema, or is above 8 KB in either form. It does not validate: compare it with the form of a valid
 * schema.
 */
export function canonicalFormOf(text: string): string | undefined {
  if (text.length > MAX_SCHEMA_CHARS) return undefined;
  try {
    const form = canonical(JSON.parse(text), '');
    return form.length > MAX_SCHEMA_CHARS ? undefined : form;
  } catch {
    return undefined; // also for one that is nested too deeply
  }
}

function canonical(schema: unknown, space: string): string {
  if (typeof schema === 'string') return JSON.stringify(PRIMITIVES.has(schema) ? schema : fullName(schema, space));
  if (Array.isArray(schema)) return `[${schema.map((branch) => canonical(branch, space)).join(',')}]`;
  if (typeof schema !== 'object' || schema === null) throw new TypeError('not a schema');
  const attributes = schema as SchemaAttributes;
  const { type } = attributes;
  if (type === 'array') return `{"type":"array","items":${canonical(attributes.items, space)}}`;
  if (type === 'map') return `{"type":"map","values":${canonical(attributes.values, space)}}`;
  if (type === 'record' || type === 'enum' || type === 'fixed') return named(type, attributes, space);
  return canonical(type, space);
}

function named(type: 'record' | 'enum' | 'fixed', attributes: SchemaAttributes, outer: string): string {
  const own = attributes.namespace;
  const name = fullName(String(attributes.name), typeof own === 'string' ? own : outer);
  const head = `{"name":${JSON.stringify(name)},"type":"${type}"`;
  if (type === 'enum') return `${head},"symbols":${JSON.stringify(attributes.symbols)}}`;
  if (type === 'fixed') return `${head},"size":${Number(attributes.size)}}`;
  const space = name.slice(0, Math.max(0, name.lastIndexOf('.')));
  const fields = (attributes.fields as readonly SchemaAttributes[]).map(
    (field) => `{"name":${JSON.stringify(field.name)},"type":${canonical(field.type, space)}}`,
  );
  return `${head},"fields":[${fields.join(',')}]}`;
}

function fullName(name: string, space: string): string {
  return name.includes('.') || space === '' ? name : `${space}.${name}`;
}
