import type { Admin, ITopicConfig } from 'kafkajs';
import { describe, expect, test } from 'vitest';
import {
  type FoundTopic,
  judgeTopics,
  planTopics,
  type TopicSettings,
} from '../../../src/adapters/kafka/topic-plan.ts';
import { checkTopics, initTopics } from '../../../src/adapters/kafka/topics.ts';

const HOUR_MS = 3_600_000;

const SETTINGS: TopicSettings = {
  requests: 'id.requests',
  ledger: 'id.ledger',
  deadLetters: 'id.requests.dlt',
  witness: 'id.witness',
  replyPrefix: 'id.replies.',
  requestPartitions: 12,
  replicationFactor: 3,
  requestRetentionMs: 24 * HOUR_MS,
  ledgerRetentionMs: 26 * HOUR_MS,
  allowWeakLedger: false,
};

/** The topics as planned, all made. */
function planned(settings: TopicSettings = SETTINGS): Map<string, FoundTopic> {
  return new Map(
    planTopics(settings).map(({ name, partitions, configs }) => [
      name,
      { name, partitions, replicas: settings.replicationFactor, configs: new Map(Object.entries(configs)) },
    ]),
  );
}

function changed(name: string, change: Partial<FoundTopic> | Record<string, string>): Map<string, FoundTopic> {
  const topics = planned();
  const topic = topics.get(name);
  if (topic === undefined) throw new Error(`no topic ${name}`);
  const isCount = 'partitions' in change || 'replicas' in change;
  const configs = new Map([...topic.configs, ...(isCount ? [] : Object.entries(change as Record<string, string>))]);
  topics.set(name, { ...topic, configs, ...(isCount ? change : {}) });
  return topics;
}

/** A cluster that keeps topics in memory and answers as kafkajs's admin client does. */
function cluster(topics: Map<string, FoundTopic>, brokers = 3) {
  const made: ITopicConfig[] = [];
  const admin = {
    listTopics: async () => [...topics.keys()],
    describeCluster: async () => ({
      brokers: Array.from({ length: brokers }),
      controller: 1,
      clusterId: 'the-cluster',
    }),
    fetchTopicMetadata: async ({ topics: names = [] }: { topics?: string[] } = {}) => ({
      topics: names.map((name) => ({
        name,
        partitions: Array.from({ length: topics.get(name)?.partitions ?? 0 }, (_, partitionId) => ({
          partitionId,
          leader: 1,
          replicas: Array.from({ length: topics.get(name)?.replicas ?? 0 }),
        })),
      })),
    }),
    describeConfigs: async ({ resources }: { resources: { name: string }[] }) => ({
      resources: resources.map(({ name }) => ({
        resourceName: name,
        configEntries: [...(topics.get(name)?.configs ?? [])].map(([configName, configValue]) => ({
          configName,
          configValue,
        })),
      })),
    }),
    createTopics: async ({ topics: [config] }: { topics: ITopicConfig[] }) => {
      if (config === undefined || topics.has(config.topic)) return false;
      made.push(config);
      topics.set(config.topic, {
        name: config.topic,
        partitions: config.numPartitions ?? 0,
        replicas: config.replicationFactor ?? 0,
        configs: new Map(config.configEntries?.map(({ name, value }) => [name, value])),
      });
      return true;
    },
  };
  return { admin: admin as unknown as Admin, made };
}

const codes = ({ faults }: { faults: readonly { code: string }[] }) => faults.map(({ code }) => code);

describe('initTopics', () => {
  test('makes every topic on an empty cluster, and those are without fault', async () => {
    const topics = new Map<string, FoundTopic>();
    const { admin, made } = cluster(topics);
    const { created, differences } = await initTopics(admin, SETTINGS);
    expect(created).toEqual(['id.requests', 'id.ledger', 'id.requests.dlt', 'id.witness', 'id.replies.cli']);
    expect(differences).toEqual([]);
    expect(made.every(({ replicationFactor }) => replicationFactor === 3)).toBe(true);
    expect(judgeTopics(topics, SETTINGS)).toEqual({ faults: [], waivable: [] });
  });

  test('makes nothing the second time', async () => {
    const { admin, made } = cluster(new Map());
    await initTopics(admin, SETTINGS);
    const before = made.length;
    expect(await initTopics(admin, SETTINGS)).toEqual({ created: [], differences: [] });
    expect(made).toHaveLength(before);
  });

  test("makes a service's topics for replies, and leaves those that are there as they are", async () => {
    const { admin, made } = cluster(planned());
    const names = ['id.replies.orders', 'id.requests.reply', 'id.replies.orders', 'id.replies.cli'];
    expect((await initTopics(admin, SETTINGS, names)).created).toEqual(['id.replies.orders', 'id.requests.reply']);
    expect(made.map(({ numPartitions }) => numPartitions)).toEqual([12, 12]);
    expect(await initTopics(admin, SETTINGS, names)).toEqual({ created: [], differences: [] });
  });

  test.each(['orders', 'id.ledger', 'id.replies.a/b', 'id.replies.\0', `id.replies.${'a'.repeat(300)}`])(
    'makes nothing where no worker would reply: %s',
    async (name) => {
      const { admin, made } = cluster(new Map());
      await expect(initTopics(admin, SETTINGS, [name])).rejects.toMatchObject({ code: 'INVALID_REPLY_TOPIC' });
      expect(made).toEqual([]);
    },
  );

  test('tells where an existing topic differs, and leaves it alone', async () => {
    const topics = changed('id.ledger', { 'retention.ms': '1000' });
    const { admin, made } = cluster(topics);
    const { differences } = await initTopics(admin, SETTINGS);
    expect(differences).toEqual([`id.ledger: retention.ms is 1000, not ${26 * HOUR_MS}`]);
    expect(made).toEqual([]);
    expect(topics.get('id.ledger')?.configs.get('retention.ms')).toBe('1000');
  });

  test('waits for a broker that does not know the new topics yet', async () => {
    const { admin } = cluster(new Map());
    const refusals = ['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE'];
    const late = {
      ...admin,
      fetchTopicMetadata: async (options: { topics: string[] }) => {
        const type = refusals.shift();
        if (type !== undefined) throw Object.assign(new Error('not yet'), { type });
        return admin.fetchTopicMetadata(options);
      },
    } as unknown as Admin;
    expect((await initTopics(late, SETTINGS)).created).toHaveLength(5);
    expect(refusals).toEqual([]);
  });

  test('makes a topic anew that is being deleted while it looks', async () => {
    const topics = planned();
    const { admin } = cluster(topics);
    const deleted = {
      ...admin,
      describeConfigs: async (options: Parameters<Admin['describeConfigs']>[0]) => {
        if (!topics.delete('id.ledger')) return admin.describeConfigs(options);
        throw Object.assign(new Error('gone'), { type: 'UNKNOWN_TOPIC_OR_PARTITION' });
      },
    } as unknown as Admin;
    expect((await initTopics(deleted, SETTINGS)).created).toEqual(['id.ledger']);
  });

  test('refuses to make topics with more replicas than brokers', async () => {
    const { admin, made } = cluster(new Map(), 1);
    await expect(initTopics(admin, SETTINGS)).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
    expect(made).toEqual([]);
  });

  test('asks for two replicas in sync only where there are three', () => {
    const inSync = (replicationFactor: number) =>
      planTopics({ ...SETTINGS, replicationFactor }).find(({ name }) => name === 'id.ledger')?.configs[
        'min.insync.replicas'
      ];
    expect([1, 2, 3, 5].map(inSync)).toEqual(['1', '1', '2', '2']);
  });
});

describe('checkTopics', () => {
  test('answers with the partition count and the ID of the cluster', async () => {
    const { admin } = cluster(planned());
    expect(await checkTopics(admin, SETTINGS)).toEqual({
      partitions: 12,
      clusterId: 'the-cluster',
      faults: [],
      warnings: [],
      differences: [],
      mends: [],
    });
  });

  test('finds every missing topic on an empty cluster', async () => {
    const { admin } = cluster(new Map());
    const report = await checkTopics(admin, SETTINGS);
    expect(codes(report)).toEqual(['TOPIC_INVALID', 'TOPIC_INVALID', 'TOPIC_INVALID', 'TOPIC_INVALID']);
    expect(report.partitions).toBe(0);
  });

  test.each([
    ['other partitions than REQUEST_PARTITIONS', 'id.requests', { partitions: 13 }, ['TOPIC_INVALID', 'TOPIC_INVALID']],
    ['a ledger of other partitions', 'id.ledger', { partitions: 11 }, ['TOPIC_INVALID']],
    ['compressed requests', 'id.requests', { 'compression.type': 'producer' }, ['TOPIC_INVALID']],
    ['requests above 1 MiB', 'id.requests', { 'max.message.bytes': '1048577' }, ['TOPIC_INVALID']],
    ['a witness that is not compacted', 'id.witness', { 'cleanup.policy': 'delete' }, ['TOPIC_INVALID']],
    ['a witness that goes by age as well', 'id.witness', { 'cleanup.policy': 'delete,compact' }, ['TOPIC_INVALID']],
    ['a witness of two partitions', 'id.witness', { partitions: 2 }, ['TOPIC_INVALID']],
    ['unclean election', 'id.witness', { 'unclean.leader.election.enable': 'true' }, ['TOPIC_INVALID']],
    ['two replicas of the witness', 'id.witness', { replicas: 2 }, ['LEDGER_WEAK']],
    ['compacted requests', 'id.requests', { 'cleanup.policy': 'compact,delete' }, ['TOPIC_INVALID']],
    ['compacted dead letters', 'id.requests.dlt', { 'cleanup.policy': 'compact' }, ['TOPIC_INVALID']],
    ['a compacted ledger', 'id.ledger', { 'cleanup.policy': 'compact,delete' }, ['LEDGER_WEAK']],
    [
      "the producers' timestamps in the ledger",
      'id.ledger',
      { 'message.timestamp.type': 'CreateTime' },
      ['LEDGER_WEAK'],
    ],
    ['unclean election', 'id.ledger', { 'unclean.leader.election.enable': 'true' }, ['LEDGER_WEAK']],
    ['two replicas of the ledger', 'id.ledger', { replicas: 2 }, ['LEDGER_WEAK']],
    ['one replica in sync', 'id.ledger', { 'min.insync.replicas': '1' }, ['LEDGER_WEAK']],
    ['a ledger a ms too short', 'id.ledger', { 'retention.ms': String(26 * HOUR_MS - 1) }, ['LEDGER_RETENTION']],
    ['longer requests', 'id.requests', { 'retention.ms': String(24 * HOUR_MS + 1) }, ['LEDGER_RETENTION']],
    ['longer segments of requests', 'id.requests', { 'segment.ms': String(HOUR_MS + 1) }, ['LEDGER_RETENTION']],
    ['endless requests', 'id.requests', { 'retention.ms': '-1' }, ['LEDGER_RETENTION']],
    ['a ledger that goes by size', 'id.ledger', { 'retention.bytes': '1000000' }, ['LEDGER_RETENTION']],
    ['a retention that is not told', 'id.ledger', { 'retention.ms': 'undefined' }, ['LEDGER_RETENTION']],
  ])('finds %s', async (_, name, change, expected) => {
    const { admin } = cluster(changed(name, change));
    expect(codes(await checkTopics(admin, SETTINGS))).toEqual(expected);
  });

  test.each([
    ['an endless ledger', 'id.ledger', { 'retention.ms': '-1' }],
    ['smaller requests', 'id.requests', { 'max.message.bytes': '65536' }],
    ['more replicas', 'id.ledger', { replicas: 5 }],
  ])('has nothing against %s', async (_, name, change) => {
    const { admin } = cluster(changed(name, change));
    expect(codes(await checkTopics(admin, SETTINGS))).toEqual([]);
  });

  test('with ALLOW_WEAK_LEDGER only warns of too few replicas, of ledger and witness', async () => {
    const settings = { ...SETTINGS, replicationFactor: 1, allowWeakLedger: true };
    const { admin } = cluster(planned(settings), 1);
    const { faults, warnings } = await checkTopics(admin, settings);
    expect(faults).toEqual([]);
    expect(warnings.map(({ code }) => code)).toEqual(Array(4).fill('LEDGER_WEAK'));
  });

  test.each([
    ['a compacted ledger', { 'cleanup.policy': 'compact' }],
    ['a short ledger', { 'retention.ms': '60000' }],
  ])('with ALLOW_WEAK_LEDGER still refuses %s', async (_, change) => {
    const { admin } = cluster(changed('id.ledger', change));
    expect((await checkTopics(admin, { ...SETTINGS, allowWeakLedger: true })).faults).toHaveLength(1);
  });

  test('tells brokers that do not answer as KAFKA_UNAVAILABLE', async () => {
    const admin = { describeCluster: () => Promise.reject(new Error('Connection timeout')) } as unknown as Admin;
    await expect(checkTopics(admin, SETTINGS)).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
  });
});
