import { describe, expect, it } from 'vitest';
import { fetchOf, plain, produceTo, Stage, valuesIn } from './stage.ts';

describe('simulated brokers', () => {
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
    expect(stage.runtime.nowMs).toBeGreaterThanOrEqual(3_000);
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
