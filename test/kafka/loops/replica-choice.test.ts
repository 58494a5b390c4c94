import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ReplicaChoice } from '../../../src/kafka/loops/replica-choice.ts';
import { Tail } from '../../../src/kafka/loops/tail.ts';
import type { Followed } from '../../../src/kafka/loops/tail-port.ts';
import { Collected, LoopStage, range, T } from '../../support/loop-stage.ts';

const MAX_WAIT_MS = 100;
const MINUTE_MS = 60_000;
/** The first partition of a topic is led by broker 1, and broker 2 has a replica. */
const [LEADER, NEAR] = [1, 2];
const HERE = 'zone-2';

let stage: LoopStage;
let tail: Tail;
let sink: Interrupted;

class Interrupted extends Collected {
  interruptions = 0;

  interrupted(): void {
    this.interruptions += 1;
  }
}

beforeEach(() => {
  const racks = new Map([LEADER, NEAR, 3].map((node) => [node, `zone-${node}`]));
  stage = new LoopStage({ nodes: 3, racks });
  stage.kafka.cluster.createTopic(T, { partitions: 1 });
  sink = new Interrupted();
});

afterEach(async () => {
  await stage.close(tail);
  await stage.pass(200_000);
  expect(stage.runtime.pending, 'timers left behind').toBe(0);
});

/** Follows the partition, from this offset. */
function follow(options: { readonly rack?: string; readonly mayLag?: boolean; readonly offset?: number }): Followed {
  const { rack, mayLag = true, offset = 0 } = options;
  const { cluster, runtime } = stage;
  // One batch in each response.
  const limits = { maxWaitMs: MAX_WAIT_MS, maxBytes: 8_000_000, maxBytesPerPartition: 1 };
  tail = new Tail({ cluster, runtime, purpose: 'ledger', isolation: 'read_uncommitted', ...limits, rack });
  return tail.follow({ topic: T, partition: 0, offset, mayLag }, sink);
}

/** The brokers that are asked for records in so many milliseconds. */
async function readFrom(ms: number): Promise<ReadonlySet<number>> {
  const before = stage.fetches.length;
  await stage.pass(ms);
  const asked = stage.fetches.slice(before).filter(({ purpose }) => purpose === 'ledger');
  return new Set(asked.map(({ node }) => node));
}

async function reads(followed: Followed, count: number): Promise<void> {
  const { position } = followed;
  stage.send(0, count);
  await stage.until(() => followed.position === position + count);
}

describe('a partition that may lag', () => {
  it('is read from a replica in the rack of the reader, from the beginning', async () => {
    const followed = follow({ rack: HERE });
    await reads(followed, 5);
    await reads(followed, 2);
    const records = stage.fetches.filter(({ purpose }) => purpose === 'ledger');
    expect(new Set(records.map(({ node }) => node))).toEqual(new Set([NEAR]));
    expect([sink.offsets, sink.interruptions]).toEqual([range(0, 7), 0]);
    const [question] = stage.sent;
    expect(question).toMatchObject({ rack: HERE, maxWaitMs: 0 });
  });

  it.each([
    ['the leader is in that rack', 'zone-1'],
    ['no replica is in that rack', 'zone-9'],
    ['the reader does not know its rack', undefined],
  ])('is read from its leader if %s', async (_, rack) => {
    const followed = follow(rack === undefined ? {} : { rack });
    await reads(followed, 5);
    expect(await readFrom(1_000)).toEqual(new Set([LEADER]));
  });

  it('is read from its leader when the replica is gone, and from the replica again some minutes after it is back', async () => {
    const followed = follow({ rack: HERE });
    await reads(followed, 5);
    stage.kafka.cluster.crash(NEAR);
    await stage.pass(10_000); // the controller fences it
    await reads(followed, 5);
    expect(await readFrom(1_000)).toEqual(new Set([LEADER]));
    expect(sink.interruptions).toBeGreaterThan(0);
    stage.kafka.cluster.restart(NEAR);
    expect(await readFrom(MINUTE_MS)).toEqual(new Set([LEADER]));
    await stage.pass(5 * MINUTE_MS);
    expect(await readFrom(1_000)).toEqual(new Set([NEAR]));
    await reads(followed, 5);
    expect(sink.offsets).toEqual(range(0, 15));
  });

  it('that the replica does not have so far is read from the leader, which alone says that records are gone', async () => {
    stage.send(0, 10);
    await stage.pass(100);
    stage.kafka.cluster.fence(NEAR); // it gets no more, and does not know why
    stage.send(0, 10);
    await stage.pass(100);
    let outOfRange = 0;
    Object.assign(sink, { outOfRange: () => outOfRange++ });
    stage.distort = (answer) => {
      const isQuestion = stage.fetches.at(-1)?.purpose === 'control';
      return isQuestion
        ? { ...answer, partitions: answer.partitions.map((one) => ({ ...one, nearer: NEAR })) }
        : answer;
    };
    const followed = follow({ rack: HERE, offset: 15 });
    await stage.until(() => followed.position === 20);
    expect(await readFrom(1_000)).toEqual(new Set([LEADER]));
    expect([sink.offsets, outOfRange]).toEqual([range(15, 20), 0]);
  });

  it('is compared when it moves to its leader, and read there from the next fetch on, once it must not lag', async () => {
    const followed = follow({ rack: HERE });
    await reads(followed, 5);
    followed.mayLag(false);
    await stage.pass(2 * MAX_WAIT_MS);
    expect(sink.interruptions).toBe(1);
    expect(await readFrom(10 * MINUTE_MS)).toEqual(new Set([LEADER]));
    followed.mayLag(true);
    await stage.pass(2 * MAX_WAIT_MS);
    expect(sink.interruptions).toBe(2);
    expect(await readFrom(1_000)).toEqual(new Set([NEAR]));
    await reads(followed, 5);
    expect(sink.offsets).toEqual(range(0, 10));
  });

  it('of a replica that returns records of an earlier leader is read from the leader', async () => {
    const followed = follow({ rack: HERE });
    await reads(followed, 5);
    stage.kafka.cluster.moveLeader(T, 0, 3);
    await reads(followed, 5);
    const { interruptions } = sink;
    followed.seek(0); // the records from before the move, as a replica of an earlier life of the log has them
    await stage.until(() => followed.position === 10);
    expect(sink.interruptions).toBeGreaterThan(interruptions);
    expect(await readFrom(1_000)).toEqual(new Set([3]));
  });
});

it('a partition that must not lag is read from its leader, though a replica is near', async () => {
  const followed = follow({ rack: HERE, mayLag: false });
  await reads(followed, 5);
  expect(await readFrom(10 * MINUTE_MS)).toEqual(new Set([LEADER]));
  expect(stage.sent.filter(({ rack }) => rack !== undefined)).toEqual([]);
});

describe('a choice', () => {
  it('holds for a minute', () => {
    const choice = new ReplicaChoice();
    choice.allow(true);
    expect(choice.ask(0)).toBe(true);
    choice.chosen({ node: NEAR, end: 10 }, 0);
    expect([choice.isDue(MINUTE_MS - 1), choice.isDue(MINUTE_MS)]).toEqual([false, true]);
  });

  it('falls on the leader for five minutes if the replica lacks after a minute what the leader had before', () => {
    const choice = new ReplicaChoice();
    choice.allow(true);
    choice.ask(0);
    choice.chosen({ node: NEAR, end: 10 }, 0);
    choice.answered(9);
    expect([choice.ask(MINUTE_MS), choice.isNear]).toEqual([false, false]);
    expect([choice.isDue(6 * MINUTE_MS - 1), choice.isDue(6 * MINUTE_MS)]).toEqual([false, true]);
    choice.ask(6 * MINUTE_MS);
    choice.chosen({ node: NEAR, end: 10 }, 6 * MINUTE_MS);
    choice.answered(10);
    expect(choice.ask(7 * MINUTE_MS)).toBe(true);
  });

  it('is not put off by errors of a leader that is read anyway', () => {
    const choice = new ReplicaChoice();
    choice.failed(0);
    choice.allow(true);
    expect(choice.isDue(0)).toBe(true);
  });
});
