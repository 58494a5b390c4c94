import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import avro from 'avsc';
import { describe, expect, it } from 'vitest';
import { canonicalForm, loadSchema } from '../../src/codec/avro.ts';
import {
  decodeIdReply,
  encodeIdReply,
  ID_REPLY_FINGERPRINT,
  WIDE_REPLY_FINGERPRINT,
} from '../../src/codec/id-reply.ts';
import { decodeIdRequest, encodeIdRequest } from '../../src/codec/id-request.ts';
import { decodeLedgerEntry, encodeLedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeLedgerKey, encodeNumbersKey, encodeStatementKey } from '../../src/codec/ledger-key.ts';
import { LEDGER_SCHEMAS, SCHEMAS } from '../../src/codec/schemas.ts';
import { statementHeaders } from '../../src/codec/sequence-entry.ts';
import { BATCH, CORRELATION_ID, plainAvro } from './samples.ts';

/*
 * schemas/golden has one file of bytes for each sample, and index.json with what they decode to, as test data for other
 * implementations. Changed bytes break users who stored or sent the old ones. After an intended change:
 * UPDATE_GOLDEN=1 vitest run --project unit test/codec/golden.test.ts
 */
const FOLDER = new URL('../../schemas/golden/', import.meta.url);
const UPDATE = process.env.UPDATE_GOLDEN === '1';

/** The texts of forms, which test/codec/form/golden.test.ts checks. */
const FORMS = 'forms.json';

type SchemaName = 'id-request' | 'id-request-2' | 'id-reply' | 'id-reply-2' | 'ledger-entry' | 'ledger-sequence';

interface Sample {
  readonly name: string;
  readonly schema: SchemaName;
  readonly bytes: Buffer;
  readonly key?: Buffer;
  readonly headers?: Readonly<Record<string, Buffer>>;
}

const REPLY_TOPIC = 'id.replies.orders';
const EXTREMES = {
  ...BATCH,
  ranges: [
    { first: 0n, count: 1 },
    { first: 2n ** 53n + 1n, count: 2 },
    { first: 2n ** 63n - 65537n, count: 2 },
  ],
  step: 65536n,
  fence: 2n ** 63n - 1n,
};
const ENTRY = {
  kind: 'batch' as const,
  requestHash: requestHash(5, REPLY_TOPIC),
  count: 5,
  replyTopic: REPLY_TOPIC,
  requestOffset: 1_000_000,
  batch: BATCH,
  framing: 'SINGLE_OBJECT' as const,
  schemaFingerprint: ID_REPLY_FINGERPRINT,
  end: 2_000_000,
  through: 999_999,
};
const FULL = { count: 5, correlationId: CORRELATION_ID, replyTopic: REPLY_TOPIC, expiresAtMs: 1780416360000 };
const SEQUENCE = 'invoices/2027';
const NUMBERS = { first: 1_000, count: 5, step: 1, format: 'INV-{number:6}' };
const NUMBERS_ENTRY = {
  kind: 'numbers' as const,
  ...NUMBERS,
  requestHash: requestHash(5, REPLY_TOPIC),
  replyTopic: REPLY_TOPIC,
  requestOffset: 1_000_000,
  framing: 'SINGLE_OBJECT' as const,
  schemaFingerprint: WIDE_REPLY_FINGERPRINT,
  end: 2_000_000,
  through: 999_999,
  at: 2_000_003,
};
const STATEMENT = {
  kind: 'statement' as const,
  end: 0,
  through: -1,
  at: 2_000_010,
  next: 1_005,
  step: 1,
  max: 2 ** 53 - 2,
  format: 'INV-{number:6}',
  closed: false,
  edition: 0,
  first: undefined,
  isLoss: false,
};
const LOSS = {
  ...STATEMENT,
  end: 2_000_020,
  through: 1_500_000,
  at: 2_000_020,
  edition: 3,
  first: 1_005,
  isLoss: true,
};
const REQUEST_ID = Buffer.from('order-42');
const ERROR = { code: 'CONFLICT', message: 'the count differs (was 5, is 6) — use a new correlation ID' };
const KEY = encodeLedgerKey(CORRELATION_ID);

const SAMPLES: readonly Sample[] = [
  { name: 'request-minimal', schema: 'id-request', bytes: encodeIdRequest({ count: 1 }) },
  { name: 'request-full', schema: 'id-request', bytes: encodeIdRequest({ ...FULL, encoding: 'RANGES' }) },
  { name: 'request-ids', schema: 'id-request', bytes: encodeIdRequest({ ...FULL, encoding: 'IDS' }) },
  {
    name: 'request-binary-correlation-id',
    schema: 'id-request',
    bytes: encodeIdRequest({ count: 100_000, correlationId: Buffer.of(0, 0xff, 0x80, 0xc3) }),
  },
  {
    name: 'request-with-request-id',
    schema: 'id-request-2',
    bytes: encodeIdRequest({ ...FULL, requestId: REQUEST_ID }),
  },
  {
    name: 'request-for-numbers',
    schema: 'id-request-2',
    bytes: encodeIdRequest({ ...FULL, sequence: 'invoices/2027' }),
  },
  {
    name: 'reply-ranges',
    schema: 'id-reply',
    bytes: encodeIdReply({ correlationId: CORRELATION_ID, batch: BATCH }, 'RANGES'),
  },
  {
    name: 'reply-ids',
    schema: 'id-reply',
    bytes: encodeIdReply({ correlationId: CORRELATION_ID, batch: BATCH }, 'IDS'),
  },
  {
    name: 'reply-extremes',
    schema: 'id-reply',
    bytes: encodeIdReply({ correlationId: CORRELATION_ID, batch: EXTREMES }, 'RANGES'),
  },
  {
    name: 'reply-error',
    schema: 'id-reply',
    bytes: encodeIdReply({ correlationId: CORRELATION_ID, error: ERROR }, 'RANGES'),
  },
  { name: 'ledger-batch', schema: 'ledger-entry', bytes: encodeLedgerEntry(ENTRY), key: KEY },
  { name: 'ledger-marker', schema: 'ledger-entry', bytes: encodeLedgerEntry({ kind: 'marker', end: 0, through: -1 }) },
  {
    name: 'reply-numbers',
    schema: 'id-reply-2',
    bytes: encodeIdReply({ correlationId: CORRELATION_ID, numbers: { sequence: SEQUENCE, ...NUMBERS } }, 'RANGES'),
  },
  {
    name: 'ledger-numbers',
    schema: 'ledger-sequence',
    bytes: encodeLedgerEntry(NUMBERS_ENTRY),
    key: encodeNumbersKey(SEQUENCE, CORRELATION_ID),
  },
  {
    name: 'ledger-numbers-renewed',
    schema: 'ledger-sequence',
    bytes: encodeLedgerEntry({ ...NUMBERS_ENTRY, at: -1, requestOffset: 1_500_000 }),
    key: encodeNumbersKey(SEQUENCE, CORRELATION_ID),
  },
  {
    name: 'ledger-statement',
    schema: 'ledger-sequence',
    bytes: encodeLedgerEntry(STATEMENT),
    key: encodeStatementKey(SEQUENCE),
  },
  {
    name: 'ledger-statement-of-loss',
    schema: 'ledger-sequence',
    bytes: encodeLedgerEntry(LOSS),
    key: encodeStatementKey(SEQUENCE),
    headers: statementHeaders(LOSS),
  },
];

const TEXTS: Readonly<Record<SchemaName, string>> = { ...SCHEMAS, ...LEDGER_SCHEMAS };
const ORDER: readonly SchemaName[] = [
  'id-request',
  'id-request-2',
  'id-reply',
  'id-reply-2',
  'ledger-entry',
  'ledger-sequence',
];

/** 64-bit integers as text, bytes as hex, unions of two records by the branch's full name. */
function toJson(value: unknown): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (Buffer.isBuffer(value)) return value.toString('hex');
  if (Array.isArray(value)) return value.map(toJson);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([field, part]) => [field, toJson(part)]));
}

/** Headers are text. */
function recordHeaders(headers: Readonly<Record<string, Buffer>>): object {
  const texts = Object.entries(headers).map(([name, value]) => [name, value.toString()]);
  return texts.length === 0 ? {} : { record_headers: Object.fromEntries(texts) };
}

/** index.json; samples are decoded by unmodified avsc, not by our own decoder. */
function index(): unknown {
  return {
    about:
      'Each file is a record value: C3 01, the schema fingerprint (CRC-64-AVRO, little endian), the Avro body. ' +
      'In "decoded" 64-bit integers are decimal strings and bytes are hex.',
    schemas: Object.fromEntries(
      ORDER.map((name) => {
        const schema = loadSchema(TEXTS[name], 1024);
        return [
          `${name}.avsc`,
          { fingerprint: schema.fingerprint.toString('hex'), canonical_form: canonicalForm(schema.type) },
        ];
      }),
    ),
    samples: SAMPLES.map(({ name, schema, bytes, key, headers = {} }) => ({
      name,
      file: `${name}.bin`,
      schema: `${schema}.avsc`,
      ...(key === undefined ? {} : { record_key: key.toString('hex') }),
      ...recordHeaders(headers),
      decoded: toJson(plainAvro(schema).fromBuffer(bytes.subarray(10))),
    })),
  };
}

interface Version {
  readonly schemas: Readonly<Record<string, { readonly canonical_form: string }>>;
  readonly samples: readonly {
    readonly name: string;
    readonly schema: string;
    readonly file: string;
    readonly decoded: object;
  }[];
  readonly read: (file: string) => Buffer;
}

/** Before bytes are changed on purpose, the folder's files are copied to a new folder in schemas/golden-earlier. */
function versions(): readonly Version[] {
  const earlier = new URL('../golden-earlier/', FOLDER);
  const folders = existsSync(earlier) ? readdirSync(earlier).map((name) => new URL(`${name}/`, earlier)) : [];
  return [FOLDER, ...folders].map((folder) => {
    const read = (file: string) => readFileSync(new URL(file, folder));
    return { ...(JSON.parse(read('index.json').toString()) as Pick<Version, 'schemas' | 'samples'>), read };
  });
}

if (UPDATE) {
  mkdirSync(FOLDER, { recursive: true });
  for (const { name, bytes } of SAMPLES) writeFileSync(new URL(`${name}.bin`, FOLDER), bytes);
  writeFileSync(new URL('index.json', FOLDER), `${JSON.stringify(index(), null, 2)}\n`);
}

describe('golden bytes', () => {
  it.each(SAMPLES.map((sample) => [sample.name, sample] as const))(
    'of %s are what is written today',
    (name, { bytes }) => {
      expect(bytes.toString('hex')).toBe(readFileSync(new URL(`${name}.bin`, FOLDER)).toString('hex'));
    },
  );

  it('are all listed with what they decode to', () => {
    expect(index()).toEqual(JSON.parse(readFileSync(new URL('index.json', FOLDER), 'utf8')));
    const files = [...SAMPLES.map(({ name }) => `${name}.bin`), 'index.json'];
    expect(readdirSync(FOLDER).sort()).toEqual([...files, FORMS].sort());
  });

  it('of this version and earlier ones are read by the current schemas, with every field unchanged', () => {
    for (const { schemas, samples, read } of versions()) {
      for (const { name, schema, file, decoded } of samples) {
        const today = plainAvro(schema.replace('.avsc', '') as SchemaName);
        const written = avro.Type.forSchema(JSON.parse(schemas[schema]?.canonical_form ?? ''));
        const value = today.fromBuffer(read(file).subarray(10), today.createResolver(written));
        expect(toJson(value), name).toMatchObject(decoded);
      }
    }
  });

  it('of requests in the first schema are read by the second, with every field unchanged', () => {
    const [written, today] = [plainAvro('id-request'), plainAvro('id-request-2')];
    for (const { name, bytes } of SAMPLES.filter(({ schema }) => schema === 'id-request')) {
      const fields = written.fromBuffer(bytes.subarray(10));
      const value = today.fromBuffer(bytes.subarray(10), today.createResolver(written));
      expect(value, name).toEqual({ ...fields, request_id: null, sequence: null });
    }
  });

  it('of replies in the first schema are, behind their frame, those of the second', () => {
    const [written, today] = [plainAvro('id-reply'), plainAvro('id-reply-2')];
    for (const { bytes } of SAMPLES.filter(({ schema }) => schema === 'id-reply')) {
      const body = bytes.subarray(10);
      expect(today.fromBuffer(body)).toEqual(written.fromBuffer(body));
    }
  });

  it('of earlier versions are read by the current code', () => {
    const read = (name: string) => readFileSync(new URL(`${name}.bin`, FOLDER));
    expect(decodeIdRequest(read('request-minimal'))).toMatchObject({ count: 1 });
    expect(decodeIdRequest(read('request-ids'))).toEqual({ ...FULL, encoding: 'IDS' });
    expect(decodeIdRequest(read('request-with-request-id'))).toMatchObject({ ...FULL, requestId: REQUEST_ID });
    expect(decodeIdRequest(read('request-for-numbers'))).toMatchObject({ ...FULL, sequence: 'invoices/2027' });
    expect(decodeIdReply(read('reply-ranges'))).toEqual({
      correlationId: CORRELATION_ID,
      batch: BATCH,
      encoding: 'RANGES',
    });
    expect(decodeIdReply(read('reply-ids'))).toEqual({ correlationId: CORRELATION_ID, batch: BATCH, encoding: 'IDS' });
    expect(decodeIdReply(read('reply-extremes'))).toMatchObject({ batch: EXTREMES });
    expect(decodeIdReply(read('reply-error'))).toMatchObject({ error: ERROR });
    expect(decodeLedgerEntry(read('ledger-batch'))).toEqual(ENTRY);
    expect(decodeIdReply(read('reply-numbers'))).toMatchObject({ numbers: { sequence: SEQUENCE, ...NUMBERS } });
    expect(decodeLedgerEntry(read('ledger-numbers'))).toEqual(NUMBERS_ENTRY);
    expect(decodeLedgerEntry(read('ledger-numbers-renewed'))).toMatchObject({ ...NUMBERS, at: -1 });
    expect(decodeLedgerEntry(read('ledger-statement'))).toEqual(STATEMENT);
    const header = { 'idalloc-statement': '{"edition":3,"first":1005,"loss":true}' };
    expect(decodeLedgerEntry(read('ledger-statement-of-loss'), header)).toEqual(LOSS);
    expect(decodeLedgerEntry(read('ledger-marker'))).toEqual({ kind: 'marker', end: 0, through: -1 });
  });
});
