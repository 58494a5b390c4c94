import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it, test } from 'vitest';
import { throttledLog } from '../../../src/async/throttle.ts';
import { FollowedPartition } from '../../../src/kafka/loops/followed-partition.ts';
import { Tail, TailErrorLog, TailLeader } from '../../../src/kafka/loops/tail.ts';
import type { TailChunk, TailOptions } from '../../../src/kafka/loops/tail-port.ts';
import { UNREADABLE } from '../../../src/kafka/records/decode.ts';
import { AT, CHECKED_FROM, crc32c } from '../../../src/kafka/records/format.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import { batchOf } from '../../support/fake-kafka/batches.ts';
import { Collected, LoopStage, range, T } from '../../support/loop-stage.ts';

const MAX_WAIT_MS = 100;
const GIVEN_UP_MS = MAX_WAIT_MS + 3_000;

let stage: LoopStage;
let tails: Tail[];
let lines: { readonly level: string; readonly fields: object; readonly message: string }[];
let faults: { readonly partition: number; readonly errorCode: string }[];

function tailOf(options: Partial<TailOptions> = {}): Tail {
  const tail = new Tail({
    cluster: stage.cluster,
    runtime: stage.runtime,
    purpose: 'ledger',
    isolation: 'read_uncommitted',
    maxWaitMs: MAX_WAIT_MS,
    maxBytes: 8_000_000,
    maxBytesPerPartition: 1_000_000,
    log: throttledLog(
      stage.runtime,
      (level, fields, message) => void (level !== 'debug' && lines.push({ level, fields, message })),
    ),
    onError: (_, partition, { errorCode }) => faults.push({ partition, errorCode: errorCode }),
    ...options,
  });
  tails.push(tail);
  return tail;
}

/** A stage with a topic of so many partitions, which brokers lead in turn. */
function open(partitions: number, nodes = 1): void {
  stage = new LoopStage({ nodes });
  stage.kafka.cluster.createTopic(T, { partitions });
}

const at = (partition: number, offset = 0) => ({ topic: T, partition, offset });

beforeEach(() => {
  tails = [];
  lines = [];
  faults = [];
});

afterEach(async () => {
  await stage.close(...tails);
  await stage.pass(200_000); // the brokers' own have run out by then
  expect(stage.runtime.pending, 'timers left behind').toBe(0);
});

describe('a partition', () => {
  it('is read from the given offset on, in order, and continues as records arrive', async () => {
    open(1);
    stage.send(0, 5);
    const sink = new Collected();
    const followed = tailOf().follow(at(0, 2), sink);
    await stage.until(() => followed.position === 5);
    expect(sink.chunks).toMatchObject([{ next: 5, highWatermark: 5, logStartOffset: 0 }]);
    stage.send(0, 2);
    const sentMs = stage.runtime.monotonicMs();
    await stage.until(() => followed.position === 7);
    expect(stage.runtime.monotonicMs() - sentMs, 'the broker answers when it has something').toBeLessThan(10);
    expect(sink.offsets).toEqual(range(2, 7));
    expect(sink.chunks[1]?.records.map(({ value }) => String(value))).toEqual(['5', '6']);
  });

  it('is fetched while its sink works: one chunk in delivery, one ahead, and no more', async () => {
    open(1);
    const sink = new Collected();
    sink.hold();
    const followed = tailOf().follow(at(0), sink);
    for (const chunks of [1, 2, 3]) {
      stage.send(0, 1);
      await stage.until(() => stage.asked(0).includes(Math.min(chunks, 2) - 1));
      await stage.pass(10);
    }
    await stage.pass(10 * MAX_WAIT_MS);
    expect([new Set(stage.asked(0)), sink.offsets, followed.position]).toEqual([new Set([0, 1]), [0], 0]);
    sink.release();
    await stage.until(() => followed.position === 3);
    expect(sink.offsets).toEqual([0, 1, 2]);
  });

  it('is followed once at a time', async () => {
    open(1);
    stage.send(0, 1);
    const tail = tailOf();
    const first = tail.follow(at(0), new Collected());
    expect(() => tail.follow(at(0), new Collected())).toThrow(RangeError);
    first.stop();
    const sink = new Collected();
    const second = tail.follow(at(0), sink);
    await stage.until(() => second.position === 1);
  });

  it('receives a record batch that is larger than its limits', async () => {
    open(2);
    stage.send(0, 1, 50_000);
    stage.send(1, 1, 50_000);
    const sinks = [new Collected(), new Collected()];
    const tail = tailOf({ maxBytes: 1_000, maxBytesPerPartition: 1_000 });
    const followed = sinks.map((sink, partition) => tail.follow(at(partition), sink));
    await stage.until(() => followed.every(({ position }) => position === 1));
  });
});

it('partitions that are followed one after the other do not wait for the fetch of the first', async () => {
  open(3);
  stage.send(2, 1);
  const tail = tailOf({ maxWaitMs: 10_000 });
  const sinks = [new Collected(), new Collected(), new Collected()];
  for (const [partition, sink] of sinks.entries()) {
    tail.follow(at(partition), sink);
    await stage.pass(10);
  }
  await stage.until(() => sinks[2]?.chunks.length === 1);
  expect(stage.runtime.monotonicMs()).toBeLessThan(100);
});

it('a fetch is short for a while after a partition was added, and long again later', async () => {
  open(2);
  const tail = tailOf();
  const first = tail.follow(at(0), new Collected());
  await stage.pass(1_000);
  tail.follow(at(1), new Collected());
  await stage.until(() => stage.asked(1).length === 1);
  expect(stage.fetches.at(-1)?.request.maxWaitMs).toBeLessThan(20);
  await stage.pass(1_000);
  stage.send(0, 1);
  await stage.until(() => first.position === 1);
  await stage.until(() => stage.asked(0).at(-1) === 1);
  expect(stage.fetches.at(-1)?.request.maxWaitMs).toBe(MAX_WAIT_MS);
});

describe('with a gap for busy times', () => {
  const GAP_MS = 10;

  /** Sends a record to each partition in turn, one every so many milliseconds. */
  async function sendEvery(ms: number, records: number, partitions: number): Promise<void> {
    for (let i = 0; i < records; i++) {
      stage.send(i % partitions, 1);
      await stage.pass(ms);
    }
  }

  it('records that arrive one by one are fetched at once', async () => {
    open(1);
    const tail = tailOf({ busyGapMs: GAP_MS });
    const followed = tail.follow(at(0), new Collected());
    await stage.pass(1_000);
    for (let sent = 1; sent <= 20; sent++) {
      stage.send(0, 1);
      const sentMs = stage.runtime.monotonicMs();
      await stage.until(() => followed.position === sent);
      expect(stage.runtime.monotonicMs() - sentMs).toBeLessThan(5);
      await stage.pass(GAP_MS / 2);
    }
  });

  it('records that keep arriving share fetches, and none is missed', async () => {
    open(4);
    const sinks = [new Collected(), new Collected(), new Collected(), new Collected()];
    const tail = tailOf({ busyGapMs: GAP_MS });
    const followed = sinks.map((sink, partition) => tail.follow(at(partition), sink));
    await sendEvery(1, 100, 4);
    const [from, before] = [stage.runtime.monotonicMs(), stage.fetches.length];
    await sendEvery(1, 200, 4);
    const fetches = stage.fetches.slice(before);
    expect(fetches.length).toBeGreaterThan(10);
    expect(fetches.length).toBeLessThanOrEqual((stage.runtime.monotonicMs() - from) / GAP_MS + 1);
    await stage.until(() => followed.every(({ position }) => position === 75));
    for (const { offsets } of sinks) expect(offsets).toEqual(range(0, 75));
  });

  it('records that wait already are fetched without a rest', async () => {
    open(1);
    for (let sent = 0; sent < 20; sent++) stage.send(0, 50, 100);
    const tail = tailOf({ busyGapMs: 60_000, maxBytesPerPartition: 6_000 });
    const followed = tail.follow(at(0), new Collected());
    await stage.until(() => followed.position === 1_000, 100);
    expect(stage.fetches.length, 'fetches').toBeGreaterThan(10);
    expect(stage.runtime.monotonicMs()).toBeLessThan(60_000);
  });

  it('a rest ends when the tail is closed', async () => {
    open(1);
    const tail = tailOf({ busyGapMs: 60_000 });
    const followed = tail.follow(at(0), new Collected());
    stage.send(0, 5);
    await stage.until(() => followed.position === 5);
    await stage.pass(1_000);
    expect(stage.asked(0).at(-1), 'it rests').toBe(0);
    const { pending } = stage.runtime;
    await tail.close();
    expect(stage.runtime.pending, 'its timer is gone').toBe(pending - 1);
  });
});

describe('a paused partition', () => {
  it('keeps fetched records, and delivers nothing until it is resumed', async () => {
    open(1);
    const sink = new Collected();
    const followed = tailOf().follow(at(0), sink);
    await stage.until(() => stage.fetches.length === 1);
    followed.pause();
    stage.send(0, 3);
    await stage.pass(5 * MAX_WAIT_MS);
    const fetches = stage.fetches.length;
    expect([sink.chunks, followed.position]).toEqual([[], 0]);
    followed.resume();
    await stage.until(() => followed.position === 3);
    expect(stage.asked(0).slice(0, fetches), 'not fetched again').toEqual([0]);
  });

  it('is not fetched', async () => {
    open(2);
    const tail = tailOf();
    const paused = tail.follow(at(0), new Collected());
    paused.pause();
    const other = tail.follow(at(1), new Collected());
    for (const partition of [0, 1]) stage.send(partition, 1);
    await stage.until(() => other.position === 1);
    await stage.pass(500);
    expect(stage.asked(0)).toEqual([]);
    paused.resume();
    await stage.until(() => paused.position === 1);
  });

  it('does not delay others, and neither does one with a slow sink', async () => {
    open(3);
    for (const partition of [0, 1, 2]) stage.send(partition, 1);
    const sinks = [new Collected(), new Collected(), new Collected()];
    sinks[1]?.hold();
    const tail = tailOf();
    const [paused, slow, free] = sinks.map((sink, partition) => tail.follow(at(partition), sink));
    await stage.until(() => free?.position === 1 && sinks[1]?.chunks.length === 1);
    paused?.pause();
    for (let sent = 1; sent <= 10; sent += 1) {
      for (const partition of [0, 1, 2]) stage.send(partition, 1);
      const sentMs = stage.runtime.monotonicMs();
      await stage.until(() => free?.position === sent + 1);
      expect(stage.runtime.monotonicMs() - sentMs).toBeLessThan(10);
    }
    expect(slow?.position).toBe(0);
    sinks[1]?.release();
    paused?.resume();
    await stage.until(() => slow?.position === 11 && paused?.position === 11);
  });

  it('is fetched immediately when it is resumed, though the fetch of others waits for records', async () => {
    open(2);
    const tail = tailOf({ maxWaitMs: 100_000 });
    tail.follow(at(0), new Collected());
    const sink = new Collected();
    const slow = tail.follow(at(1), sink);
    sink.hold();
    for (const count of [1, 2]) {
      stage.send(1, 1);
      await stage.until(() => stage.asked(1).includes(count - 1));
      await stage.pass(3);
    }
    stage.send(1, 1);
    await stage.pass(200);
    const releasedMs = stage.runtime.monotonicMs();
    sink.release();
    await stage.until(() => slow.position === 3);
    const lateMs = stage.runtime.monotonicMs() - releasedMs;
    expect(lateMs, 'the others were waited for a short time only').toBeLessThan(300);
  });

  it('without room shortens the fetches of the others, and less so while they stay empty', async () => {
    open(2);
    const tail = tailOf();
    const sink = new Collected();
    sink.hold();
    tail.follow(at(0), sink);
    const other = tail.follow(at(1), new Collected());
    for (const fetched of [0, 1]) {
      stage.send(0, 1);
      await stage.until(() => stage.asked(0).includes(fetched));
      await stage.pass(3);
    }
    const from = stage.fetches.length - 1;
    await stage.pass(400);
    const waits = () => stage.fetches.slice(from).map(({ request }) => request.maxWaitMs);
    expect(waits().slice(0, 7)).toEqual([5, 10, 20, 40, 80, 100, 100]);
    stage.send(1, 1);
    const before = waits().length;
    await stage.until(() => other.position === 1 && waits().length > before);
    expect(waits()[before]).toBe(5);
    sink.release();
  });
});

describe('a response with more records than a chunk may have', () => {
  const MANY = 50_000;

  /** Its first chunk is in delivery. */
  async function firstHeld() {
    open(1);
    stage.send(0, MANY);
    const sink = new Collected();
    sink.hold();
    const followed = tailOf({ maxBytesPerPartition: 8_000_000 }).follow(at(0), sink);
    await stage.until(() => sink.chunks.length === 1);
    return { sink, followed };
  }

  it('is delivered in chunks of at most 20,000 records, without another fetch, and the next one is fetched meanwhile', async () => {
    const { sink, followed } = await firstHeld();
    stage.send(0, 1);
    await stage.until(() => stage.asked(0).includes(MANY));
    sink.release();
    await stage.until(() => followed.position === MANY + 1);
    expect(sink.chunks.map(({ records, from, next }) => [records.length, from, next])).toEqual([
      [20_000, 0, 20_000],
      [20_000, 20_000, 40_000],
      [10_000, 40_000, MANY],
      [1, MANY, MANY + 1],
    ]);
    expect(new Set(stage.asked(0).filter((offset) => offset < MANY))).toEqual(new Set([0]));
    expect(sink.offsets).toEqual(range(0, MANY + 1));
  });

  it('is read again from the middle after a seek', async () => {
    const { sink, followed } = await firstHeld();
    followed.seek(19_000);
    sink.release();
    await stage.until(() => followed.position === MANY);
    expect(sink.offsets).toEqual([...range(0, 20_000), ...range(19_000, MANY)]);
  });
});

describe('a seek', () => {
  it('drops fetched records and the fetch in flight, but completes the delivery in progress', async () => {
    open(1);
    stage.send(0, 10);
    const sink = new Collected();
    sink.hold();
    const followed = tailOf().follow(at(0), sink);
    await stage.until(() => sink.chunks.length === 1);
    stage.send(0, 5);
    await stage.until(() => stage.asked(0).includes(10));
    await stage.pass(10);
    followed.seek(3);
    expect(followed.position).toBe(3);
    await stage.pass(50);
    expect(sink.chunks.length, 'one delivery at a time').toBe(1);
    sink.release();
    await stage.until(() => followed.position === 15);
    expect(sink.offsets).toEqual([...range(0, 10), ...range(3, 15)]);
  });

  it('to the offset of a fetch in flight is not answered by that fetch', async () => {
    open(1);
    const sink = new Collected();
    const followed = tailOf().follow(at(0), sink);
    await stage.until(() => stage.fetches.length === 1);
    stage.send(0, 4);
    followed.seek(2);
    await stage.until(() => followed.position === 4);
    expect(sink.offsets).toEqual([2, 3]);
    followed.seek(0);
    stage.send(0, 1);
    await stage.until(() => followed.position === 5);
    expect(sink.offsets.slice(2)).toEqual(range(0, 5));
  });

  it('from within a delivery takes effect', async () => {
    open(1);
    stage.send(0, 3);
    const seen: number[] = [];
    const followed = tailOf().follow(at(0), {
      deliver: ({ records, next }) => {
        seen.push(...records.map(({ offset }) => offset));
        if (seen.length === 3) followed.seek(next - 1);
      },
    });
    await stage.until(() => seen.length === 4);
    await stage.pass(500);
    expect([seen, followed.position]).toEqual([[0, 1, 2, 2], 3]);
  });
});

describe('the order of a fetch', () => {
  it('rotates, so that a byte limit starves no partition', async () => {
    open(4);
    for (let sent = 0; sent < 30; sent += 1) for (const partition of range(0, 4)) stage.send(partition, 1, 5_000);
    const tail = tailOf({ maxBytes: 6_000 });
    const sinks = range(0, 4).map(() => new Collected());
    for (const [partition, sink] of sinks.entries()) tail.follow(at(partition), sink);
    await stage.until(() => sinks.some(({ offsets }) => offsets.length === 10));
    const counts = sinks.map(({ offsets }) => offsets.length);
    expect(Math.max(...counts) - Math.min(...counts), `${counts}`).toBeLessThanOrEqual(2);
  });

  it('has all partitions of a leader, of any topic, in one fetch', async () => {
    open(3, 3);
    stage.kafka.cluster.createTopic('other', { partitions: 3 });
    const tail = tailOf();
    for (const topic of [T, 'other']) {
      for (const partition of range(0, 3)) tail.follow({ topic, partition, offset: 0 }, new Collected());
    }
    await stage.pass(1_000);
    const settled = stage.fetches.length;
    await stage.pass(1_000);
    const sizes = new Set(stage.fetches.map(({ request }) => request.partitions.length));
    expect(sizes).toEqual(new Set([2]));
    expect(stage.fetches.length - settled).toBeLessThanOrEqual(3 * 10);
  });
});

describe('the fetch session of a leader', () => {
  const named = () => stage.sent.map(({ partitions }) => partitions.map(({ partition }) => partition));

  it('spares the names of partitions without news, and misses no record', async () => {
    open(20);
    const tail = tailOf();
    const sinks = range(0, 20).map(() => new Collected());
    for (const [partition, sink] of sinks.entries()) tail.follow(at(partition), sink);
    await stage.pass(1_000);
    const settled = stage.sent.length;
    await stage.pass(1_000);
    expect(stage.sent.length).toBeGreaterThan(settled + 5);
    expect(named().slice(settled).flat(), 'nothing is new').toEqual([]);
    const from = stage.sent.length;
    for (const partition of [3, 17, 3]) {
      stage.send(partition, 2);
      await stage.pass(MAX_WAIT_MS);
    }
    expect([sinks[3]?.offsets, sinks[17]?.offsets]).toEqual([range(0, 4), range(0, 2)]);
    expect(new Set(named().slice(from).flat())).toEqual(new Set([3, 17]));
  });

  it('leaves out a partition without room, and takes it in again where it was left', async () => {
    open(2);
    const tail = tailOf();
    const [slow, other] = [new Collected(), new Collected()];
    const followed = tail.follow(at(0), slow);
    tail.follow(at(1), other);
    await stage.pass(500);
    slow.hold();
    for (const _ of range(0, 3)) {
      stage.send(0, 1);
      await stage.pass(MAX_WAIT_MS);
    }
    const forgotten = stage.sent.flatMap(({ session }) => session?.forgotten.map(({ partition }) => partition) ?? []);
    expect([slow.offsets, forgotten]).toEqual([[0], [0]]);
    stage.send(1, 1);
    await stage.pass(MAX_WAIT_MS);
    expect(other.offsets).toEqual([0]);
    slow.release();
    await stage.until(() => followed.position === 3);
    expect([slow.offsets, faults]).toEqual([[0, 1, 2], []]);
  });

  it('that the broker drops is begun anew, and nobody is interrupted', async () => {
    open(3);
    const interrupted: number[] = [];
    const tail = tailOf();
    const sinks = range(0, 3).map(() => new Collected());
    for (const [partition, sink] of sinks.entries()) {
      const deliver = (chunk: TailChunk) => sink.deliver(chunk);
      tail.follow(at(partition), { deliver, interrupted: () => void interrupted.push(partition) });
    }
    await stage.pass(500);
    for (const round of range(0, 4)) {
      stage.kafka.cluster.broker(1).fetchSessions.clear();
      stage.send(round % 3, 1);
      await stage.pass(3 * MAX_WAIT_MS);
    }
    expect(sinks.map(({ offsets }) => offsets)).toEqual([[0, 1], [0], [0]]);
    expect([faults, interrupted]).toEqual([[], []]);
    expect(named().filter((partitions) => partitions.length === 3).length, 'full fetches').toBeGreaterThan(4);
  });

  it('ends when the broker restarts, and no record is missed', async () => {
    open(3);
    const sinks = range(0, 3).map(() => new Collected());
    const tail = tailOf();
    for (const [partition, sink] of sinks.entries()) tail.follow(at(partition), sink);
    for (const round of range(0, 3)) {
      stage.send(round, 1);
      await stage.pass(500);
      stage.kafka.cluster.crash(1);
      await stage.pass(50);
      stage.kafka.cluster.restart(1);
      stage.send(round, 1);
      await stage.pass(5_000);
    }
    expect(sinks.map(({ offsets }) => offsets)).toEqual([range(0, 2), range(0, 2), range(0, 2)]);
  });

  it('is done without where the broker keeps none', async () => {
    open(3);
    stage.kafka.cluster.fetchSessions = 0;
    const tail = tailOf();
    const sinks = range(0, 3).map(() => new Collected());
    for (const [partition, sink] of sinks.entries()) tail.follow(at(partition), sink);
    await stage.pass(500);
    const settled = stage.sent.length;
    stage.send(1, 2);
    await stage.pass(500);
    expect([sinks[1]?.offsets, faults]).toEqual([[0, 1], []]);
    expect(new Set(stage.sent.slice(settled).map(({ partitions }) => partitions.length))).toEqual(new Set([3]));
  });
});

describe('a fault', () => {
  it('of a moving leader is handled without delay, and without a lost or duplicate record', async () => {
    open(3, 3);
    const sink = new Collected();
    const tail = tailOf();
    const followed = tail.follow(at(0), sink);
    for (const partition of [1, 2]) tail.follow(at(partition), new Collected());
    for (let round = 1; round <= 6; round += 1) {
      stage.send(0, 3);
      await stage.pass(round); // until the copies have them, and maybe until they were fetched
      stage.kafka.cluster.moveLeader(T, 0, 1 + (round % 3));
      stage.send(0, 3);
      const sentMs = stage.runtime.monotonicMs();
      await stage.until(() => followed.position === 6 * round);
      expect(stage.runtime.monotonicMs() - sentMs).toBeLessThan(400);
      await stage.pass(500);
    }
    expect([sink.offsets, lines]).toEqual([range(0, 36), []]);
    const settled = stage.fetches.length;
    await stage.pass(1_000);
    const later = stage.fetches.slice(settled);
    const asksFirst = later.filter(({ request }) => request.partitions.some(({ partition }) => partition === 0));
    expect(new Set(asksFirst.map(({ node }) => node))).toEqual(new Set([1]));
  });

  it('of a frozen broker delays only its own partitions, until another broker leads them', async () => {
    stage = new LoopStage({ nodes: 3 });
    stage.kafka.cluster.createTopic(T, { partitions: 2, replicas: 2 });
    const sinks = [new Collected(), new Collected()];
    const tail = tailOf();
    const [first, second] = sinks.map((sink, partition) => tail.follow(at(partition), sink));
    for (const partition of [0, 1]) stage.send(partition, 1);
    await stage.until(() => first?.position === 1 && second?.position === 1);
    stage.kafka.cluster.freeze(1);
    for (let sent = 2; sent <= 5; sent += 1) {
      await stage.pass(1_000);
      stage.send(1, 1);
      const sentMs = stage.runtime.monotonicMs();
      await stage.until(() => second?.position === sent);
      expect(stage.runtime.monotonicMs() - sentMs).toBeLessThan(50);
    }
    await stage.until(() => stage.kafka.cluster.partition(T, 0).leadership.leader !== 1);
    stage.send(0, 1);
    const electedMs = stage.runtime.monotonicMs();
    await stage.until(() => first?.position === 2);
    expect(stage.runtime.monotonicMs() - electedMs).toBeLessThan(GIVEN_UP_MS + 1_500);
    expect(sinks[0]?.offsets).toEqual([0, 1]);
  });

  it('that persists is retried at growing intervals, and reported rarely', async () => {
    open(1, 1);
    const tail = tailOf();
    const followed = tail.follow({ topic: 'later', partition: 0, offset: 0 }, new Collected());
    tail.follow({ topic: 'later', partition: 1, offset: 0 }, new Collected());
    await stage.pass(25_000);
    const tries = faults.filter(({ partition }) => partition === 0);
    expect(tries.length).toBeGreaterThan(20);
    expect(tries.length).toBeLessThan(40);
    expect(new Set(tries.map(({ errorCode }) => errorCode))).toEqual(new Set(['UNKNOWN_TOPIC_OR_PARTITION']));
    expect(lines.map(({ level, fields }) => [level, fields])).toEqual(
      Array(3).fill(['warn', expect.objectContaining({ topic: 'later', partitions: expect.arrayContaining([0]) })]),
    );
    stage.kafka.cluster.createTopic('later', { partitions: 2 });
    stage.send(0, 1, 1, 'later');
    await stage.until(() => followed.position === 1);
  });

  it('of a slow network makes fetches smaller, until they arrive in time', async () => {
    open(1);
    for (let sent = 0; sent < 40; sent += 1) stage.send(0, 1, 100_000);
    const sink = new Collected();
    // An answer takes a second for each 100 kB.
    stage.kafka.network.script = (call, way) => {
      const bytes = Math.min(stage.fetches.at(-1)?.request.maxBytes ?? 0, 4_000_000);
      return call === 'fetch' && way === 'back' ? bytes / 100 : undefined;
    };
    const followed = tailOf({ maxBytesPerPartition: 8_000_000 }).follow(at(0), sink);
    await stage.until(() => followed.position === 40, 50);
    expect(sink.offsets).toEqual(range(0, 40));
    stage.kafka.network.script = () => undefined;
    await stage.pass(5_000);
    expect(stage.fetches.at(-1)?.request.maxBytes).toBe(8_000_000);
  });

  it('of an invalid answer is retried after a delay', async () => {
    open(1);
    stage.send(0, 2);
    stage.distort = (answer) => ({ ...answer, partitions: [] });
    const sink = new Collected();
    const followed = tailOf().follow(at(0), sink);
    await stage.pass(1_000);
    stage.distort = ({ partitions, ...answer }) => {
      return { ...answer, partitions: partitions.map((one) => ({ ...one, records: one.records.subarray(0, 50) })) };
    };
    await stage.pass(1_000);
    stage.distort = ({ partitions, ...answer }) => {
      return { ...answer, partitions: partitions.map((one) => ({ ...one, errorCode: 'OFFSET_OUT_OF_RANGE' })) };
    };
    await stage.pass(2_000);
    expect(stage.fetches.length).toBeLessThan(12);
    expect(new Set(faults.map(({ errorCode }) => errorCode))).toEqual(
      new Set(['MALFORMED_RESPONSE', 'OFFSET_OUT_OF_RANGE']),
    );
    stage.distort = (answer) => answer;
    await stage.until(() => followed.position === 2);
    expect(sink.offsets).toEqual([0, 1]);
  });

  it('of a sink is reported, and the chunk is delivered again a second later', async () => {
    open(1);
    stage.send(0, 2);
    let deliveries = 0;
    const deliveredMs: number[] = [];
    const followed = tailOf().follow(at(0), {
      deliver: () => {
        deliveredMs.push(stage.runtime.monotonicMs());
        deliveries += 1;
        if (deliveries < 3) throw new Error('the disk is full');
      },
    });
    await stage.until(() => followed.position === 2);
    expect(faults).toEqual(Array(2).fill({ partition: 0, errorCode: 'SINK_FAILED' }));
    const [first = 0, second = 0, third = 0] = deliveredMs;
    expect([deliveries, second - first, third - second]).toEqual([3, 1_000, 1_000]);
  });
});

describe('transactions, read committed', () => {
  it('that were aborted are skipped, and a marker at the end moves the position', async () => {
    open(1);
    const { cluster } = stage.kafka;
    const key = (text: string) => [{ key: null, value: Buffer.from(text) }];
    cluster.send(T, 0, key('aborted'), 7n);
    cluster.send(T, 0, key('plain'));
    cluster.send(T, 0, key('committed'), 8n);
    cluster.endTransaction(T, 0, 'abort', 7n);
    cluster.endTransaction(T, 0, 'commit', 8n);
    const sink = new Collected();
    const followed = tailOf({ isolation: 'read_committed' }).follow(at(0), sink);
    await stage.until(() => followed.position === 5);
    expect(sink.offsets).toEqual([1, 2]);
    cluster.send(T, 0, key('aborted'), 7n);
    cluster.endTransaction(T, 0, 'abort', 7n);
    await stage.until(() => followed.position === 7);
    expect(sink.chunks.at(-1)).toMatchObject({ records: [], next: 7 });
  });
});

describe('an offset outside of the log', () => {
  it('is replaced by the one that its sink returns, given the bounds', async () => {
    open(2);
    for (const partition of [0, 1]) stage.send(partition, 3);
    stage.send(0, 3);
    stage.kafka.cluster.partition(T, 0).trim(3);
    const asked: unknown[] = [];
    const sinkTo = (to: number) => {
      const sink = new Collected();
      return Object.assign(sink, {
        outOfRange: (bounds: object, position: number) => asked.push([bounds, position]) && to,
      });
    };
    const [trimmed, cut] = [sinkTo(4), sinkTo(1)];
    const tail = tailOf();
    tail.follow(at(0, 1), trimmed);
    tail.follow(at(1, 9), cut);
    await stage.until(() => trimmed.offsets.length === 2 && cut.offsets.length === 2);
    expect(asked).toEqual([
      [{ logStart: 3, end: 6 }, 1],
      [{ logStart: 0, end: 3 }, 9],
    ]);
    expect([trimmed.offsets, cut.offsets, faults]).toEqual([[4, 5], [1, 2], []]);
  });

  it('is replaced by the start of the log, with a warning, if the sink does not choose', async () => {
    open(1);
    stage.send(0, 3);
    const sink = new Collected();
    tailOf().follow(at(0, 99), sink);
    await stage.until(() => sink.offsets.length === 3);
    expect(lines).toMatchObject([{ level: 'warn', fields: { partition: 0, offset: 99, logStart: 0, end: 3 } }]);
  });

  it('is left by a seek, whatever the sink returns later', async () => {
    open(1);
    stage.send(0, 3);
    const sink = Object.assign(new Collected(), {
      outOfRange: async () => {
        followed.seek(2);
        await stage.runtime.sleep(500);
        return 0;
      },
    });
    const followed = tailOf().follow(at(0, 99), sink);
    await stage.until(() => sink.offsets.length > 0);
    expect(sink.offsets).toEqual([2]);
  });
});

describe('malformed bytes', () => {
  it('of a damaged batch become a record that says so, and reading continues after it', async () => {
    open(1);
    stage.send(0, 2);
    const damaged = batchOf(
      [1, 2, 3].map(() => ({ key: null, value: Buffer.from('x') })),
      { timestampMs: 0 },
    );
    damaged.fill(0xff, AT.records);
    damaged.writeUInt32BE(crc32c(damaged.subarray(CHECKED_FROM)), AT.crc);
    stage.kafka.cluster.sendBatch(T, 0, damaged);
    stage.send(0, 2);
    const sink = new Collected();
    const followed = tailOf().follow(at(0), sink);
    await stage.until(() => followed.position === 7);
    const records = sink.chunks.flatMap((chunk) => chunk.records);
    expect(records.map(({ offset, headers }) => [offset, UNREADABLE in headers])).toEqual([
      [0, false],
      [1, false],
      [2, true],
      [4, true],
      [5, false],
      [6, false],
    ]);
  });

  it('that are not a batch do the same', async () => {
    open(1);
    const nonsense = Buffer.from(batchOf([{ key: null, value: Buffer.alloc(50) }], { timestampMs: 0 }));
    nonsense.writeInt32BE(20, AT.length);
    stage.kafka.cluster.sendBatch(T, 0, nonsense);
    stage.send(0, 2);
    const sink = new Collected();
    const followed = tailOf().follow(at(0), sink);
    await stage.until(() => followed.position === 3);
    const records = sink.chunks.flatMap((chunk) => chunk.records);
    expect([records[0]?.offset, UNREADABLE in (records[0]?.headers ?? {}), records.at(-1)?.offset]).toEqual([
      0,
      true,
      2,
    ]);
  });

  it('that decompress to more than the memory limit arrive in several chunks, without loss or duplicates', async () => {
    open(1);
    const plain = batchOf([{ key: null, value: Buffer.alloc(4_000_000) }], { timestampMs: 0 });
    const packed = Buffer.concat([plain.subarray(0, AT.records), gzipSync(plain.subarray(AT.records))]);
    packed.writeInt32BE(packed.length - 12, AT.length);
    packed.writeInt16BE(1, AT.attributes);
    packed.writeUInt32BE(crc32c(packed.subarray(CHECKED_FROM)), AT.crc);
    for (let sent = 0; sent < 12; sent += 1) stage.kafka.cluster.sendBatch(T, 0, packed);
    const sink = new Collected();
    const followed = tailOf().follow(at(0), sink);
    while (followed.position < 12) {
      await new Promise((resolve) => setImmediate(resolve)); // decompressing takes real time
      await stage.pass(1);
    }
    expect(sink.offsets).toEqual(range(0, 12));
    expect(sink.chunks.length).toBeGreaterThan(1);
  });
});

describe('close', () => {
  it('waits for the delivery in progress; nothing is delivered after it', async () => {
    open(1);
    stage.send(0, 1);
    const sink = new Collected();
    sink.hold();
    const tail = tailOf();
    tail.follow(at(0), sink);
    await stage.until(() => sink.chunks.length === 1);
    stage.send(0, 1);
    await stage.pass(10);
    let isClosed = false;
    const closing = tail.close().then(() => {
      isClosed = true;
    });
    await stage.pass(1_000);
    expect(isClosed).toBe(false);
    sink.release();
    await stage.runtime.until(closing);
    await stage.pass(1_000);
    expect(sink.offsets).toEqual([0]);
  });

  it('of one partition does not affect the others, and drops its fetch', async () => {
    open(2);
    const [gone, kept] = [new Collected(), new Collected()];
    const tail = tailOf();
    const stopped = tail.follow(at(0), gone);
    const followed = tail.follow(at(1), kept);
    await stage.until(() => stage.fetches.length === 1);
    stopped.stop();
    for (const partition of [0, 1]) stage.send(partition, 1);
    await stage.until(() => followed.position === 1);
    await stage.pass(500);
    expect([gone.chunks, stage.fetches.at(-1)?.request.partitions.length]).toEqual([[], 1]);
  });
});

describe('partitions that fail', () => {
  const FAULT = new KafkaError('NO_RESPONSE', 'no answer came');

  let nowMs: number;
  let lines: object[];
  let faultLog: TailErrorLog;

  const place = (topic: string, partition: number) => ({ topic, partition, state: 'resting' });

  beforeEach(() => {
    nowMs = 0;
    lines = [];
    const runtime = { monotonicMs: () => nowMs };
    const log = throttledLog(runtime, (level, fields) => void (level === 'warn' && lines.push(fields)));
    faultLog = new TailErrorLog(runtime, log);
  });

  /** The places fail every 100 ms, for `forMs`. */
  function fail(forMs: number, ...places: readonly ReturnType<typeof place>[]): void {
    for (const untilMs = nowMs + forMs; nowMs < untilMs; nowMs += 100) {
      for (const one of places) faultLog.failed(one, FAULT);
    }
  }

  it('faults shorter than a second are not logged, however often they occur', () => {
    const one = place('t', 0);
    for (let round = 0; round < 10; round += 1) {
      fail(1_000, one);
      faultLog.readable(one);
    }
    expect(lines).toEqual([]);
  });

  it('partitions of one topic that fail together are named in one line every 10 s', () => {
    fail(20_900, place('t', 1), place('t', 0), place('u', 7));
    const line = (topic: string, ...partitions: number[]) => {
      return { topic, partitions, errorCode: 'NO_RESPONSE', error: 'no answer came' };
    };
    expect(lines).toMatchObject([line('t', 0, 1), line('u', 7), line('t', 0, 1), line('u', 7)]);
  });

  it('a partition that can be read, or is no longer followed, is not named', () => {
    const [one, other, third] = [place('t', 0), place('t', 1), place('t', 2)];
    fail(1_000, one, other, third);
    faultLog.readable(one);
    other.state = 'stopped';
    fail(1_000, third);
    expect(lines).toMatchObject([{ partitions: [2] }]);
  });
});

test('a broker from which a partition was read keeps nothing of it once it is stopped', () => {
  const leader = new TailLeader(1, { isolation: 'read_committed', maxWaitMs: 1, maxBytes: 1, maxBytesPerPartition: 1 });
  const hooks = { onRoom: () => undefined, decode: () => new Promise<never>(() => {}), onFailure: async () => {} };
  const followed = [0, 1].map((partition) => new FollowedPartition(at(partition), new Collected(), hooks));
  for (const one of followed) {
    leader.join(one);
    one.state = 'ready';
  }
  followed[0]?.stop();
  expect(leader.withRoom()).toEqual([followed[1]]);
  expect(leader.partitions.size).toBe(1);
});
