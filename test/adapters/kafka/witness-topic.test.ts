import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WitnessFollower, WitnessReader, WitnessTopic } from '../../../src/adapters/kafka/witness-topic.ts';
import { witnessHeaders, witnessKey, witnessValue } from '../../../src/codec/witness.ts';
import { ticks } from '../../../src/core/units.ts';
import { Tail } from '../../../src/kafka/loops/tail.ts';
import { AT, CHECKED_FROM, crc32c } from '../../../src/kafka/records/format.ts';
import { batchOf, recordsOf } from '../../support/fake-kafka/batches.ts';
import { LoopStage } from '../../support/loop-stage.ts';

const WITNESS = 'id.witness';
const UUID = '01234567-89ab-4cde-8f01-23456789abcd';
const LIMIT_MS = 4_000;
const witness = (fence: bigint) => ({
  uuid: UUID,
  workerId: 7,
  fence,
  leaseId: 3n,
  ticks: ticks(5),
  modRevision: fence,
  layout: { layoutFingerprint: '0123456789abcdef', epochMs: 7 },
});
const record = (fence: bigint) => ({
  key: witnessKey(4, witness(fence)),
  value: witnessValue(witness(fence)),
  headers: { layout: Buffer.from(witnessHeaders(witness(fence)).layout ?? '') },
});

let stage: LoopStage;
let tail: Tail;
let follower: WitnessFollower;
let topic: WitnessTopic;

beforeEach(() => {
  stage = new LoopStage({ nodes: 3 });
  stage.kafka.cluster.createTopic(WITNESS, { configs: { 'cleanup.policy': 'compact' } });
  const { cluster, runtime } = stage;
  const limits = { maxWaitMs: 500, maxBytes: 8_000_000, maxBytesPerPartition: 1_000_000 };
  tail = new Tail({ cluster, runtime, purpose: 'ledger', isolation: 'read_uncommitted', ...limits });
  follower = new WitnessFollower(4);
  const reader = new WitnessReader(tail, WITNESS, follower);
  const restartReader = () => reader.restart();
  topic = new WitnessTopic({
    cluster,
    runtime,
    topic: WITNESS,
    datacenterId: 4,
    follower,
    restartReader,
    callLimitMs: LIMIT_MS,
  });
  reader.start();
});

afterEach(async () => {
  await stage.close(tail);
  await stage.pass(60_000);
  expect(stage.runtime.pending, 'timers left behind').toBe(0);
});

const log = () => stage.kafka.cluster.partition(WITNESS, 0).log;
const done = <T>(work: Promise<T>) => stage.runtime.until(work);
const leader = () => stage.kafka.cluster.partition(WITNESS, 0).leadership.leader;

/** The code and message of the failure, and the time it took; the code is 'succeeded' if there was none. */
async function failure(work: Promise<unknown>): Promise<{ code: unknown; message: string; tookMs: number }> {
  const beganMs = stage.runtime.monotonicMs();
  const error = await done(
    work.then(
      () => ({ code: 'succeeded', message: '' }),
      (failed: { code: unknown; message: string }) => failed,
    ),
  );
  return { code: error.code, message: error.message, tookMs: stage.runtime.monotonicMs() - beganMs };
}

describe('a write', () => {
  it('is one batch, acknowledged by all replicas, and resolves with the topic read up to it', async () => {
    stage.kafka.cluster.send(WITNESS, 0, [record(9n)]);
    const view = await done(
      topic.write([{ put: witness(1n) }, { drop: witness(9n) }, { seal: UUID }, { clear: '4/x' }]),
    );
    expect(view).toEqual({ seal: UUID, witnesses: [witness(1n)], unreadable: [] });
    const written = recordsOf(log().batches()[1] as Buffer);
    expect(written.map(({ key, value, headers }) => [String(key), value && String(value), headers])).toEqual([
      [`4/${UUID}/7/1/3`, '1 5 1', { layout: Buffer.from('1 0123456789abcdef 7') }],
      [`4/${UUID}/7/9/3`, null, {}],
      ['4', `1 ${UUID}`, {}],
      ['4/x', null, {}],
    ]);
    expect(stage.produces.map(({ request, purpose }) => [request.acks, purpose])).toEqual([[-1, 'append']]);
  });

  it('has up to 2,000 entries; one of more is refused before anything is sent', async () => {
    const drops = (count: number) => Array.from({ length: count }, (_, i) => ({ drop: witness(BigInt(i)) }));
    expect(() => topic.write(drops(2_001))).toThrow(RangeError);
    expect(stage.produces).toEqual([]);
    await done(topic.write(drops(2_000)));
    expect(log().end).toBe(2_000);
  });

  it('waits until it was read, and times out when it is not', async () => {
    await done(topic.read());
    stage.kafka.network.script = (call, way) => (call === 'fetch' && way === 'back' ? 'lost' : undefined);
    await stage.pass(1_000);
    const { code, tookMs } = await failure(topic.write([{ put: witness(1n) }]));
    expect([code, tookMs]).toEqual(['KAFKA_UNAVAILABLE', LIMIT_MS]);
  });

  it('to a silent broker fails at its deadline, and the next one can start', async () => {
    await done(topic.read());
    stage.kafka.cluster.freeze(leader());
    expect(await failure(topic.write([{ put: witness(1n) }]))).toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      tookMs: LIMIT_MS,
    });
    const before = stage.runtime.monotonicMs();
    for (;;) {
      const { code } = await failure(topic.write([{ put: witness(2n) }]));
      if (code === 'succeeded') break;
    }
    expect(stage.runtime.monotonicMs() - before, 'as soon as another broker leads').toBeLessThan(11_000);
    expect(follower.view().witnesses.map(({ fence }) => fence)).toEqual([2n]);
  });

  it('follows a leader that has moved', async () => {
    await done(topic.read());
    stage.kafka.cluster.moveLeader(WITNESS, 0, 2);
    expect((await done(topic.write([{ put: witness(1n) }]))).witnesses).toEqual([witness(1n)]);
    expect(log().end, 'written once').toBe(2);
  });

  it('is not sent while an earlier one is in flight, which could be appended after it', async () => {
    await done(topic.read());
    const sentMs: number[] = [];
    stage.kafka.network.script = (call, way) => {
      if (call !== 'produce') return undefined;
      if (way === 'there') sentMs.push(stage.runtime.monotonicMs());
      return way === 'there' ? 0 : 1_000;
    };
    const beganMs = stage.runtime.monotonicMs();
    await done(Promise.all([1n, 2n, 3n].map((fence) => topic.write([{ put: witness(fence) }]))));
    expect(sentMs.map((ms) => ms - beganMs)).toEqual([0, 1_000, 2_000]);
    expect(follower.view().witnesses.map(({ fence }) => fence)).toEqual([1n, 2n, 3n]);
  });

  it('is not sent if its time was spent waiting for the earlier one', async () => {
    await done(topic.read());
    stage.kafka.network.script = (call) => (call === 'produce' ? 3_900 : undefined);
    const writes = [1n, 2n].map((fence) => failure(topic.write([{ put: witness(fence) }])));
    const [first, second] = await Promise.all(writes);
    expect([first?.code, second?.code]).toEqual(['KAFKA_UNAVAILABLE', 'KAFKA_UNAVAILABLE']);
    expect(stage.produces.length).toBe(2); // the read's, and the first of these
  });
});

describe('a read', () => {
  it('ends after a record that was written after it started', async () => {
    stage.kafka.cluster.send(WITNESS, 0, [record(9n)]);
    expect((await done(topic.read())).witnesses).toEqual([witness(9n)]);
    expect(recordsOf(log().batches()[1] as Buffer)).toMatchObject([{ value: null }]);
  });

  it('of a truncated log starts again, and keeps earlier witnesses', async () => {
    for (const fence of [1n, 2n, 3n]) await done(topic.write([{ put: witness(fence) }]));
    stage.kafka.cluster.truncate(WITNESS, 0, 0);
    stage.kafka.cluster.send(WITNESS, 0, [record(8n)]);
    const { code, message } = await failure(topic.read());
    expect([code, message]).toEqual(['KAFKA_UNAVAILABLE', expect.stringContaining('truncated')]);
    const fences = (await done(topic.read())).witnesses.map(({ fence }) => fence);
    expect(fences.sort()).toEqual([1n, 2n, 3n, 8n]);
  });

  it('succeeds after the reader noticed first that the log was replaced', async () => {
    for (const fence of [1n, 2n, 3n]) await done(topic.write([{ put: witness(fence) }]));
    stage.kafka.cluster.truncate(WITNESS, 0, 0);
    await stage.pass(2_000);
    stage.kafka.cluster.send(WITNESS, 0, [record(8n)]);
    expect((await done(topic.read())).witnesses.map(({ fence }) => fence).sort()).toEqual([1n, 2n, 3n, 8n]);
  });
});

describe('an unreadable record', () => {
  it('fails every call, with topic and reason, until compaction removes it', async () => {
    await done(topic.write([{ put: witness(1n) }]));
    const damaged = batchOf([record(5n)], { timestampMs: 0 });
    damaged.fill(0xff, AT.records);
    damaged.writeUInt32BE(crc32c(damaged.subarray(CHECKED_FROM)), AT.crc);
    stage.kafka.cluster.sendBatch(WITNESS, 0, damaged);
    for (const call of [() => topic.read(), () => topic.write([{ put: witness(2n) }]), () => topic.read()]) {
      const { code, message, tookMs } = await failure(call());
      expect([code, message]).toEqual(['KAFKA_UNAVAILABLE', expect.stringMatching(/'id\.witness'.*damaged/)]);
      expect(tookMs).toBeLessThan(LIMIT_MS);
    }
    stage.kafka.cluster.partition(WITNESS, 0).trim(2);
    expect((await done(topic.read())).witnesses.map(({ fence }) => fence)).toEqual([1n, 2n]);
  });
});

describe('the follower', () => {
  it('accepts gaps, and ignores repeated records', async () => {
    const alone = new WitnessFollower(4);
    const at = (offset: number, fence: bigint) => ({ offset, ...record(fence) });
    const over = new AbortController();
    const reached = [5, 9].map((offset) => alone.reached(offset, over.signal));
    alone.deliver([at(0, 1n), at(7, 2n)], 8);
    await reached[0];
    alone.deliver([{ ...at(3, 2n), value: null }], 4);
    expect(alone.position).toBe(8);
    expect(alone.view().witnesses.map(({ fence }) => fence)).toEqual([1n, 2n]);
    alone.deliver([], 10); // what was at the end is gone
    await reached[1];
  });
});
