import { FORM_NAMES } from '../codec/form/forms.ts';
import type { Layout } from '../core/layout.ts';
import { KEEP_MS } from './idempotency.ts';
import { MAX_SLOW_IDS } from './parameters.ts';
import { PROBLEM_TYPE } from './problem.ts';

const KEEP_MINUTES = KEEP_MS / 60_000;
const GOLDEN_ID = '55325805773398016';
const GOLDEN_HEX = '00c48e86f8092000';
const DESCRIPTION = `64-bit IDs that rise with time and are never given twice. IDs are strings, since JSON numbers lose digits
above 2^53; a worker whose layout stays below that gives them as numbers as well. IDs that are handed out here are not in the ledger: they come from the same generator and the same reservation
as those over Kafka, so they are as unique, but nothing keeps what was answered. A request that is not answered may have
used IDs up; a gap is normal. While the worker can not trust its clock or its lease the port is closed.`;
const KEY_DESCRIPTION = `Opaque, compared as it is. A second request with the same key gets the IDs of the first,
for ${KEEP_MINUTES} minutes, unless more than about 100,000 keys came since; requests at the same time share them. Keys are the
caller's own. This holds within one worker process only: another worker, or this one after a restart, gives other IDs. The header
Idempotency-Replayed tells of IDs that were given before.`;

const FORM_DESCRIPTION = `Writes each ID in this form besides, as value_form; in a path, the form that the text is in. Each form is
reversible. uuid4 and number need FORM_KEY on the worker, and go to a count
of ${MAX_SLOW_IDS}; a form that can not hold the IDs of the layout is a 400. The IDs under an
Idempotency-Key stay the same whatever the form.`;

/** Which of them a worker asks for, if any, is a matter of its configuration. */
const SECURITY = {
  bearer: { type: 'http', scheme: 'bearer', description: 'a token of API_TOKEN, where the worker has some' },
  mutualTls: {
    type: 'mutualTLS',
    description: 'a certificate that API_TLS_CLIENT_CA signed, where the worker has one',
  },
};

type Json = { readonly [name: string]: unknown };

const ref = (kind: 'schemas' | 'responses' | 'parameters', name: string): Json => ({
  $ref: `#/components/${kind}/${name}`,
});
const json = (schema: Json): Json => ({ 'application/json': { schema } });
const text = (description: string, more: Json = {}): Json => ({ type: 'string', description, ...more });
const whole = (description: string, most?: number): Json => ({
  type: 'integer',
  minimum: 0,
  ...(most === undefined ? {} : { maximum: most }),
  description,
});
const record = (properties: Json): Json => ({ type: 'object', required: Object.keys(properties), properties });
const FORM = ['Form', 'Prefix'].map((name) => ref('parameters', name));
/** The same record, with the ID in the form that was asked for, if any was. */
const withForm = (schema: Json): Json => ({
  ...schema,
  properties: { ...(schema.properties as Json), value_form: text('the same in the form of the parameter form') },
});
const problems = (...names: string[]): Json =>
  Object.fromEntries(names.map((name) => [name.slice(1), ref('responses', name)]));

/** The API as OpenAPI 3.1 describes it, for a worker with this layout and limit. */
export function openApiDocument(layout: Layout, maxCount: number): Json {
  return {
    openapi: '3.1.0',
    info: {
      title: 'idalloc',
      version: '1.0.0',
      description: DESCRIPTION,
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ bearer: [] }, { mutualTls: [] }, {}],
    paths: paths(maxCount),
    components: {
      parameters: parameters(),
      schemas: schemas(layout),
      responses: responses(),
      securitySchemes: SECURITY,
    },
  };
}

function paths(maxCount: number): Json {
  const replayed = { 'Idempotency-Replayed': { schema: { const: 'true' }, description: 'given before, for this key' } };
  const count = {
    name: 'count',
    in: 'query',
    description: 'how many',
    schema: { type: 'integer', minimum: 1, maximum: maxCount, default: 1 },
  };
  return {
    '/api/v1/ids': {
      get: {
        operationId: 'getIds',
        summary: 'New IDs, in rising order',
        parameters: [count, ...FORM, ref('parameters', 'IdempotencyKey')],
        responses: {
          200: { description: 'New IDs', headers: replayed, content: json(ref('schemas', 'Ids')) },
          ...problems('_400', '_401', '_422', '_429', '_503'),
          default: ref('responses', 'other'),
        },
      },
    },
    '/api/v1/id': {
      post: {
        operationId: 'postId',
        summary: 'One new ID',
        description: 'Takes no body, or an empty JSON object.',
        parameters: [...FORM, ref('parameters', 'IdempotencyKey')],
        responses: {
          200: { description: 'A new ID', headers: replayed, content: json(ref('schemas', 'Id')) },
          ...problems('_400', '_401', '_422', '_429', '_503'),
          default: ref('responses', 'other'),
        },
      },
    },
    '/api/v1/ids/{id}': {
      get: {
        operationId: 'decodeId',
        summary: "An ID's parts, whoever made it",
        parameters: [ref('parameters', 'Id'), ...FORM, ref('parameters', 'As')],
        responses: {
          200: { description: 'The parts', content: json(ref('schemas', 'IdView')) },
          ...problems('_400', '_401'),
          default: ref('responses', 'other'),
        },
      },
    },
    '/api/v1/openapi.json': {
      get: {
        operationId: 'getOpenApi',
        summary: 'This document',
        responses: {
          200: { description: 'OpenAPI 3.1', content: json({ type: 'object' }) },
          ...problems('_401'),
          default: ref('responses', 'other'),
        },
      },
    },
  };
}

function parameters(): Json {
  return {
    IdempotencyKey: {
      name: 'Idempotency-Key',
      in: 'header',
      description: KEY_DESCRIPTION,
      schema: { type: 'string', minLength: 1, maxLength: 255 },
    },
    Form: {
      name: 'form',
      in: 'query',
      description: FORM_DESCRIPTION,
      schema: { type: 'string', enum: FORM_NAMES },
    },
    As: {
      name: 'as',
      in: 'query',
      description: 'The form to write the ID in, as value_form; without it, that of the parameter form.',
      schema: { type: 'string', enum: FORM_NAMES },
    },
    Prefix: {
      name: 'prefix',
      in: 'query',
      description: 'What stands before the underscore; with the form prefixed only, and then required.',
      schema: { type: 'string', pattern: '^[a-z][a-z0-9]*(_[a-z0-9]+)*$', maxLength: 32 },
      example: 'ord',
    },
    Id: {
      name: 'id',
      in: 'path',
      required: true,
      description:
        'Decimal, 16 hexadecimal digits, or up to 16 of them after 0x. Sixteen decimal digits without a leading zero are decimal. With the parameter form: a text in that form.',
      schema: { type: 'string' },
      examples: { decimal: { value: GOLDEN_ID }, hexadecimal: { value: GOLDEN_HEX } },
    },
  };
}

function schemas({ maxDatacenter, maxWorker, sequencesPerTick, fitsNumber }: Layout): Json {
  const breakdown = record({
    timestamp_ms: whole('ms since 1970-01-01T00:00:00Z'),
    datacenter_id: whole('datacenter', maxDatacenter),
    worker_id: whole('worker', maxWorker),
    sequence_number: whole('number within the tick', sequencesPerTick - 1),
  });
  const id = text('64-bit integer', { pattern: '^(0|[1-9][0-9]{0,19})$', examples: [GOLDEN_ID] });
  const number = whole('the same as a JSON number, which holds it exactly', Number.MAX_SAFE_INTEGER);
  return {
    Ids: record({
      ids: { type: 'array', minItems: 1, items: ref('schemas', 'IdView') },
      generated_at: text('when they were made', { format: 'date-time' }),
    }),
    Id: withForm(record({ id, ...(fitsNumber ? { id_number: number } : {}) })),
    IdView: withForm(
      record({
        value_string: id,
        ...(fitsNumber ? { value_number: number } : {}),
        value_hex: text('the same, 16 digits', { pattern: '^[0-9a-f]{16}$', examples: [GOLDEN_HEX] }),
        breakdown,
      }),
    ),
    Problem: {
      type: 'object',
      description: 'RFC 9457',
      required: ['type', 'title', 'status', 'detail'],
      properties: {
        type: text('urn:idalloc:problem:CODE, or about:blank where the status tells all'),
        title: text('the type in words'),
        status: { type: 'integer', minimum: 400, maximum: 599 },
        detail: text('what is wrong here, and what to do'),
        code: text("an error code, or why the worker's gate is closed"),
      },
    },
  };
}

function responses(): Json {
  const problem = (description: string, headers: Json = {}): Json => ({
    description,
    headers,
    content: { [PROBLEM_TYPE]: { schema: ref('schemas', 'Problem') } },
  });
  const retryAfter = { 'Retry-After': { required: true, schema: { type: 'integer' }, description: 'seconds' } };
  return {
    _400: problem('INVALID_COUNT or MALFORMED_REQUEST'),
    _401: problem('No token, or an unknown one, where one is asked for', {
      'WWW-Authenticate': { required: true, schema: { type: 'string' }, description: 'Bearer' },
    }),
    _422: problem('CONFLICT: the Idempotency-Key was used for another request'),
    _429: problem('More IDs than the caller may have in a second: API_RATE_LIMIT', retryAfter),
    _503: problem('Not now: OVERLOADED, or the reason why the worker does not serve', retryAfter),
    other: problem('Any other failure: 404, 405 with Allow, 408, 413, 414, 415, 417, 431, 500'),
  };
}
