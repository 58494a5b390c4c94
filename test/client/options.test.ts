import { Kafka, logLevel } from 'kafkajs';
import { describe, expect, test } from 'vitest';
import { type Access, accessOf } from '../../src/client/access.ts';
import { IdClient } from '../../src/client/client.ts';
import { connectTimeoutOf, type IdClientOptions } from '../../src/client/options.ts';
import { FakeRuntime } from './stage.ts';

const replyTopic = 'id.replies.a';
const brokers = ['kafka-1:9092', '[::1]:9093'];

/** What the options say now. */
async function access(options: object) {
  connectTimeoutOf({ replyTopic, ...options } as IdClientOptions);
  const { brokers, connection } = accessOf(options as Access, new FakeRuntime());
  return { brokers: await brokers(), config: await connection() };
}

test.each([[undefined], [null], ['localhost:9092']])('connect(%j) reports that it needs options', async (options) => {
  const connecting = IdClient.connect(options as unknown as IdClientOptions);
  await expect(connecting).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringMatching(/needs options.*replyTopic/),
  });
});

test.each<[string, object]>([
  ['no time limit at all', { connectTimeoutMs: 0 }],
  ['a time limit that no timer keeps', { connectTimeoutMs: 3e9 }],
  ['NaN as time limit', { connectTimeoutMs: Number.NaN }],
  ['a text as time limit', { connectTimeoutMs: '5s' }],
  ['a signal that is none', { signal: {} }],
  ['null as signal', { signal: null }],
])('connect() rejects %s: CONFIG_INVALID, which names the option', async (_what, limits) => {
  const connecting = IdClient.connect({ brokers, replyTopic, ...limits });
  const message = expect.stringContaining(Object.keys(limits).join());
  await expect(connecting).rejects.toMatchObject({ code: 'CONFIG_INVALID', message });
});

test('connect() may wait for ever', () => {
  const limit = connectTimeoutOf({ brokers, replyTopic, connectTimeoutMs: Number.POSITIVE_INFINITY });
  expect(limit).toBe(Number.POSITIVE_INFINITY);
});

describe('access to the brokers is configured', () => {
  test('by addresses, with what kafkajs takes for TLS and logins', async () => {
    expect(await access({ brokers })).toEqual({ brokers, config: { clientId: 'idalloc-client' } });
    const sasl = { mechanism: 'plain', username: 'u', password: 'p' };
    const found = await access({ brokers, clientId: 'orders', ssl: true, sasl });
    expect(found).toEqual({ brokers, config: { clientId: 'orders', ssl: true, sasl } });
  });

  test("by kafkajs' own configuration, whatever else is in it", async () => {
    const kafka = { brokers, ssl: { servername: 'x' }, retry: { retries: 2 }, logLevel: logLevel.NOTHING };
    const found = await access({ kafka });
    expect(found).toMatchObject({ brokers, config: { clientId: 'idalloc-client', ssl: { servername: 'x' } } });
  });

  test('by a function that finds the brokers', async () => {
    expect(await access({ kafka: { brokers: async () => brokers, clientId: 'orders' } })).toEqual({
      brokers,
      config: { clientId: 'orders' },
    });
    const found = access({ kafka: { brokers: async () => [] } });
    await expect(found).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/^kafka.brokers/),
    });
  });

  test("not by an instance of kafkajs' Kafka: the error names what to pass instead", async () => {
    await expect(access({ kafka: new Kafka({ brokers }) })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/instance of kafkajs' Kafka: pass its configuration instead/),
    });
  });

  test('rejects a misspelled option, and lists the valid ones', async () => {
    await expect(access({ brokers, idsPerSeconds: 5_000 })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(/^unknown option idsPerSeconds: the options are .*\bidsPerSecond\b/),
    });
  });

  test('brokers may have IPv6 addresses, in brackets', async () => {
    const mixed = ['[2001:db8::1]:9092', 'kafka:9092'];
    expect((await access({ brokers: mixed })).brokers).toEqual(mixed);
    await expect(access({ brokers: ['::1:9092'] })).rejects.toMatchObject({
      message: expect.stringContaining('with an IPv6 address in brackets as in [::1]:9092'),
    });
  });

  test.each<[string, object]>([
    ['no reply topic', { brokers, replyTopic: undefined }],
    ['neither kafka nor brokers', {}],
    ['both', { brokers, kafka: { brokers } }],
    ['kafka as addresses', { kafka: 'localhost:9092' }],
    ['kafka as nothing', { kafka: null }],
    ['kafka without brokers', { kafka: { clientId: 'orders' } }],
    ['brokers as one text', { brokers: 'localhost:9092' }],
    ['no brokers', { brokers: [] }],
    ['a broker without a port', { brokers: ['localhost'] }],
    ['a broker with an invalid port', { brokers: ['localhost:70000'] }],
    ['a broker with an IPv6 address without brackets', { brokers: ['localhost:9092', '::1:9092'] }],
    ['a broker as a list', { brokers: [['localhost:9092']] }],
    ['a broker as a URL', { brokers: ['http://localhost:9092'] }],
  ])('%s is rejected: CONFIG_INVALID', async (_what, options) => {
    await expect(access(options)).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
  });
});
