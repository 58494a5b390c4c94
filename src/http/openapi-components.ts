import { FORM_NAMES } from '../codec/form/form.ts';
import type { Layout } from '../core/layout.ts';
import { MAX_NUMBERS } from './id-routes.ts';
import { problemExample } from './openapi-examples.ts';
import { MAX_KEYED_IDS } from './parameters.ts';
import { PROBLEM_TYPE } from './problem.ts';

export interface Json {
  readonly [name: string]: unknown;
}

export interface Parameter extends Json {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description: string;
  readonly schema: Json;
}

export interface Response {
  readonly description: string;
  readonly content?: Readonly<Record<string, Media>>;
}

/** A body. `examples` replaces `example` where it may be one of several. */
interface Media extends Json {
  readonly schema?: Json | Reference;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}

export interface Reference {
  readonly $ref: string;
}

export interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly (Parameter | Reference)[];
  /** A call of it for a shell, under the name by which tools look for it. */
  readonly 'x-codeSamples'?: readonly { readonly lang: string; readonly source: string }[];
  readonly responses: Readonly<Record<string, Response | Reference>>;
}

interface Path {
  /** The parameters that every operation of the path has. */
  readonly parameters: readonly Reference[];
  readonly [method: string]: Operation | readonly Reference[];
}

/** The parts of the document that docs-page.ts shows. */
export interface OpenApiDocument {
  readonly info: Json & { readonly title: string; readonly description: string };
  readonly paths: Readonly<Record<string, Path>>;
  readonly components: {
    readonly parameters: Readonly<Record<string, Parameter>>;
    readonly responses: Readonly<Record<string, Response>>;
    readonly schemas: Readonly<Record<string, Json>>;
    readonly [kind: string]: unknown;
  };
  readonly [name: string]: unknown;
}

export const ref = (kind: 'schemas' | 'responses' | 'parameters' | 'headers', name: string): Reference => ({
  $ref: `#/components/${kind}/${name}`,
});
export const json = (schema: Json | Reference, more: Json = {}): Record<'application/json', Media> => ({
  'application/json': { schema, ...more },
});
const text = (description: string, more: Json = {}): Json => ({ type: 'string', description, ...more });
const whole = (description: string, most?: number): Json => ({
  type: 'integer',
  minimum: 0,
  ...(most === undefined ? {} : { maximum: most }),
  description,
});
const record = (properties: Json): Json => ({ type: 'object', required: Object.keys(properties), properties });

/** What every request may have, and every response has. */
export const CORRELATION = {
  parameters: [ref('parameters', 'RequestId'), ref('parameters', 'TraceParent')],
  headers: { 'X-Request-Id': ref('headers', 'RequestId'), Traceparent: ref('headers', 'TraceParent') },
};

const GOLDEN_ID = '55325805773398016';
const GOLDEN_HEX = '00c48e86f8092000';
const KEY_DESCRIPTION = `Opaque, compared byte by byte. With it the workers are asked over Kafka, so the ledger decides: the same key gets the same
IDs on every worker, and after restarts, for as long as the ledger keeps them. Keys are per caller; a key and the caller's name have at most
250 bytes together. Another count under the key is a 422. 501 without API_REPLY_TOPIC. The header Idempotency-Replayed marks IDs that an earlier request got.`;

const FORM_DESCRIPTION = `Also returns each ID in this form, as value_form; with an ID in the path, the form of that ID. All forms are reversible.
uuid4 and number need FORM_KEY on the worker and allow a count of up to ${MAX_KEYED_IDS}. A form that cannot hold the layout's IDs is
a 400. An Idempotency-Key returns the same IDs in any form.`;

/** The worker's configuration decides which of them it requires, if any. */
const SECURITY = {
  bearer: {
    type: 'http',
    scheme: 'bearer',
    description:
      'a token of API_TOKEN, if the worker has any. The right keyed-decode after a token allows to decode keyed forms; sequences:NAME or sequences:PREFIX*, to take numbers',
  },
  mutualTls: {
    type: 'mutualTLS',
    description: 'a certificate signed by API_TLS_CLIENT_CA, if the worker has one',
  },
};

/** What the operations of the document refer to. */
export function components(layout: Layout): OpenApiDocument['components'] {
  return {
    parameters: parameters(),
    schemas: schemas(layout),
    responses: responses(),
    headers: correlationHeaders(),
    securitySchemes: SECURITY,
  };
}

/** The schema with the optional ID in the requested form. */
const withForm = (schema: Json): Json => ({
  ...schema,
  properties: { ...(schema.properties as Json), value_form: text('the ID in the requested form') },
});

function parameters(): OpenApiDocument['components']['parameters'] {
  return {
    RequestId: {
      name: 'X-Request-Id',
      in: 'header',
      description: 'An ID of your own for the request. Another text than this is replaced by a new ID.',
      schema: REQUEST_ID_SCHEMA,
    },
    TraceParent: {
      name: 'traceparent',
      in: 'header',
      description: 'The trace of the request, as in W3C Trace Context. Without a valid one a new trace begins.',
      schema: { type: 'string' },
    },
    Encoding: {
      name: 'encoding',
      in: 'query',
      description:
        'ids: each ID with its fields. ranges: first and count of each run of IDs, which is short for any count.',
      schema: { type: 'string', enum: ['ids', 'ranges'], default: 'ids' },
    },
    IdempotencyKey: {
      name: 'Idempotency-Key',
      in: 'header',
      description: KEY_DESCRIPTION,
      schema: { type: 'string', minLength: 1, maxLength: 255 },
    },
    NumbersKey: {
      name: 'Idempotency-Key',
      in: 'header',
      required: true,
      description:
        'The ID of the document, such as an order. It is the correlation ID in the ledger, and one for all callers.',
      schema: { type: 'string', minLength: 1, maxLength: 255 },
      example: 'order-4711',
    },
    SequenceName: {
      name: 'name',
      in: 'path',
      required: true,
      description: 'The name, with its slashes as they are, or as %2F.',
      schema: { type: 'string', pattern: '^[A-Za-z0-9._/-]{1,64}$' },
      example: 'invoices/2027',
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
      description: 'The form of value_form in the response; default: the parameter form.',
      schema: { type: 'string', enum: FORM_NAMES },
    },
    Prefix: {
      name: 'prefix',
      in: 'query',
      description: 'The text before the underscore; required for the form prefixed, and not allowed for others.',
      schema: { type: 'string', pattern: '^[a-z][a-z0-9]*(_[a-z0-9]+)*$', maxLength: 32 },
      example: 'ord',
    },
    Id: {
      name: 'id',
      in: 'path',
      required: true,
      description:
        'Decimal, 16 hexadecimal digits, or 0x and up to 16 of them. Sixteen decimal digits without a leading zero are decimal. With the parameter form: an ID in that form.',
      schema: { type: 'string' },
      examples: { decimal: { value: GOLDEN_ID }, hexadecimal: { value: GOLDEN_HEX } },
    },
  };
}

function schemas({ maxDatacenter, maxWorker, sequencesPerTick, fitsNumber }: Layout): Record<string, Json> {
  const breakdown = record({
    timestamp_ms: whole('ms since 1970-01-01T00:00:00Z'),
    datacenter_id: whole('datacenter', maxDatacenter),
    worker_id: whole('worker', maxWorker),
    sequence_number: whole('number within the tick', sequencesPerTick - 1),
  });
  const id = text('64-bit integer below 2^63', { pattern: '^(0|[1-9][0-9]{0,18})$', examples: [GOLDEN_ID] });
  const number = whole('the ID as a JSON number, exactly', Number.MAX_SAFE_INTEGER);
  return {
    Ids: record({
      ids: { type: 'array', minItems: 1, items: ref('schemas', 'IdView') },
      generated_at: text('when the IDs were allocated', { format: 'date-time' }),
    }),
    Ranges: record({
      ranges: {
        type: 'array',
        minItems: 1,
        items: record({
          first: id,
          ...(fitsNumber ? { first_number: number } : {}),
          count: { type: 'integer', minimum: 1, description: 'number of IDs' },
        }),
      },
      step: text('the k-th ID of a range, from 0, is first + k × step', { pattern: '^[1-9][0-9]*$', examples: ['1'] }),
      generated_at: text('when the IDs were allocated', { format: 'date-time' }),
    }),
    Id: withForm(record({ id, ...(fitsNumber ? { id_number: number } : {}) })),
    IdView: withForm(
      record({
        value_string: id,
        ...(fitsNumber ? { value_number: number } : {}),
        value_hex: text('the ID as 16 hexadecimal digits', { pattern: '^[0-9a-f]{16}$', examples: [GOLDEN_HEX] }),
        breakdown,
      }),
    ),
    Numbers: record({
      sequence: text('its name'),
      numbers: { type: 'array', minItems: 1, items: text('a number in the format of the sequence') },
      first: whole('the first number', Number.MAX_SAFE_INTEGER),
      count: { type: 'integer', minimum: 1, maximum: MAX_NUMBERS, description: 'how many numbers' },
      step: whole('the k-th number, from 0, is first + k × step', Number.MAX_SAFE_INTEGER),
    }),
    Problem: {
      type: 'object',
      description: 'RFC 9457',
      required: ['type', 'title', 'status', 'detail'],
      properties: {
        type: text('urn:idalloc:problem:CODE, or about:blank when the status is enough'),
        title: text('short description of the type'),
        status: { type: 'integer', minimum: 400, maximum: 599 },
        detail: text('the cause, and how to fix it'),
        code: text("an error code, or the reason why the worker's gate is closed"),
      },
    },
  };
}

const REQUEST_ID_SCHEMA = { type: 'string', pattern: '^[A-Za-z0-9._~:@=+/-]{1,128}$' };

function correlationHeaders(): Json {
  return {
    RequestId: {
      required: true,
      description: 'that of the request, else a new one; name it when you report a problem',
      schema: REQUEST_ID_SCHEMA,
    },
    TraceParent: {
      required: true,
      description: 'the trace of the request, else a new one',
      schema: { type: 'string', pattern: '^00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]$' },
    },
  };
}

function responses(): OpenApiDocument['components']['responses'] {
  const problem = (status: number, description: string, headers: Json = {}): Response & Json => ({
    description,
    headers: { ...headers, ...CORRELATION.headers },
    content: {
      [PROBLEM_TYPE]: {
        schema: ref('schemas', 'Problem'),
        ...(status === 0 ? {} : { example: problemExample(status) }),
      },
    },
  });
  const retryAfter = { 'Retry-After': { required: true, schema: { type: 'integer' }, description: 'seconds' } };
  return {
    _400: problem(400, 'INVALID_COUNT or MALFORMED_REQUEST'),
    _401: problem(401, 'A required token is missing or unknown', {
      'WWW-Authenticate': { required: true, schema: { type: 'string' }, description: 'Bearer' },
    }),
    _403: problem(403, 'The token lacks the right keyed-decode, or one for the sequence'),
    _404: problem(404, 'UNKNOWN_SEQUENCE; without a code: the key has no numbers'),
    _409: problem(409, 'SEQUENCE_EXHAUSTED: too few numbers are left'),
    _410: problem(410, 'FORGOTTEN: the ledger has no decision for the key any more; or SEQUENCE_CLOSED'),
    _422: problem(422, 'CONFLICT: the Idempotency-Key was used for another request'),
    _429: problem(
      429,
      'QUOTA_EXCEEDED; or the caller exceeded API_RATE_LIMIT, its share of waits or connections; or the address had too many 401 or documents',
      retryAfter,
    ),
    _503: problem(
      503,
      'OVERLOADED, the reason why the gate is closed, or why no worker can decide now: KAFKA_UNAVAILABLE, STOPPING, OVERTAKEN; until an operator acts: SEQUENCE_STOPPED, TOPIC_INVALID, CONFIG_INVALID',
      retryAfter,
    ),
    _504: problem(
      504,
      'NO_REPLY or EXPIRED: no worker has answered, or read the request, in time. With the same key, ask again',
      retryAfter,
    ),
    other: problem(0, 'Any other failure: 404, 405 with Allow, 408, 413, 414, 415, 417, 421, 431, 500, 501, 502'),
  };
}
