import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { inSlices } from '../../src/client/waiting.ts';
import { type ErrorCode, IdallocError } from '../../src/errors.ts';
import { examples } from '../support/examples.ts';
import { stage, turns } from './stage.ts';

describe('callers whose time ends', () => {
  const lost = (code: ErrorCode) => ({ broken: new IdallocError(code, 'why it is so') });

  test.each(['KAFKA_UNAVAILABLE', 'TOPIC_INVALID', 'CONFIG_INVALID'] as const)(
    'get the reason why nothing can be sent, such as %s, rather than advice about workers',
    async (code) => {
      const { client, runtime, workers } = await stage({ timeoutMs: 1_000 }, lost(code));
      const ended = expect(client.takeAsync(10)).rejects.toMatchObject({
        code,
        count: 10,
        message: expect.stringMatching(/^fewer than 10 IDs arrived within 1000 ms, because .* sent: .*why it is so$/),
      });
      const neverReady = expect(client.ready()).rejects.toMatchObject({ code });
      await runtime.pass(1_000);
      await Promise.all([ended, neverReady]);
      workers.broken = undefined;
      workers.answering = false;
      await runtime.pass(1_000);
      const later = expect(client.takeAsync(10)).rejects.toMatchObject({ code: 'NO_REPLY' });
      await runtime.pass(1_000);
      await later;
      await client.close();
    },
  );

  test('get the reason why no reply can be read', async () => {
    const { client, runtime, workers } = await stage({ timeoutMs: 1_000 }, { answering: false });
    workers.deaf = 'partition 0 cannot be read now';
    const message = expect.stringMatching(/ms: partition 0 cannot be read now$/);
    const ended = expect(client.takeAsync(10)).rejects.toMatchObject({ code: 'NO_REPLY', message });
    await runtime.pass(1_000);
    await ended;
  });
});

describe('callers that wait', () => {
  test('leave the buffer to those who take from it', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 100 });
    workers.answering = false;
    const large = client.takeAsync(4_001, { timeoutMs: 3_000 }).catch((error) => error.code);
    for (let i = 0; i < 35; i += 1) {
      client.next();
      client.take(10);
      expect(await client.takeAsync(5)).toHaveLength(5);
      await runtime.pass(100);
    }
    expect(await large).toBe('NO_REPLY');
  });

  test('have their IDs requested beside the buffer, together, and in turn', async () => {
    const { client, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2 });
    workers.answering = false;
    const order: string[] = [];
    for (const count of [10, 5, 6]) void client.takeAsync(count).then((ids) => order.push(ids.join()));
    await turns();
    expect(workers.sent.splice(1).map(({ count }) => count)).toEqual([21]);
    expect(client.buffered).toBe(4);
    workers.answer('c-2', 21);
    await turns();
    expect(order).toEqual(['4,5,6,7,8,9,10,11,12,13', '14,15,16,17,18', '19,20,21,22,23,24']);
    expect(client.take(4)).toEqual([0n, 1n, 2n, 3n]);
  });

  test('are served in turn: what is there for the first is kept until it is enough', async () => {
    const { client, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2, maxCount: 8 });
    workers.answering = false;
    const order: number[] = [];
    for (const count of [10, 6]) void client.takeAsync(count).then((ids) => order.push(ids.length));
    await turns();
    workers.answer('c-2', 8);
    await turns();
    expect(order).toEqual([]);
    workers.answer('c-3', 8);
    await turns();
    expect(order).toEqual([10, 6]);
  });

  test('are served from a refill as far as it exceeds the low-water mark, also past one that waits for more', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 5 }, { answering: false });
    const large = client.takeAsync(100).catch((error) => error.code);
    const small = [client.takeAsync(3), client.takeAsync(2), client.takeAsync(1)];
    await turns();
    const refill = workers.sent.find(({ count }) => count === 10);
    workers.answer(refill?.correlationId ?? '', 10);
    expect((await Promise.all(small.slice(0, 2))).flat()).toEqual([0n, 1n, 2n, 3n, 4n]);
    expect(client.take(5)).toEqual([5n, 6n, 7n, 8n, 9n]);
    await runtime.pass(30_000);
    expect(await large).toBe('NO_REPLY');
    await expect(small[2]).rejects.toMatchObject({ code: 'NO_REPLY' });
  });

  test('leave to the buffer what came for callers that are gone', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2 });
    workers.answering = false;
    const gone = client.takeAsync(50, { timeoutMs: 500 }).catch((error) => error.code);
    await runtime.pass(500);
    expect(await gone).toBe('NO_REPLY');
    workers.answer('c-2', 50);
    await turns();
    expect(client.take(54)).toHaveLength(54);
    expect(client.metrics().taken).toBe(54);
  });

  test('leave what came for them, when they are gone, to those who wait for the buffer', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2, maxCount: 30 });
    workers.answering = false;
    const gone = client.takeAsync(50, { timeoutMs: 500 }).catch((error) => error.code);
    const events: string[] = [];
    const ready = client.ready(34).then(() => events.push('ready'));
    await turns();
    workers.answer('c-2', 30);
    await runtime.pass(499);
    expect(events).toEqual([]);
    await runtime.pass(1);
    expect([await gone, ...events, client.buffered]).toEqual(['NO_REPLY', 'ready', 34]);
    await ready;
  });

  test('have few IDs that are late requested again, and many not', async () => {
    for (const [count, requests] of [
      [1_000, [1_000, 1_000, 1_000]], // at 2 and at 4 s
      [100_000, [100_000]],
    ] as const) {
      const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2, resendAfterMs: 60_000 });
      workers.answering = false;
      const taken = client.takeAsync(count);
      await runtime.pass(5_000);
      expect(workers.sent.slice(1).map((sent) => sent.count)).toEqual(requests);
      workers.answer(workers.sent.at(-1)?.correlationId ?? '', count);
      expect(await taken).toHaveLength(count);
      await client.close();
    }
  });

  test('have many IDs requested anew when they came after those whose request is late: its partition may not be served', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1, coverSeconds: 2 });
    workers.answering = false;
    const first = client.takeAsync(10_000).catch((error) => error.code);
    await turns();
    const unserved = workers.sent.at(-1)?.correlationId;
    await runtime.pass(30_000);
    expect(await first).toBe('NO_REPLY');
    const second = client.takeAsync(10_000).catch((error) => error.code);
    for (let i = 0; i < 3; i += 1) {
      await runtime.pass(500);
      const wanted = workers.sent.filter(({ correlationId, isWanted }) => correlationId !== unserved && isWanted());
      for (const { correlationId, count } of wanted) workers.answer(correlationId, count);
    }
    await runtime.pass(30_000);
    expect(await second).toHaveLength(10_000);
  });

  test('go on waiting for as long as the process did not run, for its reply may have come', async () => {
    const { client, runtime, workers } = await stage({ prefetch: false }, { answering: false });
    const saved = client.request({ count: 1, correlationId: 'saved', timeoutMs: 1_000 });
    const lost = client.request({ count: 1, correlationId: 'lost', timeoutMs: 1_000 }).catch((error) => error.code);
    let isOver = false;
    void lost.then(() => {
      isOver = true;
    });
    runtime.nowMs += 1_500;
    await runtime.pass(400);
    workers.answer('saved', 1);
    expect((await saved).batch.ranges).toEqual([{ first: 0n, count: 1 }]);
    expect(isOver).toBe(false);
    await runtime.pass(100);
    expect(await lost).toBe('NO_REPLY');
    const later = client.request({ count: 1, timeoutMs: 1_000 }).catch((error) => error.code);
    runtime.nowMs += 3_600_000;
    await runtime.pass(2_000);
    expect(await later).toBe('NO_REPLY');
    expect(runtime.pending).toBe(0);
  });

  test('that time out together, more than end in 20 ms, let other work go between', async () => {
    const { client, runtime } = await stage({}, { answering: false });
    const settled: number[] = [];
    for (let i = 0; i < 10; i += 1) {
      // Each end takes 15 ms of the event loop.
      void client.takeAsync(1, { timeoutMs: 1_000 }).catch(() => {
        settled.push(runtime.nowMs);
        runtime.nowMs += 15;
      });
    }
    await runtime.pass(3_000);
    expect(settled).toHaveLength(10);
    const pauses = settled.slice(1).filter((atMs, i) => atMs - (settled[i] ?? 0) >= 50);
    expect(pauses.length).toBeGreaterThanOrEqual(4);
  });
});

test('many callers are rejected in slices of 5 ms, with turns of the event loop between', async () => {
  let nowMs = 0;
  const turnsAt: number[] = [];
  const runtime = { monotonicMs: () => nowMs, nextTurn: async () => void turnsAt.push(nowMs) };
  await inSlices([...new Array(10).keys()], runtime, () => {
    nowMs += 2;
  });
  expect([nowMs, turnsAt]).toEqual([20, [6, 12, 18]]);
});

const aStep = fc.oneof(
  fc.record({
    do: fc.constant('wait' as const),
    count: fc.integer({ min: 1, max: 30 }),
    timeoutMs: fc.constantFrom(50, 5_000),
  }),
  fc.record({ do: fc.constant('next' as const), times: fc.integer({ min: 1, max: 8 }) }),
  fc.record({ do: fc.constant('answer' as const), which: fc.nat({ max: 20 }) }),
  fc.record({ do: fc.constant('pass' as const), ms: fc.constantFrom(10, 100, 2_500) }),
);

test('no ID is given twice or lost, and whoever waits longer for no more IDs is served first', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(aStep, { maxLength: 40, size: 'max' }), async (steps) => {
      const options = { idsPerSecond: 2, coverSeconds: 5, maxAgeMs: Number.POSITIVE_INFINITY };
      const { client, runtime, workers } = await stage(options, { answering: false });
      const given: bigint[] = [];
      const answered = new Set<string>();
      const waiting: { readonly count: number }[] = [];
      const overtaken: unknown[] = [];
      for (const step of steps) {
        if (step.do === 'next') {
          for (let i = 0; i < step.times && client.buffered > 0; i += 1) given.push(client.next());
        } else if (step.do === 'answer') {
          const sent = workers.sent[step.which % workers.sent.length];
          if (sent?.isWanted()) {
            answered.add(`${sent.correlationId} ${sent.count}`);
            workers.answer(sent.correlationId, sent.count);
          }
        } else if (step.do === 'pass') await runtime.pass(step.ms);
        else {
          const waiter = { count: step.count };
          const isHere = client.buffered >= step.count;
          waiting.push(waiter);
          const leave = () => waiting.splice(waiting.indexOf(waiter), 1);
          client.takeAsync(step.count, { timeoutMs: step.timeoutMs }).then((ids) => {
            const before = waiting.slice(0, waiting.indexOf(waiter));
            if (!isHere) overtaken.push(...before.filter(({ count }) => count <= step.count));
            leave();
            given.push(...ids);
          }, leave);
        }
        await turns();
      }
      await runtime.pass(10_000); // everybody is gone, and what came for them is in the buffer
      expect([waiting, overtaken]).toEqual([[], []]);
      const asked = [...answered].reduce((sum, text) => sum + Number(text.split(' ')[1]), 0);
      expect(new Set(given).size).toBe(given.length);
      const { buffered, taken, dropped } = client.metrics();
      expect([taken, dropped]).toEqual([given.length, 0]);
      expect(buffered + given.length).toBe(asked);
      await client.close();
    }),
    { numRuns: examples(300) },
  );
});
