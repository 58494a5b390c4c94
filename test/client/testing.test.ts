import { afterEach, describe, expect, test, vi } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { RequestRefused } from '../../src/client/refusals.ts';
import { MemoryWorkers } from '../../src/client/testing.ts';
import { expandIds } from '../../src/codec/id-batch.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { decode, firstIdAt } from '../../src/ids/ids.ts';
import { turns } from './stage.ts';

const NOW_MS = Date.parse('2026-06-02T16:05:00Z');
const clients: IdClient[] = [];

async function connected(workers: MemoryWorkers, options: Parameters<MemoryWorkers['connect']>[0] = {}) {
  const client = await workers.connect(options);
  clients.push(client);
  return client;
}

afterEach(async () => {
  for (const client of clients.splice(0)) await client.close();
  vi.useRealTimers();
});

const code = (expected: string) => expect.objectContaining({ code: expected });

describe('workers in memory', () => {
  test('give a client that is an IdClient, with a full buffer, and without Kafka', async () => {
    const client = await connected(new MemoryWorkers());
    expect(client).toBeInstanceOf(IdClient);
    expect(client.buffered).toBeGreaterThan(client.lowWater);
    expect(client.take(100)).toHaveLength(100);
  });

  test('allocate IDs of the given clock, worker and datacenter, from the first of the tick on', async () => {
    const clock = () => NOW_MS;
    const client = await connected(new MemoryWorkers({ clock, datacenterId: 3, workerId: 7 }));
    const first = client.next();
    expect(decode(first)).toEqual({ timestampMs: NOW_MS, datacenterId: 3, workerId: 7, sequence: 0 });
    expect(first).toBeGreaterThan(firstIdAt(new Date(NOW_MS)));
  });

  test('allocate no ID twice and rising ones, also while the clock stands still or steps back', async () => {
    let nowMs = NOW_MS;
    const client = await connected(new MemoryWorkers({ clock: () => nowMs }), { prefetch: false });
    const ids: bigint[] = [];
    for (const stepMs of [0, 0, -60_000, 5, 0]) {
      nowMs += stepMs;
      ids.push(...expandIds((await client.request({ count: 9_000 })).batch));
    }
    expect(ids).toEqual([...new Set(ids)].sort((one, other) => (one < other ? -1 : 1)));
    expect(ids).toHaveLength(45_000);
  });

  test('have any layout, and reject fields outside it', async () => {
    const layout = presetLayout('js-safe');
    const client = await connected(new MemoryWorkers({ layout, workerId: 31 }));
    expect(decode(BigInt(client.nextNumber()), layout).workerId).toBe(31);
    expect(() => new MemoryWorkers({ layout, workerId: 32 })).toThrow(code('CONFIG_INVALID'));
    expect(() => new MemoryWorkers({ datacenterId: 0.5 })).toThrow(code('CONFIG_INVALID'));
  });

  test('answer a correlation ID with its batch again, for every client, and another count with CONFLICT', async () => {
    const workers = new MemoryWorkers();
    const [one, other] = [await connected(workers), await connected(workers)];
    const { batch, replayed } = await one.request({ count: 3, correlationId: 'order-1' });
    const again = await other.request({ count: 3, correlationId: 'order-1' });
    expect([replayed, again.replayed]).toEqual([false, true]);
    expect(again.batch).toEqual(batch);
    await expect(other.request({ count: 4, correlationId: 'order-1' })).rejects.toThrow(code('CONFLICT'));
    const elsewhere = { count: 3, correlationId: 'order-1', replyTopic: 'id.replies.other' };
    await expect(one.request(elsewhere)).rejects.toThrow(
      'it differs in reply_topic (here id.replies.other): use a new correlation ID',
    );
  });

  test('refuse expired requests by their clock, and counts above the layout', async () => {
    const client = await connected(new MemoryWorkers({ clock: () => NOW_MS }), { prefetch: false });
    await expect(client.request({ count: 1, expiresAt: new Date(NOW_MS) })).rejects.toThrow(code('EXPIRED'));
    await client.request({ count: 1, expiresAt: new Date(NOW_MS + 1) });
    await expect(client.request({ count: 100_001 })).rejects.toThrow(code('INVALID_COUNT'));
  });

  test('record the requests that they read', async () => {
    const workers = new MemoryWorkers();
    const client = await connected(workers, { prefetch: false });
    await client.request({ count: 2, correlationId: 'order-2', replyTopic: 'id.replies.other' });
    expect(workers.requests).toEqual([
      { correlationId: Buffer.from('order-2'), count: 2, replyTopic: 'id.replies.other', expiresAt: undefined },
    ]);
  });
});

describe('a fault', () => {
  test('stop: the client goes on with its buffer, and requests are answered after recover()', async () => {
    const workers = new MemoryWorkers();
    const client = await connected(workers, { resendAfterMs: 3_600_000 });
    workers.stop();
    client.take(client.buffered);
    expect(() => client.next()).toThrow(code('BUFFER_EMPTY'));
    const waiting = client.takeAsync(10);
    await turns(); // the request is sent before the workers are back
    workers.recover();
    expect(await waiting).toHaveLength(10);
  });

  test('empty: next() and take() throw BUFFER_EMPTY immediately, and the rate is not taken for higher', async () => {
    const workers = new MemoryWorkers();
    const client = await connected(workers);
    const { buffered } = client;
    workers.empty();
    expect(client.buffered).toBe(0);
    expect(() => client.next()).toThrow(code('BUFFER_EMPTY'));
    expect(() => client.take(5)).toThrow(code('BUFFER_EMPTY'));
    workers.recover();
    await client.ready();
    expect(client.metrics().idsPerSecond).toBe(100);
    expect(client.metrics()).toMatchObject({ taken: 0, dropped: buffered, failures: { BUFFER_EMPTY: 2 } });
  });

  test('refuse: new requests are refused with the code, known ones are not', async () => {
    const workers = new MemoryWorkers();
    const client = await connected(workers, { prefetch: false });
    await client.request({ count: 1, correlationId: 'known' });
    workers.refuse('QUOTA_EXCEEDED', 'too many', { retryAfterMs: 60_000 });
    const refused = await client.request({ count: 1, correlationId: 'new' }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(RequestRefused);
    expect(refused).toMatchObject({ serverCode: 'QUOTA_EXCEEDED', message: expect.stringContaining('too many') });
    expect((await client.request({ count: 1, correlationId: 'known' })).replayed).toBe(true);
    workers.recover();
    await client.request({ count: 1, correlationId: 'new' });
  });

  test('refuse: says for a quota what workers say, with the time to wait, and rejects codes and times that workers do not have', async () => {
    const workers = new MemoryWorkers();
    const client = await connected(workers, { prefetch: false });
    workers.refuse('QUOTA_EXCEEDED', undefined, { retryAfterMs: 60_000 });
    await expect(client.request({ count: 1 })).rejects.toThrow(
      'is used up (1000 IDs a second): send the request again after 60000 ms',
    );
    expect(() => workers.refuse('QUOTA_EXEEDED' as 'QUOTA_EXCEEDED')).toThrow(code('CONFIG_INVALID'));
    for (const retryAfterMs of [-1, 0.5, Number.NaN]) {
      expect(() => workers.refuse('OVERLOADED', 'later', { retryAfterMs })).toThrow(code('CONFIG_INVALID'));
    }
  });

  test('disconnect: requests end with KAFKA_UNAVAILABLE at their timeout', async () => {
    const workers = new MemoryWorkers();
    const client = await connected(workers, { prefetch: false });
    workers.disconnect();
    await expect(client.request({ count: 1, timeoutMs: 20 })).rejects.toThrow(code('KAFKA_UNAVAILABLE'));
  });

  test('slow: replies come after the delay, by fake timers as well', async () => {
    vi.useFakeTimers();
    const workers = new MemoryWorkers();
    const client = await connected(workers, { prefetch: false });
    workers.slow(5_000);
    const slow = client.request({ count: 1, timeoutMs: 4_999 }).catch((error: unknown) => error);
    const patient = client.request({ count: 1, timeoutMs: 60_000 });
    await vi.advanceTimersByTimeAsync(4_999);
    expect(await slow).toEqual(code('NO_REPLY'));
    await vi.advanceTimersByTimeAsync(1);
    expect((await patient).replayed).toBe(false);
    await client.close();
    expect(vi.getTimerCount()).toBe(0);
  });

  test('nothing that takes no time waits for fake timers that hold up queueMicrotask, as those of Jest do', async () => {
    vi.useFakeTimers({
      toFake: ['setTimeout', 'setInterval', 'setImmediate', 'queueMicrotask', 'Date', 'performance'],
    });
    const seen: string[] = [];
    const client = await connected(new MemoryWorkers(), { hooks: { onReply: () => void seen.push('a reply') } });
    expect(client.take(3)).toHaveLength(3);
    expect((await client.request({ count: 1 })).replayed).toBe(false);
    expect(seen).toContain('a reply');
  });

  test('can be there before the client is', async () => {
    const workers = new MemoryWorkers();
    workers.stop();
    const client = await connected(workers);
    expect(() => client.next()).toThrow(code('BUFFER_EMPTY'));
  });
});
