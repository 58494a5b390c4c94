import { channel } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ClientHooks } from '../../src/client/hooks.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import { stage, turns } from './stage.ts';

test('hooks report requests, replies and batches', async () => {
  const seen: unknown[] = [];
  const { client } = await stage({
    idsPerSecond: 10,
    hooks: {
      onRequest: (event) => seen.push(['request', event]),
      onReply: (event) => seen.push(['reply', event]),
      onBatch: (event) => seen.push(['batch', event]),
    },
  });
  await turns();
  expect(seen).toEqual([
    ['request', { correlationId: 'c-1', count: 400, attempt: 1 }],
    ['reply', { correlationId: 'c-1', count: 400, latencyMs: 0, replayed: false }],
    ['batch', { count: 400, buffered: 400, lowWater: 200 }],
  ]);
  await client.close();
});

test('an error is reported once in 10 s per cause, however many requests it affects', async () => {
  const faults: string[] = [];
  const { client, runtime, workers } = await stage(
    { prefetch: false, hooks: { onError: (error) => faults.push(error.message) } },
    { broken: new KafkaError('NO_RESPONSE', 'silent') },
  );
  const all = Array.from({ length: 100 }, () => client.request({ count: 1 }).catch(() => undefined));
  await runtime.pass(9_000);
  expect(faults).toEqual(['silent']);
  workers.broken = new KafkaError('NOT_ENOUGH_REPLICAS', 'weak');
  await runtime.pass(9_000);
  expect(faults).toEqual(['silent', 'weak']);
  workers.broken = new KafkaError('NO_RESPONSE', 'silent again');
  await runtime.pass(1_000);
  expect(faults).toEqual(['silent', 'weak', 'silent again']);
  await client.close();
  await Promise.all(all);
});

describe('a hook that fails', () => {
  const fails: [string, () => void][] = [
    [
      'throws',
      () => {
        throw new Error('no metrics');
      },
    ],
    [
      'rejects',
      async () => {
        throw new Error('no metrics');
      },
    ],
  ];

  test.each(fails)(
    'does not disturb the client when it %s: onError gets HOOK_FAILED, once in 10 s',
    async (_how, hook) => {
      const errors: Error[] = [];
      const { client, runtime } = await stage({
        hooks: { onReply: hook, onBatch: hook, onError: (error) => errors.push(error) },
      });
      await turns();
      expect(errors).toMatchObject([
        { code: 'HOOK_FAILED', message: 'the hook onReply failed: no metrics', cause: { message: 'no metrics' } },
      ]);
      expect([client.next(), client.metrics().errors]).toEqual([0n, { HOOK_FAILED: 2 }]);
      await runtime.pass(10_000);
      await client.request({ count: 1 });
      await turns();
      expect(errors).toHaveLength(2);
    },
  );

  test('may throw anything, even what has no text', async () => {
    const errors: Error[] = [];
    const onReply = () => {
      throw Object.create(null);
    };
    await stage({ hooks: { onReply, onError: (error) => errors.push(error) } });
    await turns();
    expect(errors).toMatchObject([{ message: 'the hook onReply failed: an error without a text' }]);
  });

  test.each(fails)('is a warning of the process, once, when it is onError and %s', async (_how, hook) => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on('warning', note);
    onTestFinished(() => void process.off('warning', note));
    const warned = once(process, 'warning');
    const { runtime, client } = await stage({ hooks: { onError: hook } }, { broken: new Error('no broker') });
    await warned;
    await runtime.pass(30_000);
    await client.close();
    await new Promise(setImmediate); // later warnings would be told by now
    expect(warnings).toMatchObject([
      {
        name: 'IdallocWarning',
        code: 'HOOK_FAILED',
        message: expect.stringMatching(/^the hook onError failed: no metrics\. The client goes on/),
      },
    ]);
  });

  test('is a warning of the process where nobody hears errors', async () => {
    const warned = once(process, 'warning');
    const { client } = await stage({ hooks: { onBatch: fails[0]?.[1] as () => void } });
    const message = expect.stringMatching(/^the hook onBatch failed/);
    expect(await warned).toMatchObject([{ name: 'IdallocWarning', message }]);
    expect(client.next()).toBe(0n);
  });
});

describe('hooks', () => {
  test('may be the methods of a class, which keep their object', async () => {
    class Base {
      readonly batches: number[] = [];
      onBatch({ count }: { count: number }) {
        this.batches.push(count);
      }
    }
    class Hooks extends Base {
      readonly once = 'a field of its own';
    }
    const hooks = new Hooks();
    await stage({ hooks });
    await turns();
    expect(hooks.batches).toEqual([4_000]);
  });

  class Misspelt {
    onEror() {}
  }
  const KNOWN = 'onRequest, onReply, onBatch, onError';
  test.each<[string, unknown, string]>([
    ['a text', 'log', `hooks must be an object with ${KNOWN}`],
    ['a misspelt name', { onEror() {} }, `hooks has onEror, which is no hook: there are ${KNOWN}`],
    ['a misspelt method of a class', new Misspelt(), `hooks has onEror, which is no hook: there are ${KNOWN}`],
    ['a name in other letters', { onerror() {} }, `hooks has onerror, which is no hook: there are ${KNOWN}`],
    ['a text as hook', { onReply: 'log' }, 'hooks.onReply must be a function, not string'],
    ['null as hook', { onBatch: null }, 'hooks.onBatch must be a function, not null'],
  ])('with %s are CONFIG_INVALID', async (_what, hooks, message) => {
    await expect(stage({ hooks: hooks as ClientHooks })).rejects.toMatchObject({ code: 'CONFIG_INVALID', message });
  });

  test('may be left undefined, one by one', async () => {
    const hooks = { onError: undefined } as unknown as ClientHooks;
    expect((await stage({ hooks })).client.next()).toBe(0n);
  });
});

describe('the diagnostics channels', () => {
  const seen: [string, unknown][] = [];
  const listen = (name: string) => {
    const to = channel(`idalloc:client:${name}`);
    const note = (message: unknown) => seen.push([name, message]);
    to.subscribe(note);
    onTestFinished(() => {
      to.unsubscribe(note);
      seen.length = 0;
    });
  };

  test('have the events of the hooks, without any hook', async () => {
    for (const name of ['request', 'reply', 'batch', 'error']) listen(name);
    const { workers, client, runtime } = await stage({ idsPerSecond: 10 });
    await turns();
    expect(seen.splice(0)).toEqual([
      ['request', { correlationId: 'c-1', count: 400, attempt: 1 }],
      ['reply', { correlationId: 'c-1', count: 400, latencyMs: 0, replayed: false }],
      ['batch', { count: 400, buffered: 400, lowWater: 200 }],
    ]);
    workers.broken = new Error('no broker');
    const lost = expect(client.request({ count: 1, timeoutMs: 10 })).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
    });
    await runtime.pass(10);
    await lost;
    expect(seen.filter(([name]) => name === 'error')).toEqual([['error', { error: workers.broken }]]);
  });
});
