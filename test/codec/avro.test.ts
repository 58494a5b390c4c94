import { afterEach, describe, expect, it, vi } from 'vitest';
import {
  canonicalForm,
  canonicalFormOf,
  decodeFramed,
  decodeStrict,
  encodeFramed,
  fingerprintBytes,
  fingerprintHex,
  loadSchema,
  schemaFingerprint,
  schemaHeader,
} from '../../src/codec/avro.ts';
import { LEDGER_SCHEMAS, SCHEMAS } from '../../src/codec/schemas.ts';

const request = loadSchema(SCHEMAS['id-request'], 16 * 1024);
const reply = loadSchema(SCHEMAS['id-reply'], 64 * 1024);
const EMPTY_REQUEST = { count: 1n, correlation_id: null, reply_topic: null, expires_at: null, encoding: null };

/** A body that claims this many IDs in its ids array, and has none. */
function replyClaiming(count: string): Buffer {
  return Buffer.from(`00${'00'}${'00'}${count}`, 'hex');
}

describe('schemas', () => {
  it('keep the canonical form from which stored fingerprints were computed', () => {
    expect(canonicalForm(request.type)).toBe(
      '{"name":"idalloc.IdRequest","type":"record","fields":[{"name":"count","type":"long"},' +
        '{"name":"correlation_id","type":["null","bytes"]},{"name":"reply_topic","type":["null","string"]},' +
        '{"name":"expires_at","type":["null","long"]},' +
        '{"name":"encoding","type":["null",{"name":"idalloc.Encoding","type":"enum","symbols":["RANGES","IDS"]}]}]}',
    );
  });

  it('document every record and every field', () => {
    const all = Object.entries({ ...SCHEMAS, ...LEDGER_SCHEMAS });
    expect(all.length).toBeGreaterThanOrEqual(3);
    for (const [name, text] of all) {
      const { type } = loadSchema(text, 1024);
      expect(withoutDoc(type.schema({ exportAttrs: true }), name)).toEqual([]);
    }
  });
});

/** Paths of the fields and records in an exported schema that lack a doc. */
function withoutDoc(schema: unknown, path: string): string[] {
  if (Array.isArray(schema)) return schema.flatMap((part, i) => withoutDoc(part, `${path}[${i}]`));
  if (typeof schema !== 'object' || schema === null) return [];
  const { fields, type, items, doc } = schema as {
    fields?: { name: string; doc?: string }[];
    type?: unknown;
    items?: unknown;
    doc?: string;
  };
  const own = fields !== undefined && doc === undefined ? [path] : [];
  const inFields = (fields ?? []).flatMap((field) => [
    ...(field.doc === undefined ? [`${path}.${field.name}`] : []),
    ...withoutDoc((field as { type?: unknown }).type, `${path}.${field.name}`),
  ]);
  return [...own, ...inFields, ...withoutDoc(type, path), ...withoutDoc(items, path)];
}

describe('strict decoding', () => {
  it('accepts what the encoder writes', () => {
    expect(decodeFramed(request, encodeFramed(request, EMPTY_REQUEST))).toEqual(EMPTY_REQUEST);
  });

  it('rejects a body that is too long without reading it', () => {
    expect(() => decodeStrict(request, Buffer.alloc(16 * 1024 + 1))).toThrow(/at most 16384/);
  });

  it.each([
    ['an overlong varint in a long', '820000000000'],
    ['an overlong varint in a union index', '028000000000'],
    ['an overlong length', '0202820041000000'],
    ['invalid UTF-8', '02000202ff0000'],
    ['an encoded surrogate', '02000206eda0800000'],
    ['a byte too many', '020000000000'],
    ['a byte too few', '02000000'],
    ['an unknown union branch', '0204000000'],
    ['an unknown enum symbol', '020000000204'],
    ['a negative length', '020201000000'],
    ['a length beyond the end', '02020a41000000'],
    ['a long of more than 64 bits', 'ffffffffffffffffff7f00000000'],
  ])('rejects %s', (_, hex) => {
    expect(() => decodeStrict(request, Buffer.from(hex, 'hex'))).toThrow();
  });

  it('can read byte fields after it rejected a length of thousands of bits', () => {
    const good = encodeFramed(request, { ...EMPTY_REQUEST, correlation_id: Buffer.from('abc') });
    for (const continuation of [160, 1100, 8000]) {
      const poison = Buffer.concat([Buffer.of(2, 2), Buffer.alloc(continuation, 0x80), Buffer.of(0)]);
      expect(() => decodeStrict(request, poison)).toThrow();
      expect(decodeFramed(request, good)).toMatchObject({ correlation_id: Buffer.from('abc') });
    }
  });

  it('rejects an array that claims more items than there are bytes left, before it reads one', () => {
    for (const count of ['8092f401', 'feffffffffffffffff01', 'ffffffffffffffffff01', `${'80'.repeat(600)}01`]) {
      expect(() => decodeStrict(reply, replyClaiming(count))).toThrow(/^array of length .+ with 0 bytes left$/);
    }
  });

  it('rejects an array in several blocks, which is another encoding of the same items', () => {
    const tail = `02 00 00 02 00 ${'00'.repeat(8)} 00`.replaceAll(' ', '');
    const oneBlock = Buffer.from(`02 61 00 00 04 0204 00 ${tail}`.replaceAll(' ', ''), 'hex');
    const twoBlocks = Buffer.from(`02 61 00 00 02 02 02 04 00 ${tail}`.replaceAll(' ', ''), 'hex');
    expect(decodeStrict(reply, oneBlock)).toMatchObject({ result: { 'idalloc.IdBatch': { ids: [1n, 2n] } } });
    expect(() => decodeStrict(reply, twoBlocks)).toThrow(/canonical/);
  });
});

describe('encoding', () => {
  it('writes messages that are larger than its workspace', () => {
    const value = { ...EMPTY_REQUEST, correlation_id: Buffer.alloc(40_000, 7) };
    const large = loadSchema(SCHEMAS['id-request'], 64 * 1024);
    expect(decodeFramed(large, encodeFramed(large, value))).toEqual(value);
  });

  it('rejects a value that does not match the schema', () => {
    expect(() => encodeFramed(request, { ...EMPTY_REQUEST, count: 0.5 })).toThrow();
    expect(() => encodeFramed(request, { ...EMPTY_REQUEST, encoding: 'CSV' })).toThrow();
  });
});

describe("a layout's fingerprint", () => {
  it('is 16 lowercase hex digits, most significant byte first', () => {
    expect(fingerprintBytes('00112233445566ff')).toEqual(Buffer.of(0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0xff));
    expect(fingerprintHex(fingerprintBytes('00112233445566ff'))).toBe('00112233445566ff');
  });

  it.each(['', '00112233445566f', '00112233445566fff', '00112233445566FF', '00112233445566fg'])('is not %j', (hex) => {
    expect(() => fingerprintBytes(hex)).toThrow(RangeError);
  });
});

afterEach(() => vi.unstubAllGlobals());

describe('the canonical form of a schema text', () => {
  it.for(Object.entries({ ...SCHEMAS, ...LEDGER_SCHEMAS }))('of %s is that of the compiled schema', ([, text]) => {
    const { type, fingerprint, header } = loadSchema(text, 1_000);
    expect(canonicalFormOf(text)).toBe(canonicalForm(type));
    expect(schemaFingerprint(text)).toEqual(fingerprint);
    expect(schemaHeader(text)).toEqual(header);
  });

  it('does not depend on attributes, white space and the way in which names are written', () => {
    const { namespace, name, ...rest } = JSON.parse(SCHEMAS['id-request']);
    const other = { ...rest, 'avro.java.string': 'String', name: `${namespace}.${name}` };
    expect(canonicalFormOf(JSON.stringify(other))).toBe(canonicalFormOf(SCHEMAS['id-request']));
  });

  it('is found without compiling code', () => {
    vi.stubGlobal('Function', () => {
      throw new Error('compiled');
    });
    expect(schemaFingerprint(SCHEMAS['id-request'])).toBeDefined();
  });

  it('is refused for texts above 8 KB, nested ones, and what is not a schema', () => {
    const fields = Array.from({ length: 500 }, (_, i) => ({ name: `f${i}`, type: 'int' }));
    expect(schemaFingerprint(JSON.stringify({ type: 'record', name: 'R', fields }))).toBeUndefined();
    expect(schemaFingerprint(`${'['.repeat(9_000)}`)).toBeUndefined();
    const names = { type: 'record', name: 'R', namespace: 'n'.repeat(2_000), fields: fields.slice(0, 100) };
    const types = names.fields.map((field) => ({ ...field, type: 'X' }));
    expect(schemaFingerprint(JSON.stringify({ ...names, fields: types }))).toBeUndefined();
    for (const text of ['', '7', 'null', '{}', '{"type":7}']) expect(schemaFingerprint(text)).toBeUndefined();
  });
});
