import { describe, expect, it } from 'vitest';
import { headOf, isSound } from '../../support/fake-kafka/batches.ts';
import { fetchOf, plain, produceTo, Stage, valuesIn } from './stage.ts';

describe('simulated brokers', () => {
  it('store a batch at the next offsets, stamped and with a new checksum where the topic says so', async () => {
    const stage = new Stage();
    const { cluster } = stage.kafka;
    cluster.createTopic('stamped', { configs: { 'message.timestamp.type': 'LogAppendTime' } });
    cluster.createTopic('plain');
    const link = await stage.link();
    const answers = [];
    for (const topic of ['stamped', 'stamped', 'plain']) {
      answers.push(await stage.outcome(link.call('produce', produceTo(topic, stage.batch('a', 'b')))));
    }
    const nowMs = cluster.broker(1).clock.wallMs();
    expect(answers.map(({ baseOffset, appendedAtMs }) => [baseOffset, appendedAtMs])).toEqual([
      [0, nowMs],
      [2, nowMs],
      [0, -1],
    ]);
    const stored = ['stamped', 'plain'].flatMap((topic) => cluster.partition(topic, 0).log.batches());
    expect(stored.map(isSound)).toEqual([true, true, true]);
    expect(stored.map((batch) => headOf(batch).maxTimestampMs)).toEqual([nowMs, nowMs, 1_000]);
  });

  it('reject a corrupted batch, and one that is too large', async () => {
    const stage = new Stage();
    stage.kafka.cluster.createTopic('t', { configs: { 'max.message.bytes': '100' } });
    const link = await stage.link();
    const damaged = stage.batch('a');
    damaged[damaged.length - 1] = (damaged.at(-1) ?? 0) ^ 1;
    const faults = [];
    for (const batch of [damaged, stage.batch('a'.repeat(100)), stage.batch('a')]) {
      faults.push((await stage.outcome(link.call('produce', produceTo('t', batch)))).errorCode);
    }
    expect(faults).toEqual(['CORRUPT_MESSAGE', 'MESSAGE_TOO_LARGE', undefined]);
  });

  it('return batches from the one with the offset on, the first whole and the last truncated', async () => {
    const stage = new Stage();
    const { cluster } = stage.kafka;
    cluster.createTopic('t');
    for (const values of [['a', 'b', 'c'], ['d'], ['e']]) cluster.send('t', 0, values.map(plain));
    const link = await stage.link();
    const read = async (offset: number, maxBytes: number) => {
      const { partitions } = await stage.outcome(link.call('fetch', fetchOf({ topic: 't', offset, maxBytes })));
      return partitions[0]?.records ?? Buffer.alloc(0);
    };
    expect(valuesIn(await read(1, 1_000_000)).map(([, value]) => value)).toEqual(['a', 'b', 'c', 'd', 'e']);
    const [whole] = cluster.partition('t', 0).log.batches();
    expect((await read(1, 1)).equals(whole ?? Buffer.alloc(0))).toBe(true);
    expect(await read(1, (whole?.length ?? 0) + 10)).toHaveLength((whole?.length ?? 0) + 10);
    expect(await read(5, 1_000_000)).toHaveLength(0);
  });

  it('reject an offset outside the log, and can trim its head', async () => {
    const stage = new Stage();
    const { cluster } = stage.kafka;
    cluster.createTopic('t');
    for (const value of ['a', 'b', 'c']) cluster.send('t', 0, [plain(value)]);
    cluster.partition('t', 0).trim(2);
    const link = await stage.link();
    const faults = [];
    for (const offset of [1, 2, 3, 4]) {
      const { partitions } = await stage.outcome(link.call('fetch', fetchOf({ topic: 't', offset })));
      faults.push(partitions[0]?.errorCode);
    }
    expect(faults).toEqual(['OFFSET_OUT_OF_RANGE', undefined, undefined, 'OFFSET_OUT_OF_RANGE']);
  });

  it('hold a fetch until there are records, or the wait is over', async () => {
    const stage = new Stage();
    stage.kafka.cluster.createTopic('t');
    const link = await stage.link();
    const idle = link.call('fetch', { ...fetchOf({ topic: 't' }), maxWaitMs: 500 });
    const beganMs = stage.world.nowMs;
    expect((await stage.outcome(idle)).partitions[0]?.records).toHaveLength(0);
    expect(stage.world.nowMs - beganMs).toBe(500);
    const woken = link.call('fetch', { ...fetchOf({ topic: 't' }), maxWaitMs: 500 });
    await stage.pass(100);
    stage.kafka.cluster.send('t', 0, [plain('a')]);
    expect(valuesIn((await stage.outcome(woken)).partitions[0]?.records ?? Buffer.alloc(0))).toEqual([[0, 'a']]);
    expect(stage.world.nowMs - beganMs).toBe(600);
  });

  it('hide open transactions from readers of committed records, and list the aborted ones', async () => {
    const stage = new Stage();
    const { cluster } = stage.kafka;
    cluster.createTopic('t');
    cluster.send('t', 0, [plain('a')]);
    cluster.send('t', 0, [plain('bad')], 7n);
    cluster.send('t', 0, [plain('b')]);
    const link = await stage.link();
    const fetch = async () => {
      const request = { ...fetchOf({ topic: 't' }), isolation: 'read_committed' as const };
      const [read] = (await stage.outcome(link.call('fetch', request))).partitions;
      return { ...read, values: valuesIn(read?.records ?? Buffer.alloc(0)).map(([, value]) => value) };
    };
    expect(await fetch()).toMatchObject({ highWatermark: 3, lastStableOffset: 1, values: ['a'], aborted: [] });
    cluster.endTransaction('t', 0, 'abort', 7n);
    expect(await fetch()).toMatchObject({ lastStableOffset: 4, aborted: [{ producerId: 7n, firstOffset: 1 }] });
    cluster.send('t', 0, [plain('good')], 8n);
    cluster.endTransaction('t', 0, 'commit', 8n);
    expect(await fetch()).toMatchObject({ lastStableOffset: 6, aborted: [{ producerId: 7n, firstOffset: 1 }] });
  });

  it('return the bounds of a log, and the first record of a time', async () => {
    const stage = new Stage();
    const { cluster } = stage.kafka;
    cluster.createTopic('t');
    const times: number[] = [];
    for (const value of ['a', 'b', 'c']) {
      times.push(Math.floor(stage.kafka.cluster.clock.wallMs()));
      cluster.send('t', 0, [plain(value)]);
      await stage.pass(1_000);
    }
    cluster.partition('t', 0).trim(1);
    const link = await stage.link();
    const asked = [-1, -2, times[1] ?? 0, (times[1] ?? 0) + 1, Number.MAX_SAFE_INTEGER];
    const partitions = asked.map((timestampMs) => ({ topic: 't', partition: 0, timestampMs }));
    const answer = await stage.outcome(link.call('listOffsets', { isolation: 'read_uncommitted', partitions }));
    expect(answer.partitions.map(({ offset }) => offset)).toEqual([3, 1, 1, 2, -1]);
  });
});

describe('replicas of a partition', () => {
  const three = (replicationMs: number) => {
    const stage = new Stage({ nodes: 3, replicationMs: () => replicationMs, fenceAfterMs: 1_000 });
    stage.kafka.cluster.createTopic('t', { configs: { 'min.insync.replicas': '2' } });
    return stage;
  };

  it('must all have a record before it is acknowledged or visible', async () => {
    const stage = three(200);
    const link = await stage.link();
    const append = link.call('produce', produceTo('t', stage.batch('a')));
    await stage.pass(100);
    const [read] = (await stage.outcome(link.call('fetch', fetchOf({ topic: 't' })))).partitions;
    await stage.outcome(append);
    expect(read?.highWatermark).toBe(1); // on the same connection, so answered after the append
    const other = await stage.link();
    stage.kafka.cluster.sendBatch('t', 0, stage.batch('b'));
    const [early] = (await stage.outcome(other.call('fetch', fetchOf({ topic: 't', offset: 1 })))).partitions;
    expect([early?.highWatermark, early?.records.length]).toEqual([1, 0]);
  });

  it('keep what was acknowledged with acks=all, and may lack the rest', async () => {
    const stage = three(200);
    const { cluster } = stage.kafka;
    const link = await stage.link();
    await stage.outcome(link.call('produce', produceTo('t', stage.batch('safe'))));
    const weak = { ...produceTo('t', stage.batch('weak')), acks: 1 } as unknown as ReturnType<typeof produceTo>;
    expect(await stage.outcome(link.call('produce', weak))).toMatchObject({ baseOffset: 1 });
    cluster.crash(1);
    await stage.pass(2_000);
    const [leader, other] = [cluster.partition('t', 0).leadership.leader, await stage.link(2)];
    expect(leader).toBe(2);
    const [read] = (await stage.outcome(other.call('fetch', fetchOf({ topic: 't' })))).partitions;
    expect(valuesIn(read?.records ?? Buffer.alloc(0))).toEqual([[0, 'safe']]);
  });

  it('are too few for an append when only the leader is left', async () => {
    const stage = three(1);
    const { cluster } = stage.kafka;
    cluster.crash(2);
    cluster.crash(3);
    await stage.pass(2_000);
    const link = await stage.link();
    expect((await stage.outcome(link.call('produce', produceTo('t', stage.batch('a'))))).errorCode).toBe(
      'NOT_ENOUGH_REPLICAS',
    );
    cluster.restart(2);
    await stage.pass(100);
    expect((await stage.outcome(link.call('produce', produceTo('t', stage.batch('a'))))).errorCode).toBeUndefined();
  });

  it('that no longer lead reject calls once they know it', async () => {
    const stage = three(1);
    const { cluster } = stage.kafka;
    const link = await stage.link();
    cluster.deafen(1, 3_000);
    cluster.moveLeader('t', 0, 2);
    const append = link.call('produce', produceTo('t', stage.batch('a')));
    await stage.pass(2_900);
    expect(cluster.partition('t', 0).log.end).toBe(0);
    expect((await stage.outcome(append)).errorCode).toBe('NOT_LEADER_FOR_PARTITION');
    expect(stage.world.nowMs).toBeGreaterThanOrEqual(3_000);
    const { topics } = await stage.outcome(link.call('metadata', { topics: ['t'] }));
    expect(topics[0]?.partitions[0]?.leader).toBe(2);
  });

  it('of a frozen broker get another leader after a while, and answer when it resumes', async () => {
    const stage = three(1);
    const { cluster } = stage.kafka;
    const link = await stage.link();
    cluster.freeze(1);
    const append = link.call('produce', produceTo('t', stage.batch('a')));
    await stage.pass(2_000);
    const other = await stage.link(2);
    expect((await stage.outcome(other.call('produce', produceTo('t', stage.batch('b'))))).baseOffset).toBe(0);
    cluster.thaw(1);
    expect((await stage.outcome(append)).errorCode).toBe('NOT_LEADER_FOR_PARTITION');
  });
});
