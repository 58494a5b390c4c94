import { describe, expect, it } from 'vitest';
import { SchemaRegistry, WAIT_LIMIT_MS } from '../../../src/adapters/registry/schema-registry.ts';
import { schemaText } from '../../../src/codec/avro.ts';

const URL = 'http://registry/api';
const REPLY_ID = 40;

/** A registry behind a function, and a clock that the test moves. */
class FakeRegistry {
  nowMs = 0;
  /** Undefined: no answer at all. */
  answer: ((path: string) => readonly [number, unknown]) | undefined;
  readonly asked: string[] = [];

  readonly fetch = (async (url: string) => {
    const path = url.slice(URL.length);
    this.asked.push(path);
    if (this.answer === undefined) throw new TypeError('fetch failed', { cause: new Error('ECONNREFUSED') });
    const [status, body] = this.answer(path);
    return new Response(typeof body === 'string' ? body : JSON.stringify(body), { status });
  }) as typeof fetch;

  client(auth?: { username: string; password: () => string }): SchemaRegistry {
    const settings = { url: URL, ...(auth === undefined ? {} : { auth }) };
    return new SchemaRegistry(settings, { monotonicMs: () => this.nowMs, fetch: this.fetch });
  }
}

function well(path: string): readonly [number, unknown] {
  if (path === '/subjects/idalloc.IdReply') return [200, { id: REPLY_ID }];
  if (path === '/schemas/ids/7') return [200, { schema: schemaText('id-request') }];
  if (path === '/schemas/ids/8') return [200, { schema: '"string"' }];
  if (path === '/schemas/ids/9') return [200, { schema: 'message M {}', schemaType: 'PROTOBUF' }];
  return [404, { error_code: 40403 }];
}

describe('a schema registry', () => {
  it('is queried for the subjects that lack our schemas, and not changed', async () => {
    const registry = new FakeRegistry();
    registry.answer = well;
    expect(await registry.client().missing('orders')).toEqual(['orders-value']);
    expect(registry.asked).toHaveLength(2);
    registry.answer = () => [500, {}];
    await expect(registry.client().missing('orders')).rejects.toMatchObject({ code: 'SCHEMA_REGISTRY_UNAVAILABLE' });
  });

  it('is queried once for each id, and for the reply schema', async () => {
    const registry = new FakeRegistry();
    registry.answer = well;
    const client = registry.client();
    await client.learn(new Set([7, 8, 9]));
    await client.learn(new Set([7, 8]));
    expect([7, 8, 9, 10].map((id) => client.isRequest(id))).toEqual([true, false, false, undefined]);
    expect(client.replyId()).toBe(REPLY_ID);
    expect(registry.asked).toHaveLength(4);
  });

  it('is queried again after a minute for an id that it did not have', async () => {
    const registry = new FakeRegistry();
    registry.answer = well;
    const client = registry.client();
    await client.learn(new Set([11]));
    registry.nowMs = 59_999;
    await client.learn(new Set([11]));
    expect(client.isRequest(11)).toBe(false);
    expect(registry.asked).toHaveLength(2);
    registry.nowMs = 60_000;
    registry.answer = (path) => (path === '/schemas/ids/11' ? well('/schemas/ids/7') : well(path));
    await client.learn(new Set([11]));
    expect(client.isRequest(11)).toBe(true);
  });

  it('that is silent is waited for 30 s in all, with at most one request a second; known ids never wait', async () => {
    const registry = new FakeRegistry();
    registry.answer = well;
    const client = registry.client();
    await client.learn(new Set([7]));
    registry.answer = undefined;
    const down = { code: 'SCHEMA_REGISTRY_UNAVAILABLE', message: expect.stringMatching(/ECONNREFUSED/) };
    const before = registry.asked.length;
    await expect(client.learn(new Set([12]))).rejects.toMatchObject(down);
    registry.nowMs = 999;
    await expect(client.learn(new Set([13]))).rejects.toMatchObject(down);
    expect(registry.asked).toHaveLength(before + 1);
    await client.learn(new Set([7]));
    registry.nowMs = WAIT_LIMIT_MS - 1;
    await expect(client.learn(new Set([12]))).rejects.toMatchObject(down);
    registry.nowMs = WAIT_LIMIT_MS;
    await client.learn(new Set([12]));
    expect(client.isRequest(12)).toBeUndefined();
    registry.nowMs = 2 * WAIT_LIMIT_MS;
    registry.answer = well;
    await client.learn(new Set([12]));
    expect(client.isRequest(12)).toBe(false);
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
    await expect(registry.client().learn(new Set([7]))).rejects.toMatchObject({ code: 'SCHEMA_REGISTRY_UNAVAILABLE' });
  });

  it('has at most 10,000 ids cached, and evicts the oldest that is not a request schema', async () => {
    const registry = new FakeRegistry();
    registry.answer = well;
    const client = registry.client();
    await client.learn(new Set([7, ...Array.from({ length: 10_000 }, (_, i) => 100 + i)]));
    expect([client.isRequest(7), client.isRequest(100), client.isRequest(10_099)]).toEqual([true, undefined, false]);
  });
});
