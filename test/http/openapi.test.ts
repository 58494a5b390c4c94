import { createHash } from 'node:crypto';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, describe, expect, test } from 'vitest';
import { presetLayout } from '../../src/core/presets.ts';
import { docsPage } from '../../src/http/docs-page.ts';
import { REFUSAL_STATUSES } from '../../src/http/ledger-issuer.ts';
import { openApiDocument } from '../../src/http/openapi.ts';
import { ApiStage } from '../support/api-stage.ts';
import { FakeLedger } from '../support/fake-ledger.ts';

interface Shown {
  readonly responses: Readonly<Record<string, { readonly content?: Readonly<Record<string, Media>> }>>;
}

interface Media {
  readonly schema?: object;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}

interface Operation {
  readonly operationId: string;
  readonly responses: Readonly<Record<string, { readonly content?: object; readonly $ref?: string }>>;
}

const stage = new ApiStage({ ledger: new FakeLedger() });
const { app } = stage.api();
afterAll(() => app.close());

const document = (await app.inject('/api/v1/openapi.json')).json();
const ajv = new Ajv2020({ strict: false, formats: { 'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/ } });
ajv.addSchema(document, 'api');
const matches = (name: string, body: unknown) => ajv.validate({ $ref: `api#/components/schemas/${name}` }, body);

describe('the OpenAPI document', () => {
  test('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    const result = await validator.validate(document);
    expect(result.errors).toBeUndefined();
    expect([result.valid, validator.version]).toEqual([true, '3.1']);
  });

  test('says that the ledger decides what a key gets, and that IDs without one are not in it', () => {
    expect(document.components.parameters.IdempotencyKey.description).toMatch(/the ledger decides.*on every worker/s);
    expect(document.info.description).toMatch(/Without an Idempotency-Key .*not in the ledger/s);
  });

  test('has exactly the routes of the API', async () => {
    const methods = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH'] as const;
    for (const [path, item] of Object.entries<Record<string, Operation>>(document.paths)) {
      for (const method of methods) {
        const { statusCode } = await app.inject({ method, url: path.replace(/\{(id|name)\}/, '7') });
        expect(`${method} ${path} ${statusCode === 405}`).toBe(`${method} ${path} ${!(method.toLowerCase() in item)}`);
      }
    }
  });

  test('names each code that a worker refuses with, under its status', () => {
    for (const [code, [status]] of Object.entries(REFUSAL_STATUSES)) {
      expect(document.components.responses[`_${status}`].description).toMatch(new RegExp(`\\b${code}\\b`));
    }
  });

  test('resolves all of its references', () => {
    const references = JSON.stringify(document).match(/"#\/[^"]+"/g) ?? [];
    expect(references.length).toBeGreaterThan(10);
    for (const reference of references) {
      const found = reference
        .slice(3, -1)
        .split('/')
        .reduce((node, name) => node?.[name], document);
      expect(found, reference).toBeDefined();
    }
  });
});

describe('the page of the document', () => {
  test('has each operation, parameter and status, and runs and loads nothing', async () => {
    const { headers, body } = await app.inject('/docs');
    expect(headers['content-type']).toBe('text/html; charset=utf-8');
    expect(headers['content-security-policy']).toMatch(/^default-src 'none'; style-src 'sha256-/);
    expect(body).not.toMatch(/<script|<link|<img|undefined|\[object/i);
    for (const [path, { parameters: _, ...methods }] of Object.entries<Record<string, Operation>>(document.paths)) {
      for (const [method, { operationId }] of Object.entries(methods)) {
        expect(body).toContain(`<section id="${operationId}"><h2><code>${method.toUpperCase()} ${path}</code></h2>`);
      }
    }
    for (const { name } of Object.values<{ name: string }>(document.components.parameters)) {
      expect(body).toContain(`<code>${name}</code>`);
    }
    const [, style = ''] = /<style>(.*)<\/style>/s.exec(body) ?? [];
    const hash = createHash('sha256').update(style).digest('base64');
    expect(headers['content-security-policy']).toContain(`'sha256-${hash}'`);
  });

  test('shows each request as a call, beside the response, and each field of that', async () => {
    const { body } = await app.inject('/docs');
    const page = body.replaceAll('&#39;', "'").replaceAll('&#34;', '"');
    expect(page).toContain(
      "<pre>curl -s -X POST -H 'Idempotency-Key: order-4711' 'http://localhost:8080/api/v1/sequences/invoices/2027?count=2'</pre>",
    );
    expect(page.match(/<h3>Request<\/h3><pre>curl -s /g)?.length).toBe(page.match(/<section id="(?!problem)/g)?.length);
    for (const field of ['ids[].breakdown.worker_id', 'ranges[].first', 'value_form', 'numbers[]', 'step', 'detail']) {
      expect(page).toContain(`<td><code>${field}</code>`);
    }
    expect(page).toContain('"code": "SEQUENCE_EXHAUSTED"');
  });

  test('shows text as text, whatever it contains', () => {
    const info = { title: '<b>"a" & \'b\'</b>', description: '<script>' };
    const page = docsPage({ ...openApiDocument(presetLayout('default'), 10), info });
    expect(page).toContain('<h1>&#60;b&#62;&#34;a&#34; &#38; &#39;b&#39;&#60;/b&#62;: HTTP API</h1>');
    expect(page).not.toContain('<script>');
  });
});

describe.each(['default', 'js-safe', 'twitter-2010'] as const)(
  'the examples of a worker with the layout %s',
  (name) => {
    const layout = presetLayout(name);
    const { paths, components } = openApiDocument(layout, layout.maxCount);
    const own = new Ajv2020({ strict: false, formats: { 'date-time': true } });
    own.addSchema(JSON.parse(JSON.stringify({ components })), 'api');

    test('are what their schemas say', () => {
      const bodies = Object.values(paths).flatMap(({ parameters: _, ...methods }) =>
        Object.values(methods as Record<string, Shown>).flatMap(({ responses }) => Object.values(responses)),
      );
      const all = [...bodies, ...Object.values(components.responses as Shown['responses'])].flatMap(
        ({ content = {} }) =>
          Object.values(content).flatMap(({ schema, example, examples = {} }) =>
            [...(example === undefined ? [] : [example]), ...Object.values(examples).map(({ value }) => value)].map(
              (value) => ({ schema, value }),
            ),
          ),
      );
      expect(all.length).toBeGreaterThan(20);
      for (const { schema, value } of all) {
        const [, kind] = /schemas\/(\w+)/.exec(JSON.stringify(schema)) ?? [];
        const kinds = 'oneOf' in (schema ?? {}) ? ['Ids', 'Ranges'] : [kind];
        const fits = kinds.some((one) => own.validate({ $ref: `api#/components/schemas/${one}` }, value));
        expect(fits, JSON.stringify([value, own.errors])).toBe(true);
      }
    });
  },
);

describe('the responses match the document', () => {
  test.each([
    ['Ids', '/api/v1/ids?count=150', 'GET'],
    ['Ids', '/api/v1/ids?count=2', 'POST'],
    ['Ranges', '/api/v1/ids?count=9000&encoding=ranges', 'GET'],
    ['Id', '/api/v1/id', 'POST'],
    ['IdView', '/api/v1/ids/00c48e86f8092000', 'GET'],
    ['Ids', '/api/v1/ids?count=2&form=ulid', 'GET'],
    ['Id', '/api/v1/id?form=prefixed&prefix=ord', 'POST'],
    ['IdView', '/api/v1/ids/00c48e86f8092000?form=hex', 'GET'],
    ['Numbers', '/api/v1/sequences/invoices/2027?count=2', 'POST'],
    ['Numbers', '/api/v1/sequences/invoices/2027?count=2', 'GET'],
    ['Problem', '/api/v1/ids?count=0', 'GET'],
    ['Problem', '/nowhere', 'GET'],
  ] as const)('%s: %s', async (name, url, method) => {
    const response = await app.inject({ method, url, headers: { 'idempotency-key': url } });
    expect(matches(name, response.json()), JSON.stringify(ajv.errors)).toBe(true);
  });

  test('and a number in place of a string does not', () => {
    expect(matches('Id', { id: 7 })).toBe(false);
    expect(matches('Ids', { ids: [], generated_at: 'now' })).toBe(false);
    const range = { first: '7', count: 1 };
    const at = { step: '1', generated_at: '2026-01-01T00:00:00.000Z' };
    expect(matches('Ranges', { ranges: [range], ...at })).toBe(true);
    for (const ranges of [[], [{ ...range, first: 7 }], [{ ...range, count: 0 }], [{ first: '7' }]]) {
      expect(matches('Ranges', { ranges, ...at })).toBe(false);
    }
  });
});

describe('a worker whose IDs are JavaScript numbers', () => {
  const numbers = new ApiStage({ layout: presetLayout('js-safe') }).api().app;
  const other = new Ajv2020({ strict: false, formats: { 'date-time': true } });
  afterAll(() => numbers.close());

  test('also returns each ID as a number, as its document says, and decodes it', async () => {
    other.addSchema((await numbers.inject('/api/v1/openapi.json')).json(), 'api');
    const of = (name: string, body: unknown) => other.validate({ $ref: `api#/components/schemas/${name}` }, body);
    const many = (await numbers.inject('/api/v1/ids?count=150')).json();
    const ranges = (await numbers.inject('/api/v1/ids?count=150&encoding=ranges')).json();
    expect(of('Ranges', ranges)).toBe(true);
    expect(String(ranges.ranges[0].first_number)).toBe(ranges.ranges[0].first);
    const one = (await numbers.inject({ method: 'POST', url: '/api/v1/id' })).json();
    const view = (await numbers.inject(`/api/v1/ids/${one.id_number}`)).json();
    expect([of('Ids', many), of('Id', one), of('IdView', view)]).toEqual([true, true, true]);
    expect(String(one.id_number)).toBe(one.id);
    expect(view).toEqual({ ...view, value_string: one.id, value_number: one.id_number });
    const { value_number, ...without } = view;
    expect([of('Id', { id: one.id }), of('IdView', without)]).toEqual([false, false]);
    expect(Number.isSafeInteger(value_number)).toBe(true);
  });

  test('is the only kind that returns numbers', async () => {
    const { body } = await app.inject('/api/v1/openapi.json');
    expect(body).not.toMatch(/(value|id)_number/);
    expect((await app.inject('/api/v1/ids')).body).not.toContain('value_number');
    expect(Object.keys((await app.inject({ method: 'POST', url: '/api/v1/id' })).json())).toEqual(['id']);
  });
});
