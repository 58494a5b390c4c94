import { describe, expect, test } from 'vitest';
import { decodeIdRequest } from '../../src/codec/id-request.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import { stage, turns } from './stage.ts';

const INVALID = expect.objectContaining({ code: 'INVALID_COUNT' });

describe('the buffer', () => {
  test('is filled to twice the low-water mark at the start, and refilled at the mark', async () => {
    const { client, runtime, workers } = await stage();
    expect(workers.sent.map(({ count }) => count)).toEqual([4_000]);
    expect([client.buffered, client.lowWater]).toEqual([4_000, 2_000]);
    for (let second = 0; second < 19; second += 1) {
      await runtime.pass(1_000);
      client.take(100);
    }
    await turns();
    expect(workers.sent).toHaveLength(1);
    await runtime.pass(1_000);
    client.take(100);
    await turns();
    expect(workers.sent.map(({ count }) => count)).toEqual([4_000, 2_000]);
    expect(client.buffered).toBe(4_000);
  });

  test('grows with the rate, in requests of at most maxCount', async () => {
    const { client, runtime, workers } = await stage({ maxCount: 10_000 });
    for (let second = 0; second < 30; second += 1) {
      for (let used = 0; used < 2_000 && client.buffered >= 100; used += 100) client.take(100);
      await runtime.pass(1_000);
    }
    expect(client.lowWater).toBeGreaterThanOrEqual(40_000);
    expect(client.buffered).toBeGreaterThanOrEqual(client.lowWater);
    expect(Math.max(...workers.sent.map(({ count }) => count))).toBe(10_000);
  });

  test('covers an outage of coverSeconds at the measured rate', async () => {
    const { client, runtime, workers } = await stage({ coverSeconds: 15, idsPerSecond: 1_000 });
    for (let tenth = 0; tenth < 100; tenth += 1) {
      client.take(100);
      await runtime.pass(100);
    }
    workers.answering = false;
    for (let tenth = 0; tenth < 150; tenth += 1) {
      client.take(100);
      await runtime.pass(100);
    }
    workers.answering = true;
    await runtime.pass(60_000);
    expect(client.buffered).toBeGreaterThan(client.lowWater);
  });

  test('reduces the count when the workers allow less', async () => {
    const { client, workers } = await stage({ idsPerSecond: 1_000 }, { answering: false });
    let limit = 0;
    for (let round = 0; round < 20; round += 1) {
      for (const { correlationId, count } of workers.sent.splice(0)) {
        limit = Math.max(limit, count <= 3_000 ? count : 0);
        if (count <= 3_000) workers.answer(correlationId, count);
        else workers.refuse(correlationId, 'INVALID_COUNT');
      }
      await turns();
    }
    expect(limit).toBe(2_500);
    expect(client.buffered).toBeGreaterThan(20_000);
  });

  test('when empty, next() and take() throw BUFFER_EMPTY, and take() takes nothing', async () => {
    const { client, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2 });
    workers.answering = false;
    expect(client.buffered).toBe(4);
    expect(() => client.take(5)).toThrow(expect.objectContaining({ code: 'BUFFER_EMPTY', retryable: true }));
    expect(client.take(4)).toEqual([0n, 1n, 2n, 3n]);
    expect(() => client.next()).toThrow(expect.objectContaining({ code: 'BUFFER_EMPTY' }));
  });

  test('with prefetch: false requests nothing on its own', async () => {
    const { client, runtime, workers } = await stage({ prefetch: false });
    await runtime.pass(10_000);
    expect(workers.sent).toEqual([]);
    for (const use of [() => client.next(), () => client.take(1)]) expect(use).toThrow(/prefetch: false/);
    await expect(client.takeAsync(1)).rejects.toThrow(/prefetch: false/);
  });

  test('a rejection reaches waiting callers with its code, and is retried later', async () => {
    const { client, runtime, workers } = await stage({}, { answering: false });
    const waiting = [client.takeAsync(1), client.ready()];
    const refusals = waiting.map((wait) => expect(wait).rejects.toMatchObject({ code: 'INVALID_REPLY_TOPIC' }));
    await turns();
    for (const { correlationId } of workers.sent.splice(0)) workers.refuse(correlationId, 'INVALID_REPLY_TOPIC');
    await Promise.all(refusals);
    expect(workers.sent).toEqual([]);
    await runtime.pass(1_000);
    expect(workers.sent).toHaveLength(1);
  });
});

describe('waiting for IDs', () => {
  test('ends with NO_REPLY at its timeout, without blocking later callers', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2 });
    workers.answering = false;
    const late = expect(client.takeAsync(10, { timeoutMs: 500 })).rejects.toMatchObject({ code: 'NO_REPLY' });
    const behind = client.takeAsync(2);
    await runtime.pass(500);
    await late;
    expect(await behind).toEqual([0n, 1n]);
  });

  test('says at its timeout whether IDs arrived more slowly than they are requested, or none did', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2 });
    workers.answering = false;
    const text = (message: string) => ({ message: expect.stringContaining(message) });
    const none = expect(client.takeAsync(10, { timeoutMs: 500 })).rejects.toMatchObject(text('a worker is running'));
    await runtime.pass(500);
    await none;
    const slow = expect(client.takeAsync(100, { timeoutMs: 500 })).rejects.toMatchObject(text('more slowly'));
    await runtime.pass(100);
    const asked = workers.sent[1] as (typeof workers.sent)[number];
    workers.answer(asked.correlationId, asked.count);
    await runtime.pass(400);
    await slow;
  });

  test('ends with the reason of its signal', async () => {
    const { client } = await stage({}, { answering: false });
    const abort = new AbortController();
    const reason = new Error('gone');
    const ends = expect(client.takeAsync(1, { signal: abort.signal })).rejects.toBe(reason);
    abort.abort(reason);
    await ends;
    await expect(client.takeAsync(1, { signal: abort.signal })).rejects.toBe(reason);
  });

  test('of request() is bounded also for calls that share a request; the buffer is filled nevertheless', async () => {
    const { client, runtime, workers } = await stage({ maxWaiting: 2 }, { answering: false });
    const [one, two, three] = [1, 2, 3].map(() => client.request({ count: 1, correlationId: 'same' }));
    await expect(three).rejects.toMatchObject({ code: 'QUEUE_FULL', correlationId: 'same' });
    await runtime.pass(2_500);
    expect(workers.sent.filter(({ count }) => count === 4_000)).toHaveLength(2);
    workers.answer('same', 1);
    expect((await one)?.batch).toEqual((await two)?.batch);
    const next = client.request({ count: 1, correlationId: 'next' });
    await turns();
    workers.answer('next', 1);
    expect((await next).replayed).toBe(false);
  });

  test('is bounded: one caller more gets QUEUE_FULL', async () => {
    const { client } = await stage({ maxWaiting: 2 }, { answering: false });
    const all = [client.takeAsync(1), client.takeAsync(1), client.takeAsync(1)];
    const [one, two, three] = all.map((wait) => wait.catch((error) => error.code));
    expect(await three).toBe('QUEUE_FULL');
    await client.close();
    expect(await Promise.all([one, two])).toEqual(['CLIENT_CLOSED', 'CLIENT_CLOSED']);
  });

  test('serves thousands of waiting callers', async () => {
    const { client, workers } = await stage({}, { answering: false });
    const all = Promise.all(Array.from({ length: 10_000 }, () => client.takeAsync(1)));
    await turns();
    workers.answering = true;
    for (let round = 0; round < 3; round += 1) {
      for (const { correlationId, count } of workers.sent.splice(0)) workers.answer(correlationId, count);
      await turns();
    }
    expect(new Set((await all).flat()).size).toBe(10_000);
  });

  test('ready() waits until the buffer holds the given count', async () => {
    const { client, workers } = await stage({}, { answering: false });
    let isReady = false;
    const ready = client.ready(10_000).then(() => {
      isReady = true;
    });
    await turns();
    for (const { correlationId, count } of workers.sent.splice(0, 1)) workers.answer(correlationId, count);
    await turns();
    expect(isReady).toBe(false);
    for (const { correlationId, count } of workers.sent.splice(0)) workers.answer(correlationId, count);
    await ready;
    expect(client.buffered).toBeGreaterThanOrEqual(10_000);
  });

  test.each([0, -1, 1.5, Number.NaN, 2_500_001])('%d is rejected as a count', async (count) => {
    const { client } = await stage();
    expect(() => client.take(count)).toThrow(INVALID);
    await expect(client.takeAsync(count)).rejects.toThrow(INVALID);
  });
});

test.each([0, Number.NaN, 3e9, '500', null])(
  'a time limit of %j is no limit, also when the buffer has enough',
  async (limit) => {
    const { client } = await stage();
    const wrong = expect.objectContaining({ code: 'MALFORMED_REQUEST', message: expect.stringContaining('timeoutMs') });
    const timeoutMs = limit as number;
    await expect(client.takeAsync(1, { timeoutMs })).rejects.toThrow(wrong);
    await expect(client.ready(1, { timeoutMs })).rejects.toThrow(wrong);
    await client.close();
  },
);

describe('a request', () => {
  const quiet = { prefetch: false };

  test('with the same correlation ID twice concurrently is sent once, and both callers get its batch', async () => {
    const { client, workers } = await stage(quiet);
    const both = await Promise.all([1, 2].map(() => client.request({ count: 3, correlationId: 'x' })));
    expect(workers.sent).toHaveLength(1);
    expect(both[0]?.batch).toEqual(both[1]?.batch);
  });

  test('carries its expiry to the workers, and none by default', async () => {
    const { client, workers } = await stage(quiet);
    await client.request({ count: 3, correlationId: 'x', expiresAt: new Date(1_780_416_300_000) });
    await client.request({ count: 3, correlationId: 'y' });
    const expiries = workers.sent.map(({ value }) => decodeIdRequest(value).expiresAtMs);
    expect(expiries).toEqual([1_780_416_300_000, undefined]);
  });

  test('shares the value of the one before it that asks for the same, and of no other', async () => {
    const { client, workers } = await stage(quiet);
    const expiresAt = new Date(1_780_416_300_000);
    const others = [{ count: 4 }, { count: 3, expiresAt }, { count: 3, encoding: 'IDS' }] as const;
    for (const [i, other] of others.entries()) {
      await client.request({ count: 3, correlationId: `one-${i}` });
      await client.request({ count: 3, correlationId: `same-${i}` });
      await client.request({ ...other, correlationId: `other-${i}` });
    }
    const asked = workers.sent.map(({ value }) => decodeIdRequest(value));
    expect(asked.filter(({ correlationId }) => correlationId !== undefined)).toEqual([]);
    for (let i = 0; i < workers.sent.length; i += 3) {
      const [one, same, other] = workers.sent.slice(i, i + 3);
      expect(one?.value).toBe(same?.value);
      expect(other?.value).not.toEqual(same?.value);
    }
  });

  test.each([new Date(Number.NaN), new Date(-1), 1_780_416_300_000])(
    'is not sent with the expiry %s',
    async (wrong) => {
      const { client, workers } = await stage(quiet);
      const refused = client.request({ count: 3, expiresAt: wrong as Date });
      const message = expect.stringMatching(/^expiresAt must be a Date/);
      await expect(refused).rejects.toMatchObject({ code: 'MALFORMED_REQUEST', message });
      expect(workers.sent).toEqual([]);
    },
  );

  test('with the correlation ID of a different request in progress is a CONFLICT', async () => {
    const { client } = await stage(quiet);
    const first = client.request({ count: 3, correlationId: 'x' });
    await expect(client.request({ count: 4, correlationId: 'x' })).rejects.toMatchObject({ code: 'CONFLICT' });
    expect((await first).batch.ranges).toEqual([{ first: 0n, count: 3 }]);
  });

  test('without a reply is resent byte for byte, and ends with NO_REPLY at its timeout', async () => {
    const { client, runtime, workers } = await stage(quiet, { answering: false });
    const ends = expect(client.request({ count: 3, timeoutMs: 10_000 })).rejects.toMatchObject({ code: 'NO_REPLY' });
    await runtime.pass(60_000);
    await ends;
    expect(workers.sent).toHaveLength(3); // after 0, 3 and 9 s
    expect(new Set(workers.sent.map(({ value }) => value.toString('hex'))).size).toBe(1);
    expect(runtime.pending).toBe(0);
  });

  test('that is not answered while others are says at its timeout that it waits its turn', async () => {
    const { client, runtime, workers } = await stage(quiet, { answering: false });
    const large = client.request({ count: 100_000, correlationId: 'large', timeoutMs: 10_000 });
    const ends = expect(large).rejects.toMatchObject({
      code: 'NO_REPLY',
      message: expect.stringMatching(/answer other requests.*100000 IDs waits.*longer timeoutMs/),
    });
    const other = client.request({ count: 1, correlationId: 'other' });
    await runtime.pass(5_000);
    workers.answer('other', 1);
    await runtime.pass(5_000);
    await Promise.all([ends, other]);
    const alone = client.request({ count: 100_000, timeoutMs: 10_000 });
    const silence = expect(alone).rejects.toMatchObject({ message: expect.stringContaining('a worker is running') });
    await runtime.pass(10_000);
    await silence;
  });

  test('is resent less often while others are answered than while nothing is', async () => {
    const { client, runtime, workers } = await stage({ ...quiet, timeoutMs: 400_000 }, { answering: false });
    const waits = client.request({ count: 100_000, correlationId: 'large' });
    const sends = async (forMs: number, isBusy: boolean) => {
      const before = workers.sent.length;
      for (let second = 0; second < forMs / 1_000; second += 1) {
        await runtime.pass(1_000);
        if (isBusy) workers.answer('of another client', 1);
      }
      return workers.sent.length - before;
    };
    expect(await sends(189_000, true)).toBe(6); // after 3, 9, 21, 45, 93 and 189 s
    expect(await sends(120_000, false)).toBe(1); // 309 s
    expect(await sends(90_000, false)).toBe(3); // 339, 369, 399 s
    workers.answer('large', 100_000);
    await waits;
  });

  test('is resent after a pause longer than the longest that doubling leads to, if that is what was set', async () => {
    const { client, runtime, workers } = await stage({ ...quiet, resendAfterMs: 300_000 }, { answering: false });
    const ends = expect(client.request({ count: 3, timeoutMs: 700_000 })).rejects.toMatchObject({ code: 'NO_REPLY' });
    await runtime.pass(299_000);
    expect(workers.sent).toHaveLength(1);
    await runtime.pass(401_000);
    expect(workers.sent).toHaveLength(3);
    await ends;
  });

  test('says in each resend when it was first sent, and nothing in its first record', async () => {
    const { client, runtime, workers } = await stage(quiet, { answering: false });
    const firstMs = Math.floor(runtime.wallMs());
    const reply = client.request({ count: 1, correlationId: 'x' });
    await runtime.pass(10_000);
    expect(workers.sent.map(({ firstSentMs }) => firstSentMs)).toEqual([undefined, firstMs, firstMs]);
    workers.answer('x', 1);
    await reply;
  });

  test('is resent until its last caller is gone', async () => {
    const { client, runtime, workers } = await stage(quiet, { answering: false });
    const ends = [100, 200].map((timeoutMs) =>
      expect(client.request({ count: 3, correlationId: 'x', timeoutMs })).rejects.toMatchObject({ code: 'NO_REPLY' }),
    );
    await runtime.pass(150);
    const [sent] = workers.sent;
    expect(sent?.isWanted()).toBe(true);
    await runtime.pass(50);
    await Promise.all(ends);
    expect(sent?.isWanted()).toBe(false);
  });

  test('that cannot be sent is retried, and fails with the cause at its timeout', async () => {
    const { client, runtime, workers } = await stage(quiet, { broken: new Error('no broker') });
    const lost = expect(client.request({ count: 1, timeoutMs: 2_000 })).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: expect.stringContaining('no broker'),
    });
    await runtime.pass(2_000);
    await lost;
    const found = client.request({ count: 1 });
    await runtime.pass(400);
    workers.broken = undefined;
    await runtime.pass(200);
    expect((await found).batch.ranges).toEqual([{ first: 0n, count: 1 }]);
  });

  test("rejected by the workers fails with the workers' code, known or not", async () => {
    const { client, workers } = await stage(quiet, { answering: false });
    for (const [serverCode, code] of [
      ['FORGOTTEN', 'FORGOTTEN'],
      ['NEWER_THAN_US', 'REFUSED'],
      ['constructor', 'REFUSED'],
    ] as const) {
      const refused = expect(client.request({ count: 1, correlationId: 'x' })).rejects.toMatchObject({
        code,
        serverCode,
      });
      await turns();
      workers.refuse('x', serverCode);
      await refused;
    }
  });

  test('waits on when an earlier record under its correlation ID is refused again by a replay', async () => {
    const { client, workers } = await stage(quiet, { answering: false });
    const waiting = client.request({ count: 1, correlationId: 'x' });
    await turns();
    workers.refuse('x', 'ANSWERED_BEFORE');
    workers.answer('x', 1);
    expect((await waiting).batch.ranges).toEqual([{ first: 0n, count: 1 }]);
  });

  test.each([3e9, Number.NaN, '500', -5, 0, null, 86_400_001])('is not sent with timeoutMs %s', async (timeoutMs) => {
    const { client, runtime, workers } = await stage(quiet);
    const refused = client.request({ count: 1, timeoutMs: timeoutMs as number });
    await expect(refused).rejects.toMatchObject({
      code: 'MALFORMED_REQUEST',
      message: `timeoutMs must be a number from 1 to 86400000, or Infinity, not ${timeoutMs}`,
    });
    expect([workers.sent, runtime.pending]).toEqual([[], 0]);
  });

  test('waits without end with timeoutMs Infinity', async () => {
    const { client, runtime, workers } = await stage(quiet, { answering: false });
    const reply = client.request({ count: 1, correlationId: 'x', timeoutMs: Number.POSITIVE_INFINITY });
    await runtime.pass(10_000_000);
    workers.answer('x', 1);
    await reply;
  });

  test.each([
    [{ count: 0 }, 'INVALID_COUNT'],
    [{ count: 1.5 }, 'INVALID_COUNT'],
    [{ count: 1, correlationId: '' }, 'INVALID_CORRELATION_ID'],
    [{ count: 1, correlationId: 'half a pair: \ud800' }, 'INVALID_CORRELATION_ID'],
    [{ count: 1, correlationId: 5 as unknown as string }, 'INVALID_CORRELATION_ID'],
    [{ count: 1, correlationId: new Uint8Array(257) }, 'INVALID_CORRELATION_ID'],
    [{ count: 1, replyTopic: 'a b' }, 'INVALID_REPLY_TOPIC'],
  ])('%o is not sent: %s', async (options, code) => {
    const { client, workers } = await stage(quiet);
    await expect(client.request(options)).rejects.toMatchObject({ code });
    expect(workers.sent).toEqual([]);
  });
});

test('an invalid signal is rejected before anything starts', async () => {
  const { client, workers, runtime } = await stage({ prefetch: false });
  await expect(client.request({ count: 1, signal: {} as AbortSignal })).rejects.toThrow(TypeError);
  expect({ sent: workers.sent, timers: runtime.pending }).toEqual({ sent: [], timers: 0 });
});

describe('the end', () => {
  test('settles all waiting callers, closes once, and stops all work', async () => {
    const { client, runtime, workers } = await stage({}, { answering: false });
    const waiting = [client.takeAsync(1), client.ready(), client.request({ count: 1 })];
    const ends = waiting.map((wait) => expect(wait).rejects.toMatchObject({ code: 'CLIENT_CLOSED' }));
    await turns();
    await Promise.all([client.close(), client.close()]);
    await Promise.all(ends);
    expect([workers.closed, runtime.pending]).toEqual([1, 0]);
    const closed = expect.objectContaining({ code: 'CLIENT_CLOSED' });
    expect(() => client.next()).toThrow(closed);
    expect(() => client.take(1)).toThrow(closed);
    for (const wait of [client.takeAsync(1), client.ready(), client.request({ count: 1 })]) {
      await expect(wait).rejects.toThrow(closed);
    }
  });

  test('begins with close(): an error after that is not reported', async () => {
    const faults: string[] = [];
    const { client, workers } = await stage({ hooks: { onError: (error) => faults.push(error.message) } });
    workers.fail(new KafkaError('UNREACHABLE', 'before'));
    await turns();
    const closing = client.close();
    workers.fail(new KafkaError('CLOSED', 'after'));
    await closing;
    workers.fail(new KafkaError('NO_RESPONSE', 'long after'));
    await turns();
    expect(faults).toEqual(['before']);
  });

  test('makes the IDs in the buffer unavailable', async () => {
    const { client } = await stage();
    await client.close();
    expect(() => client.next()).toThrow(expect.objectContaining({ code: 'CLIENT_CLOSED' }));
    await expect(client.ready(1)).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
  });
});

test('all invalid options are reported together', async () => {
  await expect(stage({ coverSeconds: 0, maxCount: 1.5, maxAgeMs: 1, maxWaiting: Number.NaN })).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringMatching(/coverSeconds.*maxCount.*maxWaiting/),
  });
  await expect(stage({ maxAgeMs: 39_999 })).rejects.toThrow(/twice coverSeconds/);
  await expect(stage({ idsPerSecond: 1_000_000 })).rejects.toThrow(/maxBuffered must be at least .*, not 5000000/);
});
