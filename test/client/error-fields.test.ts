import { describe, expect, test } from 'vitest';
import { IdallocError } from '../../src/errors.ts';
import { stage, turns } from './stage.ts';

const ABOUT = { correlationId: 'order-4711', count: 3 };

function silent(options = {}) {
  return stage({ prefetch: false, ...options }, { answering: false });
}

describe('the error of a request names its correlation ID and its count', () => {
  test('without a reply, also those that the client made up', async () => {
    const { client, runtime } = await silent();
    const own = expect(client.request({ ...ABOUT, timeoutMs: 50 })).rejects.toMatchObject({
      code: 'NO_REPLY',
      ...ABOUT,
    });
    const made = expect(client.request({ count: 2, timeoutMs: 50 })).rejects.toMatchObject({
      code: 'NO_REPLY',
      correlationId: 'c-1',
      count: 2,
    });
    await runtime.pass(50);
    await Promise.all([own, made]);
  });

  test('when it is refused, with the time of a retry', async () => {
    const { client, workers } = await silent();
    const told = { code: 'QUOTA_EXCEEDED', retryAfterMs: 1_490, ...ABOUT };
    const refused = expect(client.request({ ...ABOUT, timeoutMs: 1_000 })).rejects.toMatchObject(told);
    await turns();
    workers.refuse('order-4711', 'QUOTA_EXCEEDED', 'later', 1_490);
    await refused;
  });

  test('as bytes, if it was given so', async () => {
    const { client, runtime } = await silent();
    const correlationId = Uint8Array.of(0, 255);
    const late = client.request({ count: 1, correlationId, timeoutMs: 50 }).catch((error: unknown) => error);
    await runtime.pass(50);
    expect((await late) as IdallocError).toMatchObject({ code: 'NO_REPLY', correlationId });
    expect(JSON.parse(JSON.stringify(await late))).toMatchObject({ correlationId: '0x00ff' });
  });

  test('when it can not be sent', async () => {
    const { client, runtime, workers } = await silent();
    workers.broken = new Error('no broker');
    const lost = client.request({ ...ABOUT, timeoutMs: 50 });
    const failed = expect(lost).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE', ...ABOUT });
    await runtime.pass(50);
    await failed;
  });

  test('each its own when the client is closed, or too many wait', async () => {
    const { client } = await silent({ maxWaiting: 2 });
    const waiting = ['a', 'b', 'c'].map((correlationId) => client.request({ correlationId, count: 1 }));
    const ends = Promise.allSettled(waiting);
    await turns();
    await client.close();
    expect((await ends).map((end) => end.status === 'rejected' && end.reason)).toMatchObject([
      { code: 'CLIENT_CLOSED', correlationId: 'a' },
      { code: 'CLIENT_CLOSED', correlationId: 'b' },
      { code: 'QUEUE_FULL', correlationId: 'c' },
    ]);
  });

  test('when it is in progress for another count, and when the call is invalid', async () => {
    const { client } = await silent();
    const first = client.request(ABOUT).catch(() => undefined);
    await expect(client.request({ ...ABOUT, count: 4 })).rejects.toMatchObject({
      code: 'CONFLICT',
      ...ABOUT,
      count: 4,
    });
    const invalid = { ...ABOUT, count: 0 };
    await expect(client.request(invalid)).rejects.toMatchObject({ code: 'INVALID_COUNT', ...invalid });
    const none = client.request({ ...ABOUT, correlationId: '' }).catch((error: object) => Object.keys(error));
    expect(await none).toEqual(['code', 'name', 'count']);
    await client.close();
    await first;
  });

  test('for numbers of a sequence likewise', async () => {
    const { client, runtime } = await silent();
    const { correlationId, count } = ABOUT;
    const late = client.sequence('invoices').take(count, { correlationId, timeoutMs: 50 });
    const failed = expect(late).rejects.toMatchObject({ code: 'NO_REPLY', ...ABOUT });
    await runtime.pass(50);
    await failed;
    expect(client.metrics().failures).toEqual({ NO_REPLY: 1 });
  });

  test('but leaves the reason of a signal alone', async () => {
    const { client } = await silent();
    const reason = new IdallocError('STOPPING', 'the service stops');
    const signal = AbortSignal.abort(reason);
    await expect(client.request({ ...ABOUT, signal })).rejects.toBe(reason);
    expect(Object.keys(reason)).toEqual(['code', 'name']);
  });
});

test.each(['QUOTA_EXCEEDED', 'INVALID_REPLY_TOPIC'])(
  'callers that wait together and end with %s have an error each, with the count of the call',
  async (code) => {
    const { client, runtime, workers } = await stage({}, { answering: false });
    const options = { timeoutMs: 500 };
    const calls = [client.takeAsync(5, options), client.takeAsync(7, options), client.ready(9, options)];
    const errors = Promise.all(calls.map((call) => call.catch((error: unknown) => error)));
    await turns();
    for (const { correlationId } of workers.sent.splice(0)) workers.refuse(correlationId, code, 'no', undefined);
    await runtime.pass(500);
    expect(await errors).toMatchObject([5, 7, 9].map((count) => ({ code, serverCode: code, count })));
    await client.close();
    expect(() => client.take(3)).toThrow(expect.objectContaining({ code: 'CLIENT_CLOSED', count: 3 }));
  },
);

test('each error of a wait for IDs has its count', async () => {
  const { client } = await silent({ prefetch: true, maxWaiting: 1 });
  const unbuffered = (await silent()).client;
  const waiting = client.takeAsync(5);
  const calls = [waiting, client.takeAsync(6), client.takeAsync(0), unbuffered.takeAsync(7)];
  const errors = Promise.all(calls.map((call) => call.catch((error: unknown) => error)));
  await turns();
  await client.close();
  expect(await errors).toMatchObject([
    { code: 'CLIENT_CLOSED', count: 5 },
    { code: 'QUEUE_FULL', count: 6 },
    { code: 'INVALID_COUNT', count: 0 },
    { code: 'BUFFER_EMPTY', count: 7 },
  ]);
});

test('callers of one request that is refused have an error each, with the correlation ID as they gave it', async () => {
  const { client, workers } = await silent();
  const given = ['order-4711', new TextEncoder().encode('order-4711')];
  const calls = given.map((correlationId) => client.request({ correlationId, count: 3, timeoutMs: 1_000 }));
  const errors = Promise.all(calls.map((call) => call.catch((error: unknown) => error)));
  await turns();
  workers.refuse('order-4711', 'QUOTA_EXCEEDED', 'later', 1_490);
  const about = { name: 'RequestRefused', serverCode: 'QUOTA_EXCEEDED', retryAfterMs: 1_490 };
  expect(await errors).toMatchObject(given.map((correlationId) => ({ ...about, correlationId })));
});

test('a wait for IDs that ends with a refusal has the correlation ID of the request that was refused', async () => {
  const { client, workers } = await stage({ idsPerSecond: 10 }, { answering: false });
  const refused = expect(client.takeAsync(5)).rejects.toMatchObject({
    code: 'INVALID_REPLY_TOPIC',
    correlationId: expect.stringMatching(/^c-/),
  });
  await turns();
  for (const { correlationId } of workers.sent.splice(0)) workers.refuse(correlationId, 'INVALID_REPLY_TOPIC');
  await refused;
  await client.close();
});
