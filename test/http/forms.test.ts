import type { InjectOptions } from 'fastify';
import { afterEach, describe, expect, test } from 'vitest';
import { FORM_NAMES } from '../../src/codec/form/form.ts';
import { openForm } from '../../src/codec/form/forms.ts';
import { wallMs } from '../../src/core/units.ts';
import type { Api } from '../../src/http/api.ts';
import { ApiStage, STAGE_LAYOUT } from '../support/api-stage.ts';
import { FakeLedger } from '../support/fake-ledger.ts';
import { KEYS } from '../support/form-samples.ts';

const SETTINGS = { layout: STAGE_LAYOUT, keys: KEYS, prefix: 'ord' };
const PLAIN = 'token-without-rights';
const TRUSTED = 'token-with-a-right';
const TOKENS = `plain:${PLAIN}\ntrusted:${TRUSTED} keyed-decode\n`;
const open: Api[] = [];

interface View {
  readonly value_string: string;
  readonly value_form: string;
}

afterEach(async () => {
  for (const { app } of open.splice(0)) await app.close();
});

function start({ hasKeys = true, token = TRUSTED, ledger = new FakeLedger() } = {}) {
  const stage = new ApiStage({ tokens: TOKENS, ledger });
  stage.formKeys = hasKeys ? KEYS : undefined;
  const api = stage.api();
  open.push(api);
  const inject = (asked: string | InjectOptions) => {
    const options = typeof asked === 'string' ? { url: asked } : asked;
    return api.app.inject({ ...options, headers: { ...options.headers, authorization: `Bearer ${token}` } });
  };
  return { stage, app: { inject } };
}

const queryOf = (form: string): string => (form === 'prefixed' ? 'form=prefixed&prefix=ord' : `form=${form}`);

describe.each(FORM_NAMES)('form=%s', (form) => {
  const { format } = openForm(form, SETTINGS);

  test.each([1, 10, 11, 101, 250])('adds the form to each of %i new IDs', async (count) => {
    const { app } = start();
    const response = await app.inject(`/api/v1/ids?count=${count}&${queryOf(form)}`);
    const { ids } = response.json() as { ids: View[] };
    expect(ids).toHaveLength(count);
    expect(ids.map(({ value_form }) => value_form)).toEqual(
      ids.map(({ value_string }) => format(BigInt(value_string))),
    );
    expect(Object.keys(ids[0] ?? {})).toEqual(['value_string', 'value_hex', 'value_form', 'breakdown']);
  });

  test('adds the form to the ID of a POST, and decodes it again', async () => {
    const { app } = start();
    const created = (await app.inject({ method: 'POST', url: `/api/v1/id?${queryOf(form)}` })).json();
    expect(created.value_form).toBe(format(BigInt(created.id)));
    const url = `/api/v1/ids/${encodeURIComponent(created.value_form)}?${queryOf(form)}`;
    expect((await app.inject(url)).json()).toMatchObject({ value_string: created.id, value_form: created.value_form });
    expect((await app.inject({ method: 'HEAD', url })).statusCode).toBe(200);
  });
});

describe('a form is rejected before any ID is used', () => {
  test.each([
    ['form=roman', "unknown form 'roman': use decimal, padded"],
    ['form=', "unknown form ''"],
    ['form=ulid&form=hex', 'form and prefix must be given once'],
    ['prefix=ord', 'prefix requires the form prefixed'],
    ['form=ulid&prefix=ord', 'prefix requires the form prefixed'],
    ['form=ulid&as=hex', "unknown query parameter 'as'"],
    ['form=prefixed', 'form prefixed needs a prefix, which is missing'],
    ['form=prefixed&prefix=O', "needs a prefix, not 'O'"],
    ['form=uuid4', 'form uuid4 needs a key: set FORM_KEY or FORM_KEY_FILE'],
    ['form=number', 'form number needs a key'],
    ['from=ulid', "unknown query parameter 'from': allowed: "],
  ])('%s', async (query, detail) => {
    const { stage, app } = start({ hasKeys: false });
    for (const [method, path] of [
      ['GET', '/api/v1/ids'],
      ['POST', '/api/v1/id'],
    ] as const) {
      const { statusCode, json } = await app.inject({ method, url: `${path}?${query}` });
      expect([statusCode, json().code]).toEqual([400, 'MALFORMED_REQUEST']);
      expect(json().detail).toContain(detail);
    }
    expect(stage.issued).toBe(0);
  });
});

test.each(['uuid4', 'number'])('one request gets at most 1,000 IDs in %s, which is slow', async (form) => {
  const { app, stage } = start();
  const { statusCode, json } = await app.inject(`/api/v1/ids?count=1001&form=${form}`);
  expect([statusCode, json().code, stage.issued]).toEqual([400, 'INVALID_COUNT', 0]);
  expect(json().detail).toContain('from 1 to 1000');
  expect((await app.inject(`/api/v1/ids?count=1000&form=${form}`)).json().ids).toHaveLength(1_000);
  expect((await app.inject('/api/v1/ids?count=1001&form=ulid')).json().ids).toHaveLength(1_001);
});

describe.each(['uuid4', 'number'])('a token without the right keyed-decode', (form) => {
  const text = openForm(form, SETTINGS).format(55_325_805_773_398_016n);

  test.each([
    ['read a text in', `${text}?form=${form}&as=decimal`],
    ['write any ID in', `55325805773398016?as=${form}`],
    ['try whether a text is one in', `${'0'.repeat(text.length)}?form=${form}`],
  ])(`can't %s form ${form}`, async (_, path) => {
    const { app } = start({ token: PLAIN });
    for (const method of ['GET', 'HEAD'] as const) {
      expect((await app.inject({ method, url: `/api/v1/ids/${path}` })).statusCode).toBe(403);
    }
    expect((await app.inject(`/api/v1/ids/${path}`)).json().detail).toContain("the right 'keyed-decode'");
  });

  test(`gets new IDs in form ${form}, and decodes those in other forms`, async () => {
    const { app } = start({ token: PLAIN });
    expect((await app.inject(`/api/v1/ids?form=${form}`)).statusCode).toBe(200);
    expect((await app.inject('/api/v1/ids/55325805773398016?as=ulid')).statusCode).toBe(200);
  });
});

test('without tokens nobody has the right keyed-decode', async () => {
  const stage = new ApiStage();
  stage.formKeys = KEYS;
  const api = stage.api();
  open.push(api);
  expect((await api.app.inject('/api/v1/ids/55325805773398016?as=uuid4')).statusCode).toBe(403);
});

test('an ID in one form is converted to another', async () => {
  const { app } = start();
  const ask = async (path: string) => (await app.inject(`/api/v1/ids/${path}`)).json();
  const { value_form: ulid } = await ask('55325805773398016?as=ulid');
  expect(ulid).toBe(openForm('ulid', SETTINGS).format(55_325_805_773_398_016n));
  const { value_form: prefixed } = await ask(`${ulid}?form=ulid&as=prefixed&prefix=ord`);
  expect(prefixed).toBe('ord_01H4EGVW0J8004');
  expect(await ask(`${prefixed}?form=prefixed&prefix=ord&as=number`)).toMatchObject({
    value_string: '55325805773398016',
    value_form: openForm('number', SETTINGS).format(55_325_805_773_398_016n),
  });
  expect((await ask('1?as=roman')).detail).toContain("unknown form 'roman'");
});

test('a forged text is rejected in its form, and so is a text of another form', async () => {
  const { app } = start();
  const ids = ['01H4EGVW0J8001ZZZZZZZZZZZZ', '55325805773398016', '%00'];
  for (const id of ids) {
    const { statusCode, json } = await app.inject(`/api/v1/ids/${id}?form=ulid`);
    expect([statusCode, json().code]).toEqual([400, 'MALFORMED_REQUEST']);
    expect(json().detail).toContain('is not a valid ID in form ulid');
  }
});

test('the same Idempotency-Key returns the same IDs in any form', async () => {
  const ledger = new FakeLedger();
  const { app } = start({ ledger });
  const ask = async (query: string) =>
    (await app.inject({ url: `/api/v1/ids?count=3${query}`, headers: { 'idempotency-key': 'k' } })).json()
      .ids as View[];
  const [plain, ulids, uuids] = [await ask(''), await ask('&form=ulid'), await ask('&form=uuid7')];
  const values = (views: View[]) => views.map(({ value_string }) => value_string);
  expect([values(ulids), values(uuids), ledger.decidedIds]).toEqual([values(plain), values(plain), 3]);
  expect(ulids.map(({ value_form }) => openForm('ulid', SETTINGS).parse(value_form))).toEqual(
    values(plain).map(BigInt),
  );
});

test.each(['GET', 'POST'] as const)(
  'a new ID whose time the form does not cover makes %s a 400, not a response that breaks off',
  async (method) => {
    const { app, stage } = start();
    const late = { first: 2n ** 63n - 1n, count: 1 };
    const ranges = method === 'GET' ? [{ first: 1n << 22n, count: 200 }, late] : [late];
    stage.issuer.issue = async () => ({ ranges, generatedAt: wallMs(0) });
    const url = method === 'GET' ? '/api/v1/ids?count=201&form=simpleflake' : '/api/v1/id?form=simpleflake';
    const { statusCode, json } = await app.inject({ method, url });
    expect([statusCode, json().code]).toEqual([400, 'MALFORMED_REQUEST']);
    expect(json().detail).toContain(
      'its time is 2095-09-07T15:47:35.551Z, but the form covers 2000-01-01T05:00:00.000Z to',
    );
  },
);
