import type { Layout } from '../core/layout.ts';
import { MAX_NUMBERS } from './id-routes.ts';
import {
  CORRELATION,
  components,
  type Json,
  json,
  type OpenApiDocument,
  type Operation,
  type Reference,
  type Response,
  ref,
} from './openapi-components.ts';
import { bodyExamples } from './openapi-examples.ts';

const DESCRIPTION = `64-bit, time-ordered IDs, unique within the ID space. IDs are strings, because JSON numbers lose digits above 2^53; a
worker whose layout stays below that also returns them as numbers. Without an Idempotency-Key they come from this worker's memory: from the same
generator and reservation as those over Kafka, so they are just as unique, but they are not in the ledger. A request that gets
no response may have used up IDs; gaps are normal. While the worker cannot trust its clock or its lease, the port is closed.`;
const NUMBERS_DESCRIPTION = `Asks the workers over Kafka, so the ledger decides: a key of a sequence has the same numbers on every worker, and
after restarts, for as long as the ledger remembers it. All callers share the keys of a sequence. 501 without API_REPLY_TOPIC.`;
const LOOK_UP_DESCRIPTION = `Reads only: the numbers that this key has, with the same count, or 404 if the ledger has none: it got none, or longer ago than the ledger
keeps them. Asks the workers over Kafka as POST does, and counts against the same limits.`;
const FORM = ['Form', 'Prefix'].map((name) => ref('parameters', name));
const problems = (...names: string[]): Readonly<Record<string, Reference>> =>
  Object.fromEntries(names.map((name) => [name.slice(1), ref('responses', name)]));

const success = (
  description: string,
  content: NonNullable<Response['content']>,
  headers: Json = {},
): Response & Json => ({
  description,
  headers: { ...headers, ...CORRELATION.headers },
  content,
});

/** The OpenAPI 3.1 document for a worker with this layout and limit. */
export function openApiDocument(layout: Layout, maxCount: number): OpenApiDocument {
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
    paths: paths(layout, maxCount),
    components: components(layout),
  };
}

/** A call for a shell. Port and scheme are those of a worker with no settings for them. */
const curl = (path: string, options = '', others: readonly string[] = []): Pick<Operation, 'x-codeSamples'> => ({
  'x-codeSamples': [path, ...others].map((one) => ({
    lang: 'Shell',
    source: `curl -s ${options}'http://localhost:8080${one}'`,
  })),
});
const KEYED = "-H 'Idempotency-Key: order-4711' ";
const NUMBERS_PATH = '/api/v1/sequences/invoices/2027?count=2';

function paths(layout: Layout, maxCount: number): OpenApiDocument['paths'] {
  const body = bodyExamples(layout);
  const replayed = {
    'Idempotency-Replayed': {
      schema: { const: 'true' },
      description: 'an earlier request with this key got these IDs, or these numbers',
    },
  };
  const count = {
    name: 'count',
    in: 'query',
    description: 'number of IDs',
    schema: { type: 'integer', minimum: 1, maximum: maxCount, default: 1 },
  };
  const newIds = {
    parameters: [count, ref('parameters', 'Encoding'), ...FORM, ref('parameters', 'IdempotencyKey')],
    responses: {
      200: success(
        'New IDs',
        json(
          { oneOf: [ref('schemas', 'Ids'), ref('schemas', 'Ranges')] },
          { examples: { ids: { value: body.Ids }, ranges: { value: body.Ranges } } },
        ),
        replayed,
      ),
      ...problems('_400', '_401', '_410', '_422', '_429', '_503', '_504'),
      default: ref('responses', 'other'),
    },
  };
  const ofKey = (operation: Omit<Operation, 'parameters' | 'responses'>) => ({
    ...operation,
    parameters: [
      ref('parameters', 'SequenceName'),
      { ...count, description: 'how many numbers', schema: { ...count.schema, maximum: MAX_NUMBERS } },
      ref('parameters', 'NumbersKey'),
    ],
    responses: {
      200: success('Numbers', json(ref('schemas', 'Numbers'), { example: body.Numbers }), replayed),
      ...problems('_400', '_401', '_403', '_404', '_409', '_410', '_422', '_429', '_503', '_504'),
      default: ref('responses', 'other'),
    },
  });
  const open = (operationId: string, summary: string, content: NonNullable<Response['content']>, path: string) => ({
    operationId,
    summary,
    description: 'Needs no token.',
    ...curl(path),
    security: [],
    responses: { 200: success(summary, content), ...problems('_429'), default: ref('responses', 'other') },
  });
  const { parameters: always } = CORRELATION;
  return {
    '/api/v1/ids': {
      parameters: always,
      get: {
        operationId: 'getIds',
        summary: 'New IDs, in ascending order',
        ...curl('/api/v1/ids?count=1', '', ['/api/v1/ids?count=100&encoding=ranges']),
        ...newIds,
      },
      head: {
        ...newIds,
        operationId: 'checkIds',
        summary: 'Whether GET would allocate IDs now',
        ...curl('/api/v1/ids?count=1', '-I '),
        description:
          'Checks the parameters, the token, and the gate, or with a key API_REPLY_TOPIC. Allocates nothing, and counts against no limit.',
      },
      post: {
        ...newIds,
        operationId: 'postIds',
        summary: 'New IDs, as GET, for clients and proxies that repeat or keep a GET',
        ...curl('/api/v1/ids?count=1', `-X POST ${KEYED}`),
        description: 'Takes its parameters in the query, and no body or an empty JSON object.',
      },
    },
    '/api/v1/id': {
      parameters: always,
      post: {
        operationId: 'postId',
        summary: 'One new ID',
        ...curl('/api/v1/id', '-X POST '),
        description: 'Takes no body, or an empty JSON object.',
        parameters: [...FORM, ref('parameters', 'IdempotencyKey')],
        responses: {
          200: success('A new ID', json(ref('schemas', 'Id'), { example: body.Id }), replayed),
          ...problems('_400', '_401', '_410', '_422', '_429', '_503', '_504'),
          default: ref('responses', 'other'),
        },
      },
    },
    '/api/v1/ids/{id}': {
      parameters: always,
      ...withHead('checkId', {
        operationId: 'decodeId',
        summary: 'The fields of an ID',
        ...curl(`/api/v1/ids/${String(body.IdView.value_string)}`),
        parameters: [ref('parameters', 'Id'), ...FORM, ref('parameters', 'As')],
        responses: {
          200: success('The fields', json(ref('schemas', 'IdView'), { example: body.IdView })),
          ...problems('_400', '_401', '_403', '_429'),
          default: ref('responses', 'other'),
        },
      }),
    },
    '/api/v1/sequences/{name}': {
      parameters: always,
      ...withHead(
        'checkNumbers',
        ofKey({
          operationId: 'getNumbers',
          summary: 'The numbers that a key has',
          description: LOOK_UP_DESCRIPTION,
          ...curl(NUMBERS_PATH, KEYED),
        }),
      ),
      post: ofKey({
        operationId: 'takeNumbers',
        summary: 'The next numbers of a sequence, without a gap',
        description: NUMBERS_DESCRIPTION,
        ...curl(NUMBERS_PATH, `-X POST ${KEYED}`),
      }),
    },
    '/api/v1/openapi.json': {
      parameters: always,
      ...withHead(
        'checkOpenApi',
        open('getOpenApi', 'This document, OpenAPI 3.1', json({ type: 'object' }), '/api/v1/openapi.json'),
      ),
    },
    '/docs': {
      parameters: always,
      ...withHead('checkDocs', open('getDocs', 'This document as a page', { 'text/html': { schema: {} } }, '/docs')),
    },
  };
}

function withHead(operationId: string, get: Operation): { readonly get: Operation; readonly head: Operation } {
  const samples = get['x-codeSamples']?.map(({ lang, source }) => ({
    lang,
    source: source.replace('curl -s', 'curl -s -I'),
  }));
  const head = { ...get, operationId, summary: `${get.summary}: the headers alone`, 'x-codeSamples': samples ?? [] };
  return { get, head };
}
