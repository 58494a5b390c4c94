import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { presetLayout } from '../../src/core/presets.ts';
import { examples } from '../support/examples.ts';
import { type FakeWorkers, type Sent, type Staged, stage, turns } from './stage.ts';

/** From now on, the workers answer the requests that pass; all others are unanswered for good. */
function answering(workers: FakeWorkers, passes: (sent: Sent, index: number) => boolean): () => Promise<void> {
  workers.answering = false;
  let seen = 0;
  return async () => {
    await turns();
    for (; seen < workers.sent.length; seen += 1) {
      const sent = workers.sent[seen] as Sent;
      if (passes(sent, seen)) workers.answer(sent.correlationId, sent.count);
    }
    await turns();
  };
}

/** Takes 2,000 IDs a second, one at a time. Returns how many calls had none. */
async function use({ client, runtime }: Staged, seconds: number, answer: () => Promise<void>): Promise<number> {
  let failed = 0;
  for (let tenth = 0; tenth < 10 * seconds; tenth += 1) {
    for (let i = 0; i < 200; i += 1) {
      try {
        client.next();
      } catch {
        failed += 1;
      }
    }
    await runtime.pass(100);
    await answer();
  }
  return failed;
}

const partitionOf = (workers: FakeWorkers, correlationId: string) =>
  workers.partitionOf(Buffer.from(correlationId)) ?? Number.NaN;

/** The time of each request for new IDs, after the first. */
async function newRequests({ runtime, workers }: Staged, seconds: number): Promise<{ atS: number; count: number }[]> {
  const known = new Set(workers.sent.map(({ correlationId }) => correlationId));
  const found: { atS: number; count: number }[] = [];
  for (let second = 1; second <= seconds; second += 1) {
    await runtime.pass(1_000);
    for (const { correlationId, count } of workers.sent) {
      if (!known.has(correlationId)) found.push({ atS: second, count });
      known.add(correlationId);
    }
  }
  return found;
}

describe('what is late is requested again', () => {
  test('in small requests: large ones may wait for minutes, and no call fails', async () => {
    const staged = await stage({ idsPerSecond: 2_000 }, { answering: false });
    const answer = answering(staged.workers, ({ count }) => count <= 5_000);
    await staged.runtime.pass(2_000);
    await answer();
    expect(await use(staged, 120, answer)).toBe(0);
    expect(staged.workers.sent[0]?.count).toBe(80_000);
    expect(staged.client.buffered).toBeGreaterThan(staged.client.lowWater);
  });

  test('elsewhere, so that nobody notices when a third of the partitions is not served', async () => {
    const staged = await stage({ idsPerSecond: 2_000 }, { answering: false, partitions: 12 });
    // A record that is sent again goes to the same partition.
    const served = ({ correlationId }: Sent) => partitionOf(staged.workers, correlationId) % 3 !== 1;
    const answer = answering(staged.workers, served);
    await staged.runtime.pass(2_500);
    await answer();
    expect(await use(staged, 120, answer)).toBe(0);
    expect(staged.client.metrics().pending).toBeLessThanOrEqual(4);
  });

  test('where nothing waits, so that nobody notices when one of two workers is gone: half of 12 partitions', async () => {
    const halves = fc.subarray([...new Array(12).keys()], { minLength: 6, maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(halves, async (gone) => {
        const staged = await stage({ idsPerSecond: 2_000, coverSeconds: 5 }, { partitions: 12 });
        const { workers, runtime } = staged;
        const backMs = runtime.nowMs + 15_000; // the refills at 5 and at 10 s go to any partition
        const isServed = ({ correlationId }: Sent) =>
          runtime.nowMs >= backMs || !gone.includes(partitionOf(workers, correlationId));
        expect(await use(staged, 20, answering(workers, isServed))).toBe(0);
        await staged.client.close();
      }),
      { numRuns: examples(300, 100) },
    );
  });

  test('in equal shares, one in each partition where nothing waits; what one answers is not asked for again', async () => {
    const staged = await stage({ idsPerSecond: 1_000 }, { answering: false, partitions: 6 });
    const { workers, runtime } = staged;
    await runtime.pass(2_500);
    expect(workers.sent.map(({ count }) => count)).toEqual([40_000, 4_000, 4_000, 4_000, 4_000, 4_000]);
    expect(new Set(workers.sent.map(({ correlationId }) => partitionOf(workers, correlationId))).size).toBe(6);
    workers.answer(workers.sent.at(-1)?.correlationId ?? '', 4_000);
    await turns();
    const more = workers.sent.slice(6);
    expect(more.map(({ count }) => count)).toEqual([4_000, 4_000, 4_000, 4_000]);
  });

  test('in requests that are small in the layout of the IDs', async () => {
    const staged = await stage({}, { layout: presetLayout('js-safe') });
    const { client, runtime, workers } = staged;
    workers.answering = false;
    client.take(3_000);
    await runtime.pass(2_500);
    expect(workers.sent.slice(1, 3).map(({ count }) => count)).toEqual([3_000, 160]);
  });

  test('ever more rarely after 10 s without an answer, and once where all partitions have one: an outage does not fill the topic', async () => {
    const staged = await stage({ idsPerSecond: 1_000 }, { answering: false, partitions: 12 });
    const rounds = new Map<number, number>();
    for (const { atS } of await newRequests(staged, 100)) rounds.set(atS, (rounds.get(atS) ?? 0) + 1);
    const further = [6, 8, 10, 12, 16, 24, 40, 70, 100].map((atS) => [atS, 1] as const);
    expect([...rounds]).toEqual([[2, 8], [4, 3], ...further]);
  });

  test('soon again after one was answered', async () => {
    const staged = await stage({ idsPerSecond: 1_000 }, { answering: false });
    const { runtime, workers } = staged;
    await runtime.pass(20_000);
    const [, , third] = [...new Map(workers.sent.map((sent) => [sent.correlationId, sent])).values()];
    workers.answer(third?.correlationId ?? '', 4_000);
    expect((await newRequests(staged, 7)).map(({ atS }) => atS)).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 6]);
  });

  test('until 24 are late: the oldest is not waited for any longer then', async () => {
    const staged = await stage({ idsPerSecond: 1_000 }, { answering: false, partitions: 1_000 });
    const { client, runtime, workers } = staged;
    const [first] = workers.sent;
    await runtime.pass(7_500); // replaced at 2, 4 and 6 s, by eight each time
    expect([client.metrics().pending, first?.isWanted()]).toEqual([25, true]);
    await runtime.pass(1_000);
    expect([client.metrics().pending, first?.isWanted()]).toEqual([32, false]);
    workers.answer(first?.correlationId ?? '', 40_000);
    await turns();
    expect(client.buffered).toBe(0);
    expect(client.metrics().errors).toEqual({});
  });

  test('and a late reply is as good as any other, up to maxBuffered', async () => {
    const staged = await stage({ idsPerSecond: 10, maxBuffered: 500 }, { answering: false });
    const { client, runtime, workers } = staged;
    await runtime.pass(2_500);
    const [late, replacement] = workers.sent;
    workers.answer(replacement?.correlationId ?? '', 400);
    workers.answer(late?.correlationId ?? '', 400);
    await turns();
    expect(client.metrics()).toMatchObject({ buffered: 500, dropped: 300, taken: 0 });
    expect(client.take(200)).toEqual(Array.from({ length: 200 }, (_, i) => 300n + BigInt(i)));
  });
});

describe('the count of a request', () => {
  test('that the workers limit for good is tried ever more rarely, up to once an hour', async () => {
    const { runtime, workers } = await stage({ idsPerSecond: 1_000, coverSeconds: 5 }, { answering: false });
    let refused = 0;
    for (let second = 0; second < 4 * 3_600; second += 1) {
      for (const { correlationId, count } of workers.sent.splice(0)) {
        if (count <= 3_000) workers.answer(correlationId, count);
        else {
          workers.refuse(correlationId, 'INVALID_COUNT');
          refused += second > 60 ? 1 : 0;
        }
      }
      await runtime.pass(1_000);
    }
    expect(refused).toBeGreaterThan(5);
    expect(refused).toBeLessThan(25);
  });

  test('that the workers limited doubles each minute after the limit was lifted', async () => {
    const { client, runtime, workers } = await stage({ idsPerSecond: 1_000, maxAgeMs: 60_000 }, { answering: false });
    let most = 3_000;
    const settle = async () => {
      for (let round = 0; round < 20; round += 1) {
        for (const { correlationId, count } of workers.sent.splice(0)) {
          if (count <= most) workers.answer(correlationId, count);
          else workers.refuse(correlationId, 'INVALID_COUNT');
        }
        await turns();
      }
    };
    await settle();
    most = 100_000;
    const largest: number[] = [];
    for (let minute = 0; minute < 5; minute += 1) {
      let found = 0;
      for (let second = 0; second < 60; second += 1) {
        if (client.buffered > 1_000) client.take(1_000);
        await runtime.pass(1_000);
        found = Math.max(found, ...workers.sent.map(({ count }) => count));
        await settle();
      }
      largest.push(found);
    }
    expect(largest[0]).toBe(2_500);
    expect(largest[1]).toBe(5_000);
    expect(largest.at(-1)).toBeGreaterThan(20_000);
  });
});

describe('a refusal', () => {
  const refuseAll = async (workers: FakeWorkers, code: string, retryAfterMs?: number) => {
    await turns();
    for (const { correlationId } of workers.sent.splice(0)) workers.refuse(correlationId, code, 'no', retryAfterMs);
    await turns();
  };

  test('that a retry may lift ends no wait, and pauses requests for the time that it names, up to 30 s', async () => {
    const { client, runtime, workers } = await stage({}, { answering: false });
    const waiting = Promise.all([
      client.takeAsync(1, { timeoutMs: 60_000 }),
      client.ready(4_000, { timeoutMs: 60_000 }),
    ]);
    for (const [retryAfterMs, pauseMs] of [
      [1_500, 1_500],
      [100, 100],
      [3_600_000, 30_000],
    ] as const) {
      await refuseAll(workers, 'QUOTA_EXCEEDED', retryAfterMs);
      await runtime.pass(pauseMs - 1);
      expect(workers.sent).toEqual([]);
      await runtime.pass(1);
      expect(workers.sent.map(({ count }) => count)).toEqual([1, 4_000]);
    }
    for (const { correlationId, count } of workers.sent.splice(0)) workers.answer(correlationId, count);
    expect((await waiting)[0]).toHaveLength(1);
  });

  test('is the error of a wait that ends before a retry is answered, and no longer after one was', async () => {
    const { client, runtime, workers } = await stage({ timeoutMs: 1_000 }, { answering: false });
    const waits = [client.takeAsync(5), client.ready()].map((wait) => wait.catch((error) => error));
    await refuseAll(workers, 'QUOTA_EXCEEDED', 5_000);
    await runtime.pass(1_000);
    const errors = await Promise.all(waits);
    expect(errors).toMatchObject([1, 2].map(() => ({ code: 'QUOTA_EXCEEDED', retryAfterMs: 5_000, retryable: true })));
    await runtime.pass(4_000);
    for (const { correlationId, count } of workers.sent.splice(0)) workers.answer(correlationId, count);
    await turns();
    const later = client.takeAsync(100_000).catch((error) => error);
    await runtime.pass(1_000);
    expect(await later).toMatchObject({ code: 'NO_REPLY', count: 100_000 });
  });

  test('is not the error of a wait that began long after it', async () => {
    const { client, runtime, workers } = await stage({}, { answering: false });
    await refuseAll(workers, 'QUOTA_EXCEEDED', 5_000);
    const soon = client.takeAsync(100).catch((error) => error.code);
    await runtime.pass(60_000);
    const late = client.takeAsync(100).catch((error) => error.code);
    await runtime.pass(30_000);
    expect([await soon, await late]).toEqual(['QUOTA_EXCEEDED', 'NO_REPLY']);
  });

  test('pauses clients for different times, up to a quarter longer than it says', async () => {
    const { runtime, workers } = await stage({}, { answering: false });
    runtime.random = () => 1;
    await refuseAll(workers, 'QUOTA_EXCEEDED', 2_000);
    await runtime.pass(2_499);
    expect(workers.sent).toEqual([]);
    await runtime.pass(1);
    expect(workers.sent).toHaveLength(1);
  });

  test('without a time is retried after pauses that double, until one is answered', async () => {
    const { client, runtime, workers } = await stage({}, { answering: false });
    for (const pauseMs of [1_000, 2_000, 4_000, 8_000]) {
      await refuseAll(workers, 'OVERLOADED');
      await runtime.pass(pauseMs - 1);
      expect(workers.sent).toEqual([]);
      await runtime.pass(1);
      expect(workers.sent).toHaveLength(1);
    }
    const [sent] = workers.sent.splice(0);
    workers.answer(sent?.correlationId ?? '', 4_000);
    await turns();
    client.take(3_000);
    await refuseAll(workers, 'OVERLOADED');
    await runtime.pass(1_000);
    expect(workers.sent).toHaveLength(1);
  });
});

describe('the age of IDs', () => {
  test('is at most a minute by default, and an idle buffer is renewed before it is too old', async () => {
    const { client, runtime, workers } = await stage();
    let oldest = 0;
    let least = Number.POSITIVE_INFINITY;
    for (let second = 0; second < 600; second += 1) {
      await runtime.pass(1_000);
      oldest = Math.max(oldest, client.metrics().oldestMs ?? 0);
      least = Math.min(least, client.buffered);
      client.next();
    }
    expect(oldest).toBeLessThanOrEqual(60_500);
    expect(oldest).toBeGreaterThan(55_000);
    expect(least).toBeGreaterThan(3_900);
    const asked = workers.sent.reduce((sum, { count }) => sum + count, 0);
    expect(asked).toBeLessThanOrEqual(100 * 600 + 8_000);
  });

  test('leaves coverSeconds of IDs whenever an outage begins', async () => {
    for (let atS = 1; atS <= 60; atS += 1) {
      const { client, runtime, workers } = await stage();
      await runtime.pass(1_000 * atS);
      workers.answering = false;
      for (let second = 0; second < 20; second += 1) {
        client.take(100);
        await runtime.pass(1_000);
      }
      await client.close();
    }
  });

  test('has no limit with Infinity; it has one of three times coverSeconds if that is longer than a minute', async () => {
    const ages: (number | undefined)[] = [];
    for (const options of [{ maxAgeMs: Number.POSITIVE_INFINITY }, { coverSeconds: 100 }]) {
      const { client, runtime, workers } = await stage(options);
      workers.answering = false;
      await runtime.pass(299_000);
      ages.push(client.metrics().oldestMs);
      await runtime.pass(2_000);
      ages.push(client.metrics().oldestMs);
      await client.close();
    }
    expect(ages).toEqual([299_000, 301_000, 299_000, undefined]);
  });
});

describe('IDs that came after maxAgeMs', () => {
  test('are dropped with an error that says why, and fewer are requested at a time', async () => {
    const errors: Error[] = [];
    const hooks = { onError: (error: Error) => void errors.push(error) };
    const { client, runtime, workers } = await stage({ idsPerSecond: 2_000, hooks }, { answering: false });
    await runtime.pass(61_000);
    for (const { correlationId, count, isWanted } of workers.sent.splice(0))
      if (isWanted()) workers.answer(correlationId, count);
    await turns();
    const reason = expect.stringMatching(/took 61000 ms, and its IDs may be older than maxAgeMs \(60000\)/);
    expect(errors).toMatchObject([{ code: 'NO_REPLY', count: 80_000, message: reason }]);
    expect(client.metrics().dropped).toBeGreaterThanOrEqual(80_000);
    for (let second = 0; second < 50; second += 1) {
      for (const { correlationId, count } of workers.sent.splice(0)) {
        expect(count).toBeLessThanOrEqual(4_000);
        workers.answer(correlationId, count);
      }
      await runtime.pass(1_000);
    }
    expect(client.buffered).toBeGreaterThan(client.lowWater);
  });
});

describe('a buffer that nobody uses', () => {
  const asked = (workers: FakeWorkers) => workers.sent.splice(0).reduce((sum, { count }) => sum + count, 0);

  test('is renewed with a tenth of the IDs after some minutes, unless idsPerSecond is given, and full at the next call', async () => {
    for (const [options, least, most] of [
      [{}, 5_000, 7_000],
      [{ idsPerSecond: 100 }, 50_000, 70_000],
    ] as const) {
      const { client, runtime, workers } = await stage(options);
      await runtime.pass(600_000);
      asked(workers);
      await runtime.pass(600_000);
      const inTenMinutes = asked(workers);
      expect([inTenMinutes >= least, inTenMinutes <= most]).toEqual([true, true]);
      client.next();
      await turns();
      expect([client.lowWater, client.buffered > 2_000]).toEqual([2_000, true]);
      await client.close();
    }
  });

  test('has the IDs of a rare large call from the second one on', async () => {
    const { client, runtime } = await stage();
    await runtime.pass(3_600_000);
    expect(() => client.take(1_000)).toThrow(/fewer than 1000 IDs/);
    await turns();
    expect(client.take(1_000)).toHaveLength(1_000);
    await runtime.pass(3_600_000);
    expect(client.lowWater).toBe(1_000);
    expect(client.take(1_000)).toHaveLength(1_000);
  });
});

describe('a single call', () => {
  test('for many IDs leaves the buffer as it was', async () => {
    const { client, runtime, workers } = await stage();
    const ids = await client.takeAsync(100_000);
    expect(new Set(ids).size).toBe(100_000);
    const asked = () => workers.sent.reduce((sum, { count }) => sum + count, 0);
    expect(asked()).toBe(104_000);
    await runtime.pass(10_000);
    expect(asked()).toBe(104_000);
    expect(client.metrics()).toMatchObject({ buffered: 4_000, lowWater: 2_000, taken: 100_000 });
  });
});
