import kafkajs from 'kafkajs';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import type { Cluster } from '../../src/kafka/wire/cluster.ts';
import { decodeAssignment } from '../../src/kafka/wire/consumer-protocol.ts';
import { connect, HEARTBEAT_MS, openStage, PARTITIONS, Process, SESSION_MS } from '../support/group-processes.ts';
import { suiteServers } from '../support/servers.ts';

let cluster: Cluster;

beforeAll(() => {
  cluster = connect();
});

afterAll(async () => {
  await cluster.close();
});

/** The group as Kafka's own tools see it: the partitions of each member, decoded from the assignments. */
async function describeGroup(groupId: string) {
  const node = await cluster.coordinator(groupId);
  const answer = await cluster.call(node, 'control', 5_000, (link) =>
    link.call('describeGroups', { groupIds: [groupId] }),
  );
  const group = answer.groups[0];
  if (group === undefined) throw new Error('the group is not described');
  const assigned = group.members.flatMap(({ assignment }) => decodeAssignment(assignment).assigned);
  return { ...group, assigned };
}

/** Commits an offset; the broker that coordinates the group may not know the topic yet. */
const commit = ({ member }: Process, partition: number, offset: number) =>
  vi.waitFor(() => member.commit(new Map([[partition, { offset, metadata: `of ${offset}` }]])), { timeout: 60_000 });

/** A kafkajs consumer in the group of this name, of the topic of this name. */
async function foreignConsumer(groupId: string) {
  const { brokers } = suiteServers();
  const kafka = new kafkajs.Kafka({ brokers: [...brokers], logLevel: kafkajs.logLevel.NOTHING });
  const consumer = kafka.consumer({ groupId, sessionTimeout: SESSION_MS, heartbeatInterval: HEARTBEAT_MS });
  const [joined, crash] = [Promise.withResolvers<void>(), Promise.withResolvers<Error>()];
  consumer.on(consumer.events.GROUP_JOIN, () => joined.resolve());
  consumer.on(consumer.events.CRASH, ({ payload }) => crash.resolve(payload.error));
  await consumer.connect();
  await consumer.subscribe({ topic: groupId });
  await consumer.run({ autoCommit: false, eachBatch: async () => {} });
  return {
    joined: joined.promise,
    crash: crash.promise,
    [Symbol.asyncDispose]: () => consumer.disconnect(),
  };
}

const ms = (value: number) => `${Math.round(value)} ms`;

describe('members of a group on real brokers', () => {
  test("share the topic as they join and leave, and partitions that don't move stay served", async ({ annotate }) => {
    await using stage = await openStage(cluster);
    let beganMs = stage.watch();
    const a = new Process(stage);
    await stage.shared();
    await annotate(`first member: ${ms(performance.now() - beganMs)}`);

    beganMs = stage.watch();
    const b = new Process(stage);
    await stage.shared();
    await annotate(`second member: ${ms(performance.now() - beganMs)}, ${b.added.length} moved`);
    expect([a.removed.length, b.added.length]).toEqual([6, 6]);

    beganMs = stage.watch();
    const c = new Process(stage);
    await stage.shared();
    await annotate(`third member: ${ms(performance.now() - beganMs)}, ${c.added.length} moved`);
    expect([a.removed.length + b.removed.length, c.added.length]).toEqual([10, 4]);
    expect(stage.longestSilenceMs([...a.held, ...b.held])).toBe(0);

    const [before, orphans] = [[...a.held, ...b.held], c.held];
    beganMs = stage.watch();
    await stage.leave(c);
    await stage.shared();
    await annotate(`clean leave: ${ms(performance.now() - beganMs)}, silent ${ms(stage.longestSilenceMs(orphans))}`);
    expect(stage.longestSilenceMs(before)).toBe(0);
    expect([a.removed.length + b.removed.length, a.lost, b.lost]).toEqual([10, [], []]);
  });

  test('take over from a killed member when its session expires, and keep their own partitions meanwhile', async ({
    annotate,
  }) => {
    await using stage = await openStage(cluster);
    const [a, b, c] = [new Process(stage), new Process(stage), new Process(stage)];
    await stage.shared();
    const [kept, orphans] = [[...a.held, ...b.held], c.held];
    // c may have joined after the others had shared, and then has its partitions from them.
    const earlier = [a.removed.length, b.removed.length];
    const beganMs = stage.watch();
    await stage.kill(c);
    const again = new Process(stage);
    await stage.shared();
    await annotate(
      `killed, restarted as a new member: ${ms(performance.now() - beganMs)}, ${again.held.length} moved, silent ${ms(stage.longestSilenceMs(orphans))}`,
    );
    expect(stage.longestSilenceMs(kept)).toBe(0);
    expect([a.removed.length, b.removed.length]).toEqual(earlier);
    expect([...a.lost, ...b.lost]).toEqual([]);
  });

  test('take over from a killed member that does not restart', async ({ annotate }) => {
    await using stage = await openStage(cluster);
    const [a, b] = [new Process(stage, { instanceId: 'a' }), new Process(stage, { instanceId: 'b' })];
    await stage.shared();
    const beganMs = stage.watch();
    await stage.kill(b);
    await stage.shared();
    await annotate(`killed, session ${SESSION_MS} ms: ${ms(performance.now() - beganMs)}`);
    expect([a.held.length, a.lost]).toEqual([PARTITIONS, []]);
  });

  test('with instance IDs take their partitions back after a restart, without a rebalance', async ({ annotate }) => {
    await using stage = await openStage(cluster);
    const names = ['a', 'b', 'c'];
    const processes = names.map((instanceId) => new Process(stage, { instanceId }));
    await stage.shared();
    const generation = Math.max(...processes.map(({ member }) => member.generation));
    for (const [i, instanceId] of names.entries()) {
      const before = processes[i];
      if (before === undefined) throw new Error('there is no such process');
      const held = before.held;
      const beganMs = stage.watch();
      await stage.kill(before);
      const again = new Process(stage, { instanceId });
      await stage.shared();
      await annotate(`static restart: ${ms(performance.now() - beganMs)}`);
      expect(again.held).toEqual(held);
      processes[i] = again;
    }
    // The broker accepts the commits of its generation only, and a rebalance would show in the state of the group.
    await Promise.all(processes.map((one) => commit(one, one.held[0] ?? 0, 1)));
    expect(await describeGroup(stage.id)).toMatchObject({ state: 'Stable', members: [{}, {}, {}] });
    expect(processes.map(({ member }) => member.generation)).toEqual([generation, generation, generation]);
    expect(processes.flatMap(({ lost }) => lost)).toEqual([]);
    await stage.leave(processes[2] as Process);
    await stage.shared();
  });

  test('end when a later process takes their instance ID', async () => {
    await using stage = await openStage(cluster);
    const a = new Process(stage, { instanceId: 'a' });
    await stage.shared();
    const thief = new Process(stage, { instanceId: 'a' });
    await stage.when(() => a.fenced.length > 0, 'a fenced member');
    expect(a.lost).toEqual(['FENCED_INSTANCE_ID']);
    expect(a.held).toEqual([]);
    await stage.when(() => thief.held.length === PARTITIONS, 'the partitions with the later process');
  });

  test('do not notice a consumer with another assigner, which the brokers reject', async () => {
    await using stage = await openStage(cluster);
    const a = new Process(stage);
    await stage.shared();
    const { generation } = a.member;
    await using foreign = await foreignConsumer(stage.id);
    expect(await foreign.crash).toMatchObject({ type: 'INCONSISTENT_GROUP_PROTOCOL' });
    expect([a.held.length, a.member.generation, a.lost]).toEqual([PARTITIONS, generation, []]);
  });

  test('are rejected while a consumer with another assigner has the group, and join once it has left', async () => {
    await using stage = await openStage(cluster);
    const foreign = await foreignConsumer(stage.id);
    await foreign.joined;
    const refused = Promise.withResolvers<string>();
    const a = new Process(stage, {
      log: (_, fields) => 'errorCode' in fields && refused.resolve(`${fields.errorCode}`),
    });
    expect(await refused.promise).toBe('INCONSISTENT_GROUP_PROTOCOL');
    expect(a.held).toEqual([]);
    await foreign[Symbol.asyncDispose]();
    await stage.shared();
    expect(a.held).toHaveLength(PARTITIONS);
  });

  test('are an ordinary consumer group to other tools, with offsets', async () => {
    await using stage = await openStage(cluster);
    const [a, b] = [new Process(stage), new Process(stage, { instanceId: 'b' })];
    await stage.shared();
    const [mine = 0, theirs = 0] = [a.held[0], b.held[0]];
    await Promise.all([commit(a, mine, 7), commit(b, theirs, 9)]);
    const group = await describeGroup(stage.id);
    expect(group).toMatchObject({ state: 'Stable', members: [{ clientId: 'test' }, { clientId: 'test' }] });
    expect(new Set(group.assigned.map(({ topic }) => topic))).toEqual(new Set([stage.id]));
    const shares = group.assigned.map(({ partitions }) => partitions);
    expect(shares).toEqual(expect.arrayContaining([a.held, b.held]));
    const committed = await a.member.fetchCommitted([mine, theirs, (mine + 1) % PARTITIONS]);
    expect(committed.get(mine)).toEqual({ offset: 7, metadata: 'of 7' });
    expect(committed.get(theirs)).toEqual({ offset: 9, metadata: 'of 9' });
    await expect(b.member.commit(new Map([[mine, { offset: 1, metadata: '' }]]))).rejects.toThrow(RangeError);
    const [{ memberId = '' } = {}] = group.members;
    const stale = { groupId: stage.id, memberId, generation: b.member.generation - 1 };
    const refused = await cluster.call(await cluster.coordinator(stage.id), 'control', 5_000, (link) =>
      link.call('offsetCommit', { ...stale, partitions: [{ topic: stage.id, partition: mine, offset: 1 }] }),
    );
    expect(refused.partitions).toMatchObject([{ errorCode: 'ILLEGAL_GENERATION' }]);
  });
});
