import { describe, expect, it } from 'vitest';
import { SchemaRegistry, WAIT_LIMIT_MS } from '../../../src/adapters/registry/schema-registry.ts';
import { ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../../src/codec/id-request.ts';
import { SCHEMAS } from '../../../src/codec/schemas.ts';

const URL = 'http://registry/api';
const REPLY_ID = 40;
const NUMBERS = '/subjects/idalloc.IdReply-2';
const OURS = (['id-request', 'id-request-2', 'id-reply', 'id-reply-2'] as const).map((name) => SCHEMAS[name]);
const SILENT = { code: 'SCHEMA_REGISTRY_UNAVAILABLE' };

/** A registry behind a function, and a clock that the test moves. */
class FakeRegistry {
  nowMs = 0;
  /** Undefined: no answer at all. */
  answer: ((path: string) => readonly [number, unknown]) | undefined;
  readonly asked: string[] = [];
  /** The bodies of the calls that have one. */
  asks: { readonly schema?: string }[] = [];

  readonly fetch = (async (url: string, init?: RequestInit) => {
    const path = url.slice(URL.length);
    this.asked.push(path);
    if (typeof init?.body === 'string') this.asks.push(JSON.parse(init.body));
    if (this.answer === undefined) throw new TypeError('fetch failed', { cause: new Error('ECONNREFUSED') });
    const [status, body] = this.answer(path);
    return new Response(typeof body === 'string' ? body : JSON.stringify(body), { status });
  }) as typeof fetch;

  client(requestTopic?: string): SchemaRegistry {
    return new SchemaRegistry(
      { url: URL },
      { monotonicMs: () => this.nowMs, fetch: this.fetch, timeoutMs: 2_000 },
      requestTopic,
    );
  }
}

function well(path: string): readonly [number, unknown] {
  if (path === '/subjects/idalloc.IdReply') return [200, { id: REPLY_ID }];
  if (path === '/schemas/ids/7') return [200, { schema: SCHEMAS['id-request'] }];
  if (path === '/schemas/ids/8') return [200, { schema: '"string"' }];
  if (path === '/schemas/ids/9') return [200, { schema: 'message M {}', schemaType: 'PROTOBUF' }];
  return [404, { error_code: 40403 }];
}

function isRequest(client: SchemaRegistry, id: number): boolean | undefined {
  const header = client.requestHeader(id);
  return header === undefined ? undefined : header !== 'none';
}

/** A registry that answers, and a client of it, which has learned this ID. */
async function opened(id?: number) {
  const registry = new FakeRegistry();
  registry.answer = well;
  const client = registry.client();
  if (id !== undefined) await client.learn(new Set([id]), 0);
  return { registry, client };
}

describe('a schema registry', () => {
  it('is queried for the subjects that lack our schemas, and not changed', async () => {
    const { registry } = await opened();
    expect(await registry.client().missing('orders')).toEqual(['orders-value', 'idalloc.IdReply-2']);
    expect(registry.asked).toHaveLength(3);
    registry.asks = [];
    registry.answer = (path) => (path.startsWith('/subjects') ? [200, { id: 1 }] : well(path));
    expect(await registry.client().missing('orders')).toEqual([]);
    expect(registry.asks.map(({ schema }) => schema)).toEqual(OURS);
    registry.answer = () => [500, {}];
    await expect(registry.client().missing('orders')).rejects.toMatchObject(SILENT);
  });

  it('is queried once for each id, and for the reply schemas', async () => {
    const { registry, client } = await opened();
    await client.learn(new Set([7, 8, 9]), 0);
    await client.learn(new Set([7, 8]), 0);
    expect([7, 8, 9, 10].map((id) => isRequest(client, id))).toEqual([true, false, false, undefined]);
    expect(client.replyId()).toBe(REPLY_ID);
    expect(registry.asked).toHaveLength(5);
  });

  it('registers the schemas of requests as versions of one subject, the first one first', async () => {
    const registry = new FakeRegistry();
    registry.answer = (path) => {
      if (path.endsWith('/versions'))
        return registry.asks.length === 0 ? [404, {}] : [200, { id: registry.asks.length }];
      return [200, {}];
    };
    const registered = await registry.client().register('orders');
    expect(registered.map(({ subject }) => subject)).toEqual([
      'orders-value',
      'orders-value',
      'idalloc.IdReply',
      'idalloc.IdReply-2',
    ]);
    expect(registry.asks.flatMap(({ schema }) => schema ?? [])).toEqual(OURS);
  });

  it('tells the schemas of requests apart', async () => {
    const registry = new FakeRegistry();
    registry.answer = (path) => {
      return path === '/schemas/ids/6' ? [200, { schema: SCHEMAS['id-request-2'] }] : well(path);
    };
    const client = registry.client();
    await client.learn(new Set([6, 7]), 0);
    expect([6, 7].map((id) => client.requestHeader(id))).toEqual([WIDE_REQUEST_HEADER, ID_REQUEST_HEADER]);
  });

  it('is queried for the schema of replies with numbers with that of the others, and once a minute until it has it', async () => {
    const { registry, client } = await opened(7);
    expect([client.replyId(), client.numbersReplyId()]).toEqual([REPLY_ID, undefined]);
    registry.answer = (path) => (path === NUMBERS ? [200, { id: 41 }] : well(path));
    registry.nowMs = 59_999;
    await client.learn(new Set([7]), 0);
    expect(client.numbersReplyId()).toBeUndefined();
    registry.nowMs = 60_000;
    await client.learn(new Set([7]), 0);
    expect(client.numbersReplyId()).toBe(41);
    registry.nowMs = 120_000;
    await client.learn(new Set([7]), 0);
    expect(registry.asked.filter((path) => path === NUMBERS)).toHaveLength(2);
  });

  it('that lacks the schema of replies with numbers and falls silent is tried for it once a minute', async () => {
    const { registry, client } = await opened(7);
    registry.answer = undefined;
    registry.nowMs = 60_000;
    await expect(client.learn(new Set([7]), 0)).rejects.toMatchObject(SILENT);
    registry.nowMs = 119_999;
    await client.learn(new Set([7]), 0);
    expect(registry.asked.filter((path) => path === NUMBERS)).toHaveLength(2);
  });

  it('is queried again after a minute for an id that it did not have', async () => {
    const { registry, client } = await opened(11);
    registry.nowMs = 59_999;
    await client.learn(new Set([11]), 0);
    expect(isRequest(client, 11)).toBe(false);
    expect(registry.asked).toHaveLength(3);
    registry.nowMs = 60_000;
    registry.answer = (path) => (path === '/schemas/ids/11' ? well('/schemas/ids/7') : well(path));
    await client.learn(new Set([11]), 0);
    expect(isRequest(client, 11)).toBe(true);
  });

  it('that is silent is waited for 30 s in all, with at most one attempt a second; known ids never wait', async () => {
    const { registry, client } = await opened(7);
    registry.answer = undefined;
    const down = { ...SILENT, message: expect.stringMatching(/ECONNREFUSED/) };
    const before = registry.asked.length;
    await expect(client.learn(new Set([12]), 0)).rejects.toMatchObject(down);
    registry.nowMs = 999;
    await expect(client.learn(new Set([13]), 0)).rejects.toMatchObject(down);
    expect(registry.asked).toHaveLength(before + 2);
    await client.learn(new Set([7]), 0);
    registry.nowMs = WAIT_LIMIT_MS - 1;
    await expect(client.learn(new Set([12]), 0)).rejects.toMatchObject(down);
    registry.nowMs = WAIT_LIMIT_MS;
    await client.learn(new Set([12]), 0);
    expect(isRequest(client, 12)).toBeUndefined();
    registry.nowMs = 2 * WAIT_LIMIT_MS;
    registry.answer = well;
    await client.learn(new Set([12]), 0);
    expect(isRequest(client, 12)).toBe(false);
  });

  it.for([
    ['an error', () => [500, {}] as const],
    ['a refused login', () => [401, {}] as const],
    ['no JSON', () => [200, '<html>'] as const],
    ['an endless answer', () => [200, `"${'x'.repeat(300_000)}"`] as const],
    ['no reply schema', () => [404, {}] as const],
  ] as const)('that answers with %s counts as silent', async ([, answer]) => {
    const registry = new FakeRegistry();
    registry.answer = answer;
    await expect(registry.client().learn(new Set([7]), 0)).rejects.toMatchObject(SILENT);
  });

  it('has at most 10,000 ids cached, and evicts the oldest that is not a request schema', async () => {
    const { client } = await opened(7);
    for (let i = 0; i < 10_000; i += 1) await client.learn(new Set([100 + i]), i);
    expect([isRequest(client, 7), isRequest(client, 100), isRequest(client, 10_099)]).toEqual([true, undefined, false]);
  });

  it('is not asked for ids that no registry assigns', async () => {
    const { registry, client } = await opened(7);
    const before = registry.asked.length;
    await client.learn(new Set([2 ** 31, 2 ** 32 - 1]), 0);
    expect([isRequest(client, 2 ** 31), isRequest(client, 2 ** 32 - 1)]).toEqual([false, false]);
    expect(registry.asked).toHaveLength(before);
  });

  it.for([400, 404, 410, 422])('that answers %i for an id does not have it, which is remembered', async (status) => {
    const { registry, client } = await opened();
    registry.answer = (path) => (path.endsWith('/13') ? [status, '<html>'] : well(path));
    await client.learn(new Set([13, 7]), 0);
    const before = registry.asked.length;
    await client.learn(new Set([13]), 0);
    expect([isRequest(client, 13), isRequest(client, 7)]).toEqual([false, true]);
    expect(registry.asked).toHaveLength(before);
  });

  it('that fails for one id only holds up no other request, and is asked for that id again after a minute', async () => {
    const { registry, client } = await opened();
    registry.answer = (path) => (path.endsWith('/13') ? [500, {}] : well(path));
    await client.learn(new Set([13]), 0);
    expect(isRequest(client, 13)).toBeUndefined();
    await client.learn(new Set([13, 7]), 0);
    expect(isRequest(client, 7)).toBe(true);
    registry.nowMs = 60_000;
    registry.answer = (path) => well(path.replace('/13', '/7'));
    await client.learn(new Set([13]), 0);
    expect(isRequest(client, 13)).toBe(true);
  });

  it('that fails once for an id is asked for it again before the request goes on', async () => {
    const { registry, client } = await opened();
    const failures = [[500, {}] as const];
    registry.answer = (path) => (path.endsWith('/7') && failures.pop()) || well(path);
    await client.learn(new Set([7]), 0);
    expect(isRequest(client, 7)).toBe(true);
  });

  it('is asked for few made-up ids of a partition, and for those of other partitions as before', async () => {
    const { registry, client } = await opened();
    const madeUp = (from: number) => new Set(Array.from({ length: 500 }, (_, i) => from + i));
    await client.learn(madeUp(1_000), 0);
    await client.learn(madeUp(2_000), 0);
    expect(registry.asked.length).toBeLessThan(40);
    await client.learn(new Set([7]), 1);
    expect(isRequest(client, 7)).toBe(true);
    registry.nowMs = 1_000;
    await client.learn(new Set([8]), 0);
    expect(isRequest(client, 8)).toBe(false);
  });

  it('that was down has cost no look-ups: all ids that waited are found when it is back', async () => {
    const { registry, client } = await opened(7);
    const ids = Array.from({ length: 20 }, (_, i) => 1_000 + i);
    registry.answer = undefined;
    for (registry.nowMs = 1_000; registry.nowMs < WAIT_LIMIT_MS; registry.nowMs += 1_000) {
      await expect(client.learn(new Set(ids), 0)).rejects.toMatchObject(SILENT);
    }
    registry.answer = (path) => (path.startsWith('/schemas') ? well('/schemas/ids/7') : well(path));
    await client.learn(new Set(ids), 0);
    expect(ids.map((id) => isRequest(client, id))).toEqual(ids.map(() => true));
  });

  it('has all schemas of the request topic found before any look-up, whatever others have cost its partition', async () => {
    const registry = new FakeRegistry();
    const schema = SCHEMAS['id-request'];
    const fromJava = JSON.stringify({ ...JSON.parse(schema), doc: undefined });
    registry.answer = (path) => {
      if (path === '/subjects/orders-value/versions') return [200, [1, 2, 3]];
      if (path === '/subjects/orders-value/versions/1') return [200, { id: 7, schema }];
      if (path === '/subjects/orders-value/versions/2') return [200, { id: 21, schema: fromJava }];
      if (path === '/subjects/orders-value/versions/3') return [200, { id: 22, schema: '"string"' }];
      return well(path);
    };
    const client = registry.client('orders');
    await client.learn(new Set(Array.from({ length: 500 }, (_, i) => 1_000 + i)), 0);
    expect([7, 21, 22].map((id) => isRequest(client, id))).toEqual([true, true, false]);
    expect(registry.asked).not.toContain('/schemas/ids/7');
  });

  it('that refuses the subject of the request topic is used all the same', async () => {
    const registry = new FakeRegistry();
    registry.answer = (path) => (path.startsWith('/subjects/orders-value') ? [403, {}] : well(path));
    const client = registry.client('orders');
    await client.learn(new Set([7]), 0);
    expect(isRequest(client, 7)).toBe(true);
  });
});
