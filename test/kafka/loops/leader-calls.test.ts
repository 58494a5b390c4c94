import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  type Appending,
  append,
  boundsOf,
  callLeader,
  END,
  offsetAt,
  START,
} from '../../../src/kafka/loops/leader-calls.ts';
import { Tail } from '../../../src/kafka/loops/tail.ts';
import { encodeBatch } from '../../../src/kafka/records/encode.ts';
import type { WireLog } from '../../../src/kafka/wire/broker.ts';
import { Cluster } from '../../../src/kafka/wire/cluster.ts';
import { KafkaError } from '../../../src/kafka/wire/kafka-error.ts';
import { recordsOf } from '../../support/fake-kafka/batches.ts';
import { addressOf } from '../../support/fake-kafka/view.ts';
import { Collected, LoopStage, T } from '../../support/loop-stage.ts';
import { scriptedLink } from '../../support/scripted-link.ts';

const TIMEOUT_MS = 5_000;
const RECORDS = ['a', 'b'].map((text) => ({ key: Buffer.from(text), value: Buffer.from(text) }));

/** The first partition, within the usual limits. */
const APPENDING: Omit<Appending, 'batch' | 'records'> = {
  topic: T,
  partition: 0,
  purpose: 'append' as const,
  timeoutMs: TIMEOUT_MS,
  replicationTimeoutMs: 4_000,
};

let stage: LoopStage;

beforeEach(() => {
  stage = new LoopStage({ nodes: 3 });
  stage.kafka.cluster.createTopic(T, { configs: { 'message.timestamp.type': 'LogAppendTime' } });
});

afterEach(() => stage.close());

function send(more: Partial<Omit<Appending, 'batch' | 'records'>> = {}) {
  return stage.runtime.until(append(stage.cluster, stage.runtime, { ...APPENDING, ...more, records: RECORDS }));
}

/** The fault of a call and the time it took; 'succeeded' if there was no fault. */
async function failure(work: Promise<unknown>): Promise<[string, number]> {
  const beganMs = stage.runtime.monotonicMs();
  const errorCode = await work.then(
    () => 'succeeded',
    (error: KafkaError) => error.errorCode,
  );
  return [errorCode, stage.runtime.monotonicMs() - beganMs];
}

describe('an append', () => {
  it('is one record batch, acknowledged by all replicas, and returns its offset and time', async () => {
    stage.kafka.cluster.partition(T, 0).trim(0);
    await send();
    const answer = await send();
    const { log } = stage.kafka.cluster.partition(T, 0);
    expect(answer).toMatchObject({ baseOffset: 2, logStartOffset: 0, node: 1 });
    expect(Math.abs(answer.appendedAtMs - stage.runtime.wallMs())).toBeLessThan(10);
    expect(log.batches().map((batch) => recordsOf(batch).map(({ key }) => String(key)))).toEqual(
      Array(2).fill(['a', 'b']),
    );
    expect(stage.produces.map(({ request }) => [request.acks, request.timeoutMs])).toEqual(Array(2).fill([-1, 4_000]));
  });

  it('accepts an encoded batch', async () => {
    const batch = encodeBatch(RECORDS, 0);
    await stage.runtime.until(append(stage.cluster, stage.runtime, { ...APPENDING, batch }));
    expect(stage.produces[0]?.request.batch).toBe(batch);
  });

  it('to a leader that has moved fails once, and finds the new one the next time', async () => {
    await send();
    stage.kafka.cluster.moveLeader(T, 0, 2);
    expect((await failure(send()))[0]).toBe('NOT_LEADER_FOR_PARTITION');
    expect((await send()).node).toBe(2);
    expect(stage.produces.length, 'nothing is sent twice').toBe(3);
  });

  it('to a frozen broker fails at its deadline, and the next one goes to the new leader once there is one', async () => {
    await send();
    stage.kafka.cluster.freeze(1);
    expect(await failure(send())).toEqual(['NO_RESPONSE', TIMEOUT_MS]);
    await stage.until(() => stage.kafka.cluster.partition(T, 0).leadership.leader !== 1);
    await stage.pass(1_000);
    expect((await send()).node).not.toBe(1);
  });

  it('with slow followers is answered by the broker before our own deadline', async () => {
    stage.kafka.cluster.partition(T, 0).lagging = true;
    expect((await failure(send({ timeoutMs: 3_000 })))[0]).toBe('REQUEST_TIMED_OUT');
    const [, tookMs] = await failure(send({ timeoutMs: 3_000 }));
    expect(tookMs).toBeLessThan(2_600);
  });

  it('is not sent when finding the leader took too long', async () => {
    for (const node of [1, 2, 3]) stage.kafka.cluster.freeze(node);
    const began = failure(send({ timeoutMs: 1_000 }));
    expect(await began).toEqual([expect.stringMatching(/UNREACHABLE|NO_RESPONSE/), 1_000]);
    expect(stage.produces).toEqual([]);
  });

  it('to a missing topic reports that', async () => {
    expect((await failure(send({ topic: 'none' })))[0]).toBe('UNKNOWN_TOPIC_OR_PARTITION');
    expect((await failure(send({ partition: 9 })))[0]).toBe('UNKNOWN_TOPIC_OR_PARTITION');
  });
});

describe('appends that wait for a follower', () => {
  const FENCED_MS = 6_000;
  const LEADER = 1;
  const LEADER_NAME = `${addressOf(LEADER).host}:${addressOf(LEADER).port}`;

  /** A separate cluster client that reads from the leader, and the times at which it suspected the leader. */
  async function reading() {
    const { kafka, runtime } = stage;
    const suspectedMs: number[] = [];
    const log: WireLog = (level, { broker }: { broker?: unknown }) => {
      if (level === 'warn' && broker === LEADER_NAME) suspectedMs.push(runtime.monotonicMs());
    };
    const cluster = new Cluster({ dialer: kafka.dialer(), seeds: kafka.seeds, runtime, log });
    const limits = { maxWaitMs: 500, maxBytes: 1_000_000, maxBytesPerPartition: 1_000_000 };
    const tail = new Tail({ cluster, runtime, purpose: 'ledger', isolation: 'read_uncommitted', ...limits });
    tail.follow({ topic: T, partition: 0, offset: 0 }, new Collected());
    const to = (partition: number) => {
      const at = {
        topic: T,
        partition,
        purpose: 'append' as const,
        timeoutMs: TIMEOUT_MS,
        replicationTimeoutMs: 4_000,
      };
      return failure(append(cluster, runtime, { ...at, records: RECORDS }));
    };
    const close = async () => {
      await runtime.until(tail.close());
      await runtime.until(cluster.close());
    };
    await runtime.until(to(0));
    return { to, suspectedMs, close };
  }

  beforeEach(async () => {
    await stage.close();
    stage = new LoopStage({ nodes: 3, fenceAfterMs: FENCED_MS });
    const { cluster } = stage.kafka;
    cluster.createTopic(T, { partitions: 2, replicas: 3, configs: { 'message.timestamp.type': 'LogAppendTime' } });
    for (const partition of [0, 1]) cluster.moveLeader(T, partition, LEADER);
  });

  it('time out one after the other, yet a leader that answers its readers is not suspected', async () => {
    const { to, suspectedMs, close } = await reading();
    stage.kafka.cluster.freeze(2);
    const answers = await stage.runtime.until(Promise.all([to(0), to(1)]));
    expect(answers.map(([errorCode]) => errorCode)).toEqual(['REQUEST_TIMED_OUT', 'NO_RESPONSE']);
    expect(answers[1]?.[1]).toBe(TIMEOUT_MS);
    expect(suspectedMs).toEqual([]);
    await close();
  });

  it("don't hide that their leader freezes: a new leader is found as soon as there is one", async () => {
    const { to, suspectedMs, close } = await reading();
    stage.kafka.cluster.partition(T, 0).lagging = true;
    const waiting = [to(0), to(0)];
    await stage.pass(3_500);
    stage.kafka.cluster.freeze(LEADER);
    stage.kafka.cluster.partition(T, 0).lagging = false;
    const frozenMs = stage.runtime.monotonicMs();
    await stage.runtime.until(Promise.all(waiting));
    while ((await stage.runtime.until(to(0)))[0] !== 'succeeded') await stage.pass(50);
    expect(stage.runtime.monotonicMs() - frozenMs).toBeLessThan(FENCED_MS + 1_000);
    expect((suspectedMs[0] ?? 0) - frozenMs).toBeLessThan(4_000);
    await close();
  });
});

describe('a call to a leader', () => {
  /** A cluster client that takes `findMs` to find the leader, and whose calls end as `end` says. */
  function slow(findMs: number, end: (timeoutMs: number) => Promise<never>) {
    const doubted: string[] = [];
    const cluster = {
      leader: async () => {
        await stage.runtime.sleep(findMs);
        return 1;
      },
      call: (_node: number, _purpose: string, timeoutMs: number) => end(timeoutMs),
      markStale: (topic: string) => doubted.push(topic),
    };
    const at = { topic: T, partition: 0, purpose: 'append' as const, timeoutMs: 1_000 };
    const work = callLeader(cluster as unknown as Cluster, stage.runtime, at, () => Promise.reject(new Error()));
    return { doubted, work: failure(stage.runtime.until(work)) };
  }

  it('has the rest of the deadline, and is not made when that is too short', async () => {
    const lefts: number[] = [];
    const end = async (leftMs: number) => {
      lefts.push(leftMs);
      throw new KafkaError('REQUEST_TIMED_OUT', 'too late');
    };
    expect((await slow(700, end).work)[0]).toBe('REQUEST_TIMED_OUT');
    expect((await slow(800, end).work)[0]).toBe('UNREACHABLE');
    expect(lefts).toEqual([300]);
  });

  it.each([
    ['CONNECTION_LOST', [T]],
    ['NO_RESPONSE', [T]],
    ['GROUP_AUTHORIZATION_FAILED', []],
  ])('that fails with %s puts the leader in doubt: %j', async (errorCode, doubts) => {
    const { work, doubted } = slow(0, () => Promise.reject(new KafkaError(errorCode, 'no')));
    expect([(await work)[0], doubted]).toEqual([errorCode, doubts]);
  });
});

describe('the offsets of a partition', () => {
  const query = { topic: T, partition: 0, isolation: 'read_uncommitted' as const, timeoutMs: 2_000 };
  const ask = <R>(work: Promise<R>) => stage.runtime.until(work);

  it('are those of its start, its end and a time', async () => {
    await send();
    await stage.pass(1_000);
    const laterMs = stage.runtime.wallMs();
    await send();
    stage.kafka.cluster.partition(T, 0).trim(1);
    const { cluster, runtime } = stage;
    expect(await ask(boundsOf(cluster, runtime, query))).toEqual({ logStart: 1, end: 4 });
    const asked = [START, END, laterMs, laterMs + 60_000].map((at) => offsetAt(cluster, runtime, query, at));
    expect(await ask(Promise.all(asked))).toEqual([1, 4, 2, -1]);
  });

  it('are a malformed response where they are no bounds', async () => {
    for (const [start, end] of [
      [5, 4],
      [-1, 4],
    ] as const) {
      const link = scriptedLink({
        listOffsets: async ({ partitions }) => ({
          throttleMs: 0,
          partitions: partitions.map(({ topic, partition, timestampMs }) => {
            return { topic, partition, timestampMs: -1, offset: timestampMs === START ? start : end };
          }),
        }),
      });
      const call = (_node: number, _purpose: string, _timeoutMs: number, use: (to: typeof link) => unknown) =>
        use(link);
      const cluster = { leader: async () => 1, call, markStale: () => undefined } as unknown as Cluster;
      expect((await failure(ask(boundsOf(cluster, stage.runtime, query))))[0]).toBe('MALFORMED_RESPONSE');
    }
  });

  it('are requested from the current leader; a moved one fails the call once', async () => {
    const { cluster, runtime } = stage;
    await ask(boundsOf(cluster, runtime, query));
    stage.kafka.cluster.moveLeader(T, 0, 3);
    expect((await failure(ask(boundsOf(cluster, runtime, query))))[0]).toBe('NOT_LEADER_FOR_PARTITION');
    expect(await ask(boundsOf(cluster, runtime, query))).toEqual({ logStart: 0, end: 0 });
  });
});
