import type { Producer } from 'kafkajs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { WitnessFollower } from '../../../src/adapters/kafka/witness-reader.ts';
import { WitnessTopic } from '../../../src/adapters/kafka/witness-topic.ts';
import { witnessKey, witnessValue } from '../../../src/codec/witness.ts';
import { ticks } from '../../../src/core/units.ts';

const UUID = '01234567-89ab-4cde-8f01-23456789abcd';
const LIMIT_MS = 4_000;
const witness = (fence: bigint) => ({ uuid: UUID, workerId: 7, fence, ticks: ticks(5), modRevision: fence });

interface Sent {
  readonly topic: string;
  readonly acks: number;
  readonly messages: readonly { readonly key: Buffer; readonly value: Buffer | null; readonly partition: number }[];
}

/** A topic over a producer that answers as it is told; what is sent lands at `end`, and is read when a test says so. */
function world(
  answer: (base: number) => unknown = (base) => [{ partition: 0, errorCode: 0, baseOffset: String(base) }],
) {
  const sent: Sent[] = [];
  const follower = new WitnessFollower(4);
  const its = {
    end: 0,
    sent,
    follower,
    held: Promise.resolve(),
    restarts: 0,
    /** Lets the reader come to the end. */
    readAll: () => follower.deliver(its.log.filter(({ offset }) => offset >= follower.position)),
    log: [] as { offset: number; key: Buffer | null; value: Buffer | null }[],
    topic: new WitnessTopic({
      producer: {
        send: async (record: Sent) => {
          sent.push(record);
          const base = its.end;
          for (const { key, value } of record.messages) its.log.push({ offset: its.end++, key, value });
          await its.held;
          return answer(base);
        },
      } as unknown as Producer,
      topic: 'id.witness',
      datacenterId: 4,
      follower,
      restartReader: () => {
        its.restarts += 1;
      },
      callLimitMs: LIMIT_MS,
    }),
  };
  return its;
}

const turns = async () => {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
};

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('a write', () => {
  it('is acknowledged by all replicas, in one partition, and resolves with the topic as read behind it', async () => {
    const its = world();
    let done = false;
    const writing = its.topic.write([{ put: witness(1n) }, { drop: witness(0n) }, { seal: UUID }, { clear: '4/x' }]);
    writing.then(() => {
      done = true;
    });
    await turns();
    expect(its.sent).toMatchObject([{ topic: 'id.witness', acks: -1 }]);
    expect(
      its.sent[0]?.messages.map(({ key, value, partition }) => [String(key), value && String(value), partition]),
    ).toEqual([
      [`4/${UUID}/7/1`, '1 5 1', 0],
      [`4/${UUID}/7/0`, null, 0],
      ['4', `1 ${UUID}`, 0],
      ['4/x', null, 0],
    ]);
    its.follower.deliver(its.log.slice(0, 3));
    await turns();
    expect(done).toBe(false);
    its.readAll();
    expect(await writing).toEqual({ seal: UUID, witnesses: [witness(1n)], unreadable: [] });
    expect(vi.getTimerCount()).toBe(0);
  });

  it.each([
    ['nothing', []],
    ['another partition', [{ partition: 1, errorCode: 0, baseOffset: '0' }]],
    ['an error', [{ partition: 0, errorCode: 7, baseOffset: '0' }]],
    ['no offset', [{ partition: 0, errorCode: 0, baseOffset: '-1' }]],
    ['two answers', Array(2).fill({ partition: 0, errorCode: 0, baseOffset: '0' })],
  ])('that is answered with %s has no answer', async (_what, answer) => {
    const its = world(() => answer);
    await expect(its.topic.write([{ put: witness(1n) }])).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  });

  it.each([
    ['is not answered', false],
    ['is answered but not read', true],
  ])('that %s is given up in time', async (_what, answered) => {
    const its = world();
    if (!answered) its.held = new Promise(() => undefined);
    const failed = expect(its.topic.write([{ put: witness(1n) }])).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    await turns();
    vi.advanceTimersByTime(LIMIT_MS);
    await failed;
    expect(vi.getTimerCount()).toBe(0);
  });

  it('is not sent while one before is under way: that could come to lie behind it', async () => {
    const its = world();
    const { promise, resolve } = Promise.withResolvers<void>();
    its.held = promise;
    const first = its.topic.write([{ put: witness(1n) }]).catch(() => 'given up');
    await turns();
    const second = its.topic.write([{ put: witness(2n) }]).catch(() => 'given up');
    await turns();
    vi.advanceTimersByTime(LIMIT_MS);
    expect(await Promise.all([first, second])).toEqual(['given up', 'given up']);
    resolve();
    await turns();
    expect(its.sent, 'the second was given up before its turn came').toHaveLength(1);
    const third = its.topic.write([{ put: witness(3n) }]);
    await turns();
    its.readAll();
    expect((await third).witnesses.map(({ fence }) => fence)).toEqual([1n, 3n]);
  });
});

describe('a read', () => {
  it('ends behind a record that was written after it began', async () => {
    const its = world();
    const key = witnessKey(4, witness(9n));
    its.log.push({ offset: its.end++, key, value: witnessValue(witness(9n)) });
    const reading = its.topic.read();
    await turns();
    its.readAll();
    expect((await reading).witnesses).toEqual([witness(9n)]);
    expect(its.sent[0]?.messages).toMatchObject([{ value: null }]);
  });

  it('of a log that has become shorter begins it anew, and keeps what was witnessed', async () => {
    const its = world();
    const writing = its.topic.write([{ put: witness(1n) }]);
    await turns();
    its.readAll();
    await writing;
    its.end = 0;
    its.log.length = 0;
    await expect(its.topic.read()).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect([its.restarts, its.follower.position]).toEqual([1, 0]);
    const again = its.topic.read();
    await turns();
    its.readAll();
    expect((await again).witnesses).toEqual([witness(1n)]);
  });
});

describe('the follower', () => {
  it('takes holes for granted, and what comes a second time as known', async () => {
    const follower = new WitnessFollower(4);
    const record = (offset: number, fence: bigint) => {
      return { offset, key: witnessKey(4, witness(fence)), value: witnessValue(witness(fence)) };
    };
    const over = new AbortController();
    const reached = follower.reached(5, over.signal);
    follower.deliver([record(0, 1n), record(7, 2n)]);
    await reached;
    follower.deliver([{ offset: 3, key: witnessKey(4, witness(2n)), value: null }]);
    expect(follower.position).toBe(8);
    expect(follower.view().witnesses.map(({ fence }) => fence)).toEqual([1n, 2n]);
  });
});
