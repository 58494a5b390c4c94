import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import specifications from '@asyncapi/specs';
import { Ajv, type SchemaObject } from 'ajv';
import avro from 'avsc';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { canonicalForm } from '../../src/codec/avro.ts';
import { DEAD_LETTER_HEADERS, RANGE_HEADERS, RECORD_LEFT_OUT } from '../../src/codec/dead-letter.ts';
import { crc64Avro, HEADER_BYTES } from '../../src/codec/framing.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';
import { ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../src/codec/id-request.ts';
import { nestReplyTopic } from '../../src/codec/reply-policy.ts';
import { ANSWERED_BEFORE, DEFAULT_HEADER_NAMES, FIRST_SENT, HOPS, ORIGIN } from '../../src/codec/request-headers.ts';
import { KAFKA_VARIABLES } from '../../src/config/variables.ts';
import { BATCH, CORRELATION_ID } from '../codec/samples.ts';
import { ROOT, readPage } from '../support/docs.ts';

interface Message {
  readonly correlationId?: { readonly location: string };
  readonly headers: { readonly properties: Readonly<Record<string, { readonly pattern?: string }>> };
  readonly payload?: { schema: { readonly $ref: string } };
}

interface AsyncApi {
  readonly info: { readonly version: string };
  readonly channels: Readonly<Record<'requests' | 'replies' | 'deadLetters', { readonly address: string }>>;
  readonly operations: { readonly receiveRequest: { readonly reply: { readonly address: { location: string } } } };
  readonly components: { readonly messages: Readonly<Record<'IdRequest' | 'IdReply' | 'DeadLetter', Message>> };
}

const PAGE = readPage('docs/reference/wire-format.md');
const REFERENCE = join(ROOT, 'docs/reference');
const TEXT = readFileSync(join(REFERENCE, 'asyncapi.yaml'), 'utf8');

/** The bytes that the code writes before each body. */
const HEADERS = {
  IdRequest: ID_REQUEST_HEADER,
  IdReply: encodeIdReply({ correlationId: CORRELATION_ID, batch: BATCH }, 'RANGES').subarray(0, HEADER_BYTES),
};

function schemaOf(path: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(REFERENCE, path), 'utf8'));
}

describe('the page of the wire format', () => {
  test.for(Object.entries(HEADERS))('has the first bytes and the fingerprint of %s', ([name, header]) => {
    const bytes = [...header].map((byte) => byte.toString(16).padStart(2, '0').toUpperCase()).join(' ');
    const number = header.readBigUInt64LE(2).toString(16).padStart(16, '0').toUpperCase();
    const row = PAGE.split('\n').find((line) => line.startsWith(`| [\`${name}\`]`));
    expect(row).toContain(`| \`${bytes}\` | \`0x${number}\` |`);
  });

  test('has the first bytes and the fingerprint of the second schema of requests', () => {
    const bytes = [...WIDE_REQUEST_HEADER].map((byte) => byte.toString(16).padStart(2, '0').toUpperCase()).join(' ');
    expect(PAGE).toContain(`| [\`IdRequest\`, second schema](../../schemas/id-request-2.avsc) | \`${bytes}\` |`);
  });

  test('has every header that a request and a reply can have', () => {
    const headers = [...Object.values(DEFAULT_HEADER_NAMES), FIRST_SENT, ORIGIN, HOPS, ANSWERED_BEFORE];
    for (const header of headers) expect(PAGE).toContain(`\`${header}\``);
  });
});

describe('the AsyncAPI document', () => {
  const document: AsyncApi = parse(TEXT);
  const { channels, components, operations } = document;
  const { IdRequest, IdReply, DeadLetter } = components.messages;

  test('has the version of package.json', () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    expect(document.info.version).toBe(version);
  });

  test('is valid AsyncAPI 3.0', () => {
    const resolved = parse(TEXT);
    for (const message of Object.values<Message>(resolved.components.messages)) {
      if (message.payload) Object.assign(message.payload, { schema: schemaOf(message.payload.schema.$ref) });
    }
    const specification = specifications.schemasWithoutId['3.0.0'] as SchemaObject;
    const ajv = new Ajv({ strict: false, validateFormats: false, validateSchema: false });
    ajv.validate(specification, resolved);
    expect(ajv.errors).toBeNull();
    expect(ajv.validate(specification, { ...resolved, operations: { broken: { action: 'sing' } } })).toBe(false);
  });

  test.for(['IdRequest', 'IdReply'] as const)('refers to the schema of %s that the code reads and writes', (name) => {
    const schema = schemaOf(components.messages[name].payload?.schema.$ref ?? '');
    expect(`${schema.namespace}.${schema.name}`).toBe(`idalloc.${name}`);
    const canonical = canonicalForm(avro.Type.forSchema(schema as unknown as avro.Schema));
    expect(HEADERS[name].readBigUInt64LE(2)).toBe(crc64Avro(Buffer.from(canonical)));
  });

  test('has the version of the package', () => {
    expect(document.info.version).toBe(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version);
  });

  test('has the topics of the configuration', () => {
    expect(channels.requests.address).toBe(KAFKA_VARIABLES.REQUEST_TOPIC.fallback);
    expect(channels.replies.address).toBe(`${KAFKA_VARIABLES.REPLY_TOPIC_PREFIX.fallback}{service}`);
    expect(channels.deadLetters.address).toBe(KAFKA_VARIABLES.DEAD_LETTER_TOPIC.fallback);
    const pattern = new RegExp(IdRequest.headers.properties[DEFAULT_HEADER_NAMES.replyTopic]?.pattern ?? '(?!)');
    expect('id.replies.orders').toMatch(pattern);
    expect(nestReplyTopic(channels.requests.address)).toMatch(pattern);
    expect('orders').not.toMatch(pattern);
  });

  test('has the headers of the code', () => {
    const { correlationId, replyTopic, replyPartition, count, requestId, sequence } = DEFAULT_HEADER_NAMES;
    const { replayed, layout, retryAfterMs } = DEFAULT_HEADER_NAMES;
    const trace = ['traceparent', 'tracestate'];
    expect(Object.keys(IdRequest.headers.properties).sort()).toEqual(
      [correlationId, replyTopic, replyPartition, count, requestId, sequence, FIRST_SENT, ...trace].sort(),
    );
    expect(Object.keys(IdReply.headers.properties).sort()).toEqual(
      [correlationId, requestId, replayed, layout, retryAfterMs, ...trace].sort(),
    );
    expect(Object.keys(DeadLetter.headers.properties).sort()).toEqual(
      [...Object.values(DEAD_LETTER_HEADERS), ...Object.values(RANGE_HEADERS), RECORD_LEFT_OUT].sort(),
    );
    expect(IdRequest.correlationId?.location).toBe(`$message.header#/${correlationId}`);
    expect(operations.receiveRequest.reply.address.location).toBe(`$message.header#/${replyTopic}`);
  });
});
