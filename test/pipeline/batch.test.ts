import { describe, expect, it } from 'vitest';
import { partMaxIds } from '../../src/core/layout.ts';
import { customLayout } from '../../src/core/layout-choice.ts';
import { PRESETS, type PresetName, presetLayout } from '../../src/core/presets.ts';
import { PRICES_US } from '../../src/pipeline/accounts.ts';
import { processBatch } from '../../src/pipeline/batch.ts';
import { DeferredQueue } from '../../src/pipeline/deferred.ts';
import type { RequestReader } from '../../src/pipeline/intake.ts';
import { PART_MAX_REQUESTS } from '../../src/pipeline/parts.ts';
import type { RequestRecord } from '../../src/pipeline/ports.ts';
import { RecordTurns } from '../../src/pipeline/record-turns.ts';
import { linkOf, MemoryLedger } from '../support/memory-ledger.ts';
import { inOneBatch, layout, record, request } from '../support/memory-records.ts';
import { accountsWith, DEAD_LETTERS, gist, MAX_COUNT, MemoryWorker, TIMELESS } from '../support/memory-worker.ts';

const topicOf = () => new MemoryLedger(1, () => 1_700_000_000_000);
const world = () => {
  const topic = topicOf();
  return { topic, worker: new MemoryWorker({ topic }) };
};

const range = (from: number, until: number) => Array.from({ length: until - from }, (_, i) => from + i);

/** Waits until everything that can continue has done so. */
async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

describe('deciding before replying', () => {
  it('publishes nothing before its entry is settled, and resolves nothing before everything is acknowledged', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a'), record(1, Buffer.from('junk')), request(2, 'b')]);
    expect(worker.events).toEqual([
      'append 2',
      'appended at 0',
      'sent id.replies.orders a',
      'sent id.replies.orders b',
      'acknowledged id.replies.orders a',
      'acknowledged id.replies.orders b',
      `sent ${DEAD_LETTERS} k`,
      `acknowledged ${DEAD_LETTERS} k`,
      'resolved 2',
    ]);
  });

  it('measures a few steps of a part, and none of a single request', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a'), record(1, Buffer.from('junk')), request(2, 'b')]);
    expect(worker.steps).toEqual(['settle', 'append', 'reply', 'dead_letter']);
  });

  it('publishes nothing while the append is unanswered', async () => {
    const answer = Promise.withResolvers<void>();
    const link = async () => ({ fate: 'pass' as const, back: answer.promise });
    const worker = new MemoryWorker({ topic: topicOf(), link });
    const served = worker.serve([request(0, 'a')]);
    await settle();
    worker.catchUp();
    await settle();
    expect(worker.events).toEqual(['append 1']);
    answer.resolve();
    await served;
    expect(worker.events).toContain('resolved 0');
  });

  it('resolves nothing while a reply is not acknowledged', async () => {
    const { worker } = world();
    const acknowledged = Promise.withResolvers<void>();
    worker.publisher.hold = () => acknowledged.promise;
    const served = worker.serve([request(0, 'a')]);
    await settle();
    expect(worker.events.at(-1)).toBe('sent id.replies.orders a');
    acknowledged.resolve();
    await served;
    expect(worker.events.slice(-2)).toEqual(['acknowledged id.replies.orders a', 'resolved 0']);
  });

  it('resolves nothing when the replies were not acknowledged, and sends the same ones again', async () => {
    const { worker } = world();
    worker.publisher.hold = async () => {
      throw new Error('the broker went away');
    };
    await expect(worker.serve([request(0, 'a')])).rejects.toThrow('went away');
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([]);
    worker.publisher.hold = async () => {};
    await worker.serve([request(0, 'a')]);
    const [first, again] = worker.publisher.records;
    expect(again?.value).toEqual(first?.value);
    expect(worker.events.at(-1)).toBe('resolved 0');
  });

  it('resolves nothing when a dead letter was not acknowledged', async () => {
    const { worker } = world();
    worker.publisher.refusing.set(DEAD_LETTERS, 'it does not exist');
    await expect(worker.serve([request(0, 'a'), record(1, null)])).rejects.toMatchObject({
      code: 'TOPIC_INVALID',
      message: expect.stringContaining(DEAD_LETTERS),
    });
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([]);
  });

  it('sends a rejected dead letter again without the record, and continues', async () => {
    const { worker } = world();
    const { publish } = worker.publisher;
    worker.publisher.publish = async (records) => {
      const large = records.some(({ headers }) => 'large' in headers);
      if (!large) return publish.call(worker.publisher, records);
      return records.map(({ headers }) =>
        'large' in headers ? { ok: false, reason: 'too large', cause: 'record' } : { ok: true },
      );
    };
    await worker.serve([record(7, Buffer.from('junk'), { large: 'x' }), request(8, 'a')]);
    const [letter, ...others] = worker.publisher.on(DEAD_LETTERS);
    expect(others).toEqual([]);
    expect(letter).toMatchObject({ key: null, value: null });
    expect(Object.keys(letter?.headers ?? {}).sort()).toEqual([
      'idalloc-record-left-out',
      'kafka_dlt-exception-fqcn',
      'kafka_dlt-exception-message',
      'kafka_dlt-original-offset',
      'kafka_dlt-original-partition',
      'kafka_dlt-original-timestamp',
      'kafka_dlt-original-topic',
    ]);
    expect(letter?.headers['kafka_dlt-original-offset']).toEqual(Buffer.from([0, 0, 0, 0, 0, 0, 0, 7]));
    expect(worker.events.at(-1)).toBe('resolved 8');
  });

  it('resolves nothing when no IDs could be allocated, and writes nothing', async () => {
    const { topic, worker } = world();
    worker.allocator.before = () => Promise.reject(new Error('no identity'));
    await expect(worker.serve([request(0, 'a')])).rejects.toThrow('no identity');
    expect([worker.events, topic.bounds(0).high]).toEqual([[], 0]);
  });
});

describe('a batch in parts', () => {
  it('has one append per part, and resolves after each part', async () => {
    const { worker } = world();
    await worker.serve(Array.from({ length: PART_MAX_REQUESTS + 1 }, (_, i) => request(i, `r${i}`)));
    const steps = worker.events.filter((event) => /^(append|resolved) /.test(event));
    expect(steps).toEqual([
      `append ${PART_MAX_REQUESTS}`,
      `resolved ${PART_MAX_REQUESTS - 1}`,
      'append 1',
      `resolved ${PART_MAX_REQUESTS}`,
    ]);
  });

  it('counts the IDs of a large request anew in each part that has it', async () => {
    const { worker } = world();
    await worker.serve(['a', 'b', 'c', 'a', 'b'].map((id, i) => request(i, id, { count: MAX_COUNT })));
    const resolved = worker.events.filter((event) => event.startsWith('resolved '));
    expect(resolved).toEqual(['resolved 1', 'resolved 3', 'resolved 4']);
  });

  it('has no part that asks for more IDs than the bound', async () => {
    const { worker } = world();
    await worker.serve(Array.from({ length: 5 }, (_, i) => request(i, `r${i}`, { count: MAX_COUNT })));
    expect(partMaxIds(layout)).toBe(2 * MAX_COUNT);
    expect(worker.events.filter((event) => event.startsWith('append '))).toEqual(['append 2', 'append 2', 'append 1']);
  });

  it.each(Object.keys(PRESETS) as PresetName[])('keeps the generator of layout %s for 50 ms at most', (name) => {
    const some = presetLayout(name, { epochMs: 1_600_000_000_000 });
    const perMs = (some.sequencesPerTick - some.sequenceStartBelow + 1) / some.tickMs;
    expect(partMaxIds(some)).toBeLessThanOrEqual(50 * perMs);
    expect(partMaxIds(some)).toBeGreaterThan(Math.min(49 * perMs, 199_999));
  });

  it('puts a request above the bound in a separate part', async () => {
    const sonyflake = presetLayout('sonyflake');
    const worker = new MemoryWorker({ topic: topicOf() });
    const deps = { ...worker.deps, layout: sonyflake, maxCount: sonyflake.maxCount };
    const counts = [600, 600, 600, sonyflake.maxCount, 1];
    const batch = counts.map((count, i) => request(i, `r${i}`, { count }));
    await processBatch(deps, 0, batch, { isCurrent: () => true, resolved: () => {} });
    expect(partMaxIds(sonyflake)).toBe(1_280);
    expect(worker.events.filter((event) => event.startsWith('append '))).toEqual([
      'append 2',
      'append 1',
      'append 1',
      'append 1',
    ]);
  });

  it('has a separate part for each request if the layout has two IDs in a second', async () => {
    const tiny = customLayout({ fields: 'timestamp:32,worker:1,sequence:1', tickMs: 1_000, epochMs: 0 });
    const worker = new MemoryWorker({ topic: topicOf() });
    const deps = { ...worker.deps, layout: tiny, maxCount: tiny.maxCount };
    const batch = [1, 2, 1].map((count, i) => request(i, `r${i}`, { count }));
    await processBatch(deps, 0, batch, { isCurrent: () => true, resolved: () => {} });
    expect(partMaxIds(tiny)).toBe(1);
    expect(worker.replies()).toHaveLength(3);
    expect(worker.events.filter((event) => event.startsWith('append '))).toEqual(['append 1', 'append 1', 'append 1']);
  });

  it('keeps what was resolved when a later part fails', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('pass', 'entries lost') });
    const batch = Array.from({ length: PART_MAX_REQUESTS + 1 }, (_, i) => request(i, `r${i}`));
    await expect(worker.serve(batch)).rejects.toMatchObject({ code: 'APPEND_UNANSWERED' });
    expect(worker.events.filter((event) => event.startsWith('resolved'))).toEqual([
      `resolved ${PART_MAX_REQUESTS - 1}`,
    ]);
  });

  it('leaves parts that have not started for later when the session ends', async () => {
    const { worker } = world();
    let current = true;
    worker.publisher.hold = async () => {
      current = false;
    };
    const batch = Array.from({ length: PART_MAX_REQUESTS + 1 }, (_, i) => request(i, `r${i}`));
    await worker.serve(batch, 0, () => current);
    expect(worker.replies()).toHaveLength(PART_MAX_REQUESTS);
  });

  it('does nothing for a session that has ended', async () => {
    const { worker } = world();
    await worker.serve([request(0, 'a')], 0, () => false);
    expect(worker.events).toEqual([]);
  });
});

describe('a batch', () => {
  it('is not looked at any further where hundreds of it wait for debts, and what is behind it is', async () => {
    const topic = topicOf();
    const accounts = accountsWith({ usPerMs: 1, burstUs: PRICES_US.request });
    const worker = new MemoryWorker({ topic, accounts });
    const reads: number[] = [];
    const read = (one: RequestRecord) => {
      reads.push(one.offset);
      return worker.deps.reader.read(one);
    };
    const deps = { ...worker.deps, reader: { read } as RequestReader };
    const debts = new DeferredQueue(() => {});
    const resolved: number[] = [];
    const control = {
      isCurrent: () => true,
      resolved: (offset: number) => resolved.push(offset),
      deferrals: { debts },
    };
    const [debtor, other] = ['id.replies.many', 'id.replies.few'];
    const of = (replyTopic: string, from: number, until: number) =>
      range(from, until).map((offset) => request(offset, `r${offset}`, { replyTopic }));
    await processBatch(deps, 0, [...of(other, 0, 2), ...of(debtor, 2, 10)], control);
    reads.length = 0;
    const batches = [
      of(debtor, 10, 1_510),
      of(other, 1_510, 2_010),
      of(debtor, 2_010, 3_010),
      [...of(other, 3_010, 3_011), ...of(debtor, 3_011, 4_510)],
      of(other, 4_510, 4_512),
    ];
    await processBatch(deps, 0, batches.flatMap(inOneBatch), control);
    const unseen = [...range(510, 1_510), ...range(2_510, 3_010), ...range(4_010, 4_510)];
    const isUnseen = (offset: number) => debts.isDebtor(undefined, offset);
    expect(range(0, 4_512).filter(isUnseen)).toEqual(unseen);
    expect(reads).toEqual(range(10, 4_512).filter((offset) => !unseen.includes(offset)));
    const served = [0, 1, ...range(1_510, 2_010), 3_010, 4_510, 4_511].map((offset) => `r${offset}`);
    expect(worker.replies(other).map(({ id }) => id)).toEqual(served);
    expect(resolved).toEqual(expect.arrayContaining([1_509, 3_009, 4_509]));
    expect([debts.unread?.until, debts.taken, resolved.at(-1)]).toEqual([4_510, 7 + 1_500 + 1_000 + 1_499, 4_511]);
  });
});

describe('large requests', () => {
  const LARGE = 5_001;
  const collecting = (worker: MemoryWorker) => {
    const [large, debts] = [new DeferredQueue(() => {}), new DeferredQueue(() => {})];
    const prepared = new Map();
    const resolved: number[] = [];
    const control = { isCurrent: () => true, resolved: (offset: number) => resolved.push(offset) };
    const serve = (batch: RequestRecord[]) =>
      processBatch(worker.deps, 0, batch, { ...control, deferrals: { large, debts } });
    const serveLarge = (batch: RequestRecord[], lane: 'large' | 'debts' = 'large') =>
      processBatch(worker.deps, 0, batch, { ...control, lane, prepared });
    const held = () => [large, debts].map(({ held: some }) => some.map(({ offset }) => offset));
    return { large, debts, prepared, resolved, serve, serveLarge, held };
  };

  it('are deferred, and the others are served', async () => {
    const { worker } = world();
    const { held, resolved, serve } = collecting(worker);
    const counts = [1, LARGE, 2, 5_000, 3, LARGE] as const;
    await serve(counts.map((count, i) => request(i, `r${i}`, { count })));
    expect(worker.replies().map(({ id }) => id)).toEqual(['r0', 'r2', 'r3', 'r4']);
    expect([held()[0], resolved]).toEqual([[1, 5], [4, 5]]); // biome-ignore format: pairs
    await serve(counts.map((count, i) => request(i, `r${i}`, { count }))); // delivered again
    expect(worker.deferred).toBe(2);
  });

  it('wait with the records of dense batches, in the order of all of them, and nothing is lost between', async () => {
    const { worker } = world();
    const { debts, held, resolved, serve, serveLarge } = collecting(worker);
    const dense = (offset: number): RequestRecord => ({ ...request(offset, `b${offset}`), isDense: true });
    const junk: RequestRecord = { ...record(3, Buffer.from('junk')), isDense: true };
    const large = request(2, 'large', { count: LARGE });
    const records = [request(0, 'a'), dense(1), large, junk, request(4, 'b'), dense(5)];
    await serve(records);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b']);
    expect([held(), resolved]).toEqual([
      [[2], [1, 3, 5]],
      [0, 1, 2, 3, 4, 5],
    ]);
    expect(worker.publisher.on(DEAD_LETTERS)).toEqual([]);
    await serveLarge(records, 'debts');
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b', 'b1', 'b5']);
    await serveLarge(records);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b', 'b1', 'b5', 'large']);
    expect([worker.publisher.on(DEAD_LETTERS).length, debts.oldest?.waiting]).toEqual([1, 3]);
  });

  it('are never taken for served when their batch was not read: where none are deferred, that fails', async () => {
    const { worker } = world();
    const { debts, resolved, serve, serveLarge } = collecting(worker);
    const skipped: RequestRecord = { ...record(9, Buffer.of(1, 2, 3, 4)), isDense: true, since: 2 };
    await serve([request(0, 'a'), skipped]);
    expect([debts.unread, resolved]).toEqual([{ from: 2, until: 10 }, [0, 9]]);
    await expect(serveLarge([skipped], 'debts')).rejects.toThrow('the batch at offset 2 was not read');
    expect(worker.publisher.on(DEAD_LETTERS)).toEqual([]);
  });

  it('and dense batches are read a hundred records at a time, and decided in parts that cost no more than as many requests', async () => {
    const { worker } = world();
    const { serveLarge } = collecting(worker);
    await serveLarge(
      Array.from({ length: 500 }, (_, i): RequestRecord => {
        return { ...(i % 2 === 0 ? request(i, `b${i}`) : record(i, Buffer.from('junk'))), isDense: true };
      }),
      'debts',
    );
    // Every second one is a request; a letter costs more than that.
    const each = ['append 37', 'append 13'];
    expect(worker.events.filter((event) => /^append \d/.test(event))).toEqual(Array(5).fill(each).flat());
  });

  it('and what else waits is decided in smaller parts if it costs more than as many ordinary requests', async () => {
    const { worker } = world();
    const { serveLarge } = collecting(worker);
    const each = Array.from({ length: 150 }, (_, i): RequestRecord => {
      return { ...request(i, `b${i}`, { replyTopic: `id.replies.${i}` }), isDense: true };
    });
    await serveLarge(each, 'debts');
    const places = PRICES_US.request + PRICES_US.append;
    const most = Math.ceil((100 * PRICES_US.request + PRICES_US.append) / places);
    const appends = worker.events.filter((event) => /^append \d/.test(event));
    const parts = (records: number) =>
      Array.from({ length: Math.ceil(records / most) }, (_, i) => Math.min(most, records - i * most));
    expect(appends).toEqual([...parts(100), ...parts(50)].map((records) => `append ${records}`));
  });

  it('are read and served piece by piece, each after a rest', async () => {
    const { worker } = world();
    const rests: number[] = [];
    const sleep = async (ms: number) => void rests.push(ms);
    const turns = new RecordTurns({ ...TIMELESS, sleep, nextTurn: () => Promise.resolve() });
    await turns.take(1); // others are expected
    const control = { isCurrent: () => true, resolved: () => {} };
    const serveLane = (lane: 'small' | 'debts', batch: RequestRecord[]) =>
      processBatch({ ...worker.deps, turns }, 0, batch, { ...control, lane });
    const batch = (from: number) => Array.from({ length: 150 }, (_, i) => request(from + i, `r${from + i}`));
    await serveLane('small', batch(0));
    expect(rests).toEqual([]);
    const dense = batch(150).map((one): RequestRecord => ({ ...one, isDense: true }));
    await serveLane('debts', dense); // 100 are read and decided, and 50
    expect(rests).toEqual([1, 1, 1, 1]);
  });

  it('of dense batches are left to their lane by the others', async () => {
    const { worker } = world();
    const { resolved, serveLarge } = collecting(worker);
    const skipped: RequestRecord = { ...record(9, Buffer.of(1, 2, 3, 4)), isDense: true, since: 1 };
    await serveLarge([request(0, 'a', { count: LARGE }), skipped, request(10, 'b', { count: LARGE })]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b']);
    expect(resolved).toEqual([0, 9, 10]);
  });

  it('and dense batches are looked up in parts of at most 100 also where they are not decided', async () => {
    const { worker } = world();
    const { resolved, serveLarge } = collecting(worker);
    await serveLarge(
      Array.from({ length: 500 }, (_, i): RequestRecord => {
        return { ...request(i, `b${i}`, { count: MAX_COUNT + 1 }), isDense: true };
      }),
      'debts',
    );
    expect(resolved).toEqual([99, 199, 299, 399, 499]);
  });

  it('that are equal are decided and answered together, however many IDs each requests', async () => {
    const { worker } = world();
    const { resolved, serveLarge } = collecting(worker);
    const others = [request(20, 'b', { count: LARGE }), request(21, 'c', { count: LARGE })];
    await serveLarge([...Array.from({ length: 20 }, (_, i) => request(i, 'a', { count: LARGE })), ...others]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    expect([worker.allocator.asked, resolved]).toEqual([[LARGE, LARGE, LARGE], [21]]);
  });

  it('alone are served by their lane, which leaves the others out', async () => {
    const { worker } = world();
    const { resolved, serveLarge } = collecting(worker);
    const counts = [1, LARGE, 2] as const;
    await serveLarge([...counts.map((count, i) => request(i, `r${i}`, { count })), record(3, null)]);
    expect([worker.replies().map(({ id }) => id), worker.errors, resolved]).toEqual([['r1'], [], [1, 3]]);
  });

  it('that wait are refused, not left out, by a worker that allows less than the one before', async () => {
    const { worker } = world();
    Object.assign(worker.deps, { maxCount: 5_000 });
    const { resolved, serveLarge } = collecting(worker);
    await serveLarge([request(0, 'small'), request(1, 'waits', { count: LARGE }), request(2, 'b')]);
    expect([worker.replies().map(gist), resolved]).toEqual([['INVALID_COUNT'], [1, 2]]);
  });

  it('that are decided elsewhere are forwarded immediately, since they need no IDs here', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), homeOf: () => 1 });
    const { large, serve } = collecting(worker);
    await serve([request(0, 'r0', { count: LARGE })]);
    expect([large.first, worker.publisher.records.map(({ partition }) => partition)]).toEqual([undefined, [1]]);
  });

  it('keep their IDs when the ledger does not answer, and get them at the next try', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('entries lost') });
    const { prepared, serveLarge } = collecting(worker);
    await expect(serveLarge([request(0, 'r0', { count: LARGE })])).rejects.toThrow();
    expect([worker.allocator.asked, prepared.size]).toEqual([[LARGE], 1]);
    await serveLarge([request(0, 'r0', { count: LARGE })]);
    expect([worker.allocator.asked, prepared.size, worker.replies().map(gist)]).toEqual([[LARGE], 0, [`0+${LARGE}`]]);
  });

  it('get other IDs when the term of the first ones is over', async () => {
    const worker = new MemoryWorker({ topic: topicOf(), link: linkOf('entries lost') });
    const { serveLarge } = collecting(worker);
    await expect(serveLarge([request(0, 'r0', { count: LARGE })])).rejects.toThrow();
    worker.allocator.isSameTerm = false;
    await serveLarge([request(0, 'r0', { count: LARGE })]);
    expect(worker.replies().map(gist)[0]).not.toBe(`0+${LARGE}`);
  });

  it('take no IDs when they are known', async () => {
    const { worker } = world();
    const { serveLarge } = collecting(worker);
    await serveLarge([request(0, 'r0', { count: LARGE })]);
    await serveLarge([request(1, 'r0', { count: LARGE })]);
    expect([worker.allocator.asked, worker.replies().map(gist)]).toEqual([[LARGE], [`0+${LARGE}`, `0+${LARGE}`]]);
  });

  it('do not hold their partition while they wait for IDs', async () => {
    const { worker } = world();
    const { serveLarge } = collecting(worker);
    const { promise, resolve } = Promise.withResolvers<void>();
    worker.allocator.before = () => promise;
    const large = serveLarge([request(0, 'large', { count: LARGE })]);
    await settle();
    worker.allocator.before = async () => {};
    await worker.serve([request(1, 'small')]);
    expect(worker.replies().map(({ id }) => id)).toEqual(['small']);
    resolve();
    await large;
    expect(worker.replies().map(({ id }) => id)).toEqual(['small', 'large']);
  });

  it('queue for IDs two at a time over all partitions, while small ones are served', async () => {
    const worker = new MemoryWorker({ topic: new MemoryLedger(4, () => 1_700_000_000_000), partitions: 4 });
    const held = Promise.withResolvers<void>();
    const { allocate } = worker.allocator;
    const waiting: (readonly number[])[] = [];
    worker.allocator.allocate = async (counts) => {
      if (counts[0] === LARGE) {
        waiting.push(counts);
        await held.promise;
      }
      return allocate.call(worker.allocator, counts);
    };
    const large = [0, 1, 2].map((partition) =>
      worker.serve([request(0, `l${partition}`, { count: LARGE })], partition),
    );
    await settle();
    expect(waiting).toHaveLength(2);
    await worker.serve([request(1, 'small')], 2);
    expect(worker.replies().map(({ id }) => id)).toEqual(['small']);
    held.resolve();
    await Promise.all(large);
    expect(waiting).toHaveLength(3);
  });
});

describe('a ledger partition that cannot be queried', () => {
  it('serves nothing while it is restored, not even requests that need no entry', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic, diligent: false });
    worker.copy.invalidate('for a test');
    for (const batch of [[request(0, 'a')], [record(0, null)]]) {
      await expect(worker.serve(batch)).rejects.toMatchObject({ code: 'INDEX_RESTORING' });
    }
    expect([worker.events, worker.allocator.asked]).toEqual([[], []]);
  });

  it('allocates nothing for a request that another worker decided', async () => {
    const topic = topicOf();
    const worker = new MemoryWorker({ topic });
    topic.land(0, [{ key: Buffer.from('x'), value: Buffer.from('hello') }]);
    worker.catchUp();
    await expect(worker.serve([request(0, 'a')])).rejects.toMatchObject({ code: 'LEDGER_UNREADABLE' });
    expect([worker.events, worker.allocator.asked]).toEqual([[], []]);
  });
});
