import { describe, expect, test } from 'vitest';
import { judgeTopics } from '../../../../src/adapters/kafka/topics/judge.ts';
import { type FoundTopic, planTopics, workerTopics } from '../../../../src/adapters/kafka/topics/plan.ts';
import { checkTopics, initTopics, retentionOf, waitForLeaders } from '../../../../src/adapters/kafka/topics/topics.ts';
import type { DescribeConfigsResponse, TopicMetadata } from '../../../../src/kafka/wire/topic-apis.ts';
import type { Answer } from '../../../support/scripted-link.ts';
import { CONTROLLER, failing, metadataAnswer, scriptedBrokers } from '../scripted-brokers.ts';
import { changed, cluster, codes, HOUR_MS, planned, SETTINGS } from './topics-stage.ts';

/** Java's largest number, with which some say that there is no limit. */
const LONG_MAX = '9223372036854775807';

describe('retentionOf', () => {
  const configsOf = async (found: DescribeConfigsResponse['topics'][number]) => {
    const { link } = cluster(planned());
    const describeConfigs = async () => ({ throttleMs: 0, topics: [found] });
    return await retentionOf(scriptedBrokers({ link: () => ({ ...link, describeConfigs }) }), found.name);
  };

  test('is what the topic has, or nothing if this user may not see it', async () => {
    const name = 'id.ledger';
    expect(await retentionOf(cluster(planned()).brokers, name)).toBe(26 * HOUR_MS);
    for (const endless of [
      ['retention.ms', '-1'],
      ['retention.ms', LONG_MAX],
      ['cleanup.policy', ''],
    ] as const) {
      expect(await configsOf({ name, configs: new Map([endless]) })).toBe(-1);
    }
    const denied = { name, errorCode: 'TOPIC_AUTHORIZATION_FAILED', configs: new Map() } as const;
    expect(await configsOf(denied)).toBeUndefined();
  });
});

describe('initTopics', () => {
  test('creates every topic on an empty cluster, without faults', async () => {
    const topics = new Map<string, FoundTopic>();
    const { brokers, issued } = cluster(topics);
    const { created, differences } = await initTopics(brokers, SETTINGS);
    expect(created).toEqual(['id.requests', 'id.ledger', 'id.requests.dlt', 'id.witness', 'id.replies.cli']);
    expect(differences).toEqual([]);
    expect(issued.every(({ replicas }) => replicas === 3)).toBe(true);
    expect(judgeTopics(topics, SETTINGS)).toEqual({ faults: [], added: [], waivable: [] });
  });

  test('creates nothing the second time', async () => {
    const { brokers, issued } = cluster(new Map());
    await initTopics(brokers, SETTINGS);
    const before = issued.length;
    expect(await initTopics(brokers, SETTINGS)).toEqual({ created: [], differences: [], refused: [] });
    expect(issued).toHaveLength(before);
  });

  test('creates the topic for replies to HTTP callers where there are any; a worker can start without it', async () => {
    const settings = { ...SETTINGS, apiReplies: 'id.replies.http' };
    const { brokers, issued } = cluster(planned());
    expect((await initTopics(brokers, settings)).created).toEqual(['id.replies.http']);
    expect(issued).toMatchObject([{ partitions: 12, configs: { 'retention.ms': String(HOUR_MS) } }]);
    expect(workerTopics(settings)).toEqual(workerTopics(SETTINGS));
  });

  test("creates a service's reply topics, and leaves existing ones unchanged", async () => {
    const { brokers, issued } = cluster(planned());
    const names = ['id.replies.orders', 'id.requests.reply', 'id.replies.orders', 'id.replies.cli'];
    expect((await initTopics(brokers, SETTINGS, names)).created).toEqual(['id.replies.orders', 'id.requests.reply']);
    expect(issued.map(({ partitions }) => partitions)).toEqual([12, 12]);
    expect(await initTopics(brokers, SETTINGS, names)).toEqual({ created: [], differences: [], refused: [] });
  });

  test.each(['orders', 'id.ledger', 'id.replies.a/b', 'id.replies.\0', `id.replies.${'a'.repeat(300)}`])(
    'creates no topic on which no worker would reply: %s',
    async (name) => {
      const { brokers, issued } = cluster(new Map());
      await expect(initTopics(brokers, SETTINGS, [name])).rejects.toMatchObject({ code: 'INVALID_REPLY_TOPIC' });
      expect(issued).toEqual([]);
    },
  );

  test('reports the differences of an existing topic, and does not change it', async () => {
    const topics = changed('id.ledger', { 'retention.ms': '1000' });
    const { brokers, issued } = cluster(topics);
    const { differences } = await initTopics(brokers, SETTINGS);
    expect(differences).toEqual([`id.ledger: retention.ms is 1000, not ${26 * HOUR_MS}`]);
    expect(issued).toEqual([]);
    expect(topics.get('id.ledger')?.configs.get('retention.ms')).toBe('1000');
  });

  test('sets the compression of every topic, including reply topics of services', async () => {
    const { brokers, issued } = cluster(new Map());
    await initTopics(brokers, SETTINGS, ['id.replies.orders']);
    expect(issued.map(({ name, configs }) => [name, configs['compression.type']])).toEqual(
      ['id.requests', 'id.ledger', 'id.requests.dlt', 'id.witness', 'id.replies.cli', 'id.replies.orders'].map(
        (name) => [name, 'uncompressed'],
      ),
    );
  });

  test('waits until every broker knows the new topics and a leader of each partition', async () => {
    const { brokers, link } = cluster(new Map());
    const behind = [
      async () => metadataAnswer([{ name: 'id.ledger', errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', partitions: [] }]),
      async () => metadataAnswer([{ name: 'id.ledger', errorCode: 'LEADER_NOT_AVAILABLE', partitions: [] }]),
      async () => metadataAnswer([ledWith(-1)]),
      failing('LEADER_NOT_AVAILABLE'),
    ];
    const late = scriptedBrokers({ link: (node) => (node === 3 ? { metadata: next } : link) });
    async function next() {
      return behind.length === 0 ? metadataAnswer([ledWith(1)]) : (behind.shift() ?? failing('UNEXPECTED'))();
    }
    await initTopics(brokers, SETTINGS);
    await waitForLeaders(late, ['id.ledger']);
    expect(behind).toEqual([]);
    expect(late.nowMs()).toBe(400);
  });

  test('does not resolve before a new topic has leaders', async () => {
    const { link } = cluster(new Map());
    let asked = 0;
    const metadata: Answer<'metadata'> = async (request) => {
      const answer = await link.metadata(request);
      asked += 1;
      const isEarly = asked > 1 && asked < 12; // the first request is for the topics that exist
      const leaderless = (topic: TopicMetadata) => ({
        ...topic,
        partitions: topic.partitions.map((one) => ({ ...one, leader: -1 })),
      });
      return isEarly ? metadataAnswer(answer.topics.map(leaderless)) : answer;
    };
    const brokers = scriptedBrokers({ link: () => ({ ...link, metadata }) });
    expect((await initTopics(brokers, SETTINGS)).created).toHaveLength(5);
    expect(asked).toBeGreaterThanOrEqual(12);
    expect(brokers.nowMs()).toBeGreaterThan(0);
  });

  test('ignores brokers that do not answer', async () => {
    const { link } = cluster(planned());
    const silent = Object.fromEntries(Object.keys(link).map((name) => [name, failing('NO_RESPONSE')]));
    const { metadata } = link;
    const brokers = scriptedBrokers({ link: (node) => (node === 1 ? { ...silent, metadata } : link) });
    expect(await initTopics(brokers, SETTINGS)).toEqual({ created: [], differences: [], refused: [] });
    expect((await checkTopics(brokers, SETTINGS)).faults).toEqual([]);
  });

  test('creates a topic that is deleted during the call', async () => {
    const topics = planned();
    const { link } = cluster(topics);
    const describeConfigs: Answer<'describeConfigs'> = async (request) => {
      if (!topics.delete('id.ledger')) return link.describeConfigs(request);
      const gone = { name: 'id.ledger', errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', configs: new Map() };
      return { throttleMs: 0, topics: [gone] };
    };
    const brokers = scriptedBrokers({ link: () => ({ ...link, describeConfigs }) });
    expect((await initTopics(brokers, SETTINGS)).created).toEqual(['id.ledger']);
  });

  test.each(['NOT_CONTROLLER', 'NO_RESPONSE', 'REQUEST_TIMED_OUT'])(
    'asks the controller once more after %s, and reports topics whose creation was not confirmed',
    async (errorCode) => {
      const { link, issued } = cluster(new Map());
      const refusals = [errorCode];
      const createTopics: Answer<'createTopics'> = async (request) => {
        const answer = await link.createTopics(request);
        const refusal = refusals.shift();
        return refusal === undefined ? answer : failing(refusal)();
      };
      const brokers = scriptedBrokers({ link: () => ({ ...link, createTopics }) });
      expect((await initTopics(brokers, SETTINGS)).created).toHaveLength(5);
      expect(issued).toHaveLength(5);
      expect(brokers.called.filter((node) => node === CONTROLLER).length).toBeGreaterThanOrEqual(2);
    },
  );

  test('does not report topics that another process created meanwhile as its own', async () => {
    const topics = new Map<string, FoundTopic>();
    const { link } = cluster(topics);
    const createTopics: Answer<'createTopics'> = async (request) => {
      for (const topic of planned().values()) if (topic.name === 'id.ledger') topics.set(topic.name, topic);
      return link.createTopics(request);
    };
    const brokers = scriptedBrokers({ link: () => ({ ...link, createTopics }) });
    expect((await initTopics(brokers, SETTINGS)).created).not.toContain('id.ledger');
    expect(topics.size).toBe(5);
  });

  test("reports the controller's reason when it rejects a topic", async () => {
    const { link } = cluster(new Map());
    const createTopics: Answer<'createTopics'> = async () => ({
      throttleMs: 0,
      topics: [{ name: 'id.ledger', errorCode: 'POLICY_VIOLATION', message: 'too many partitions' }],
    });
    const brokers = scriptedBrokers({ link: () => ({ ...link, createTopics }) });
    await expect(initTopics(brokers, SETTINGS)).rejects.toMatchObject({
      code: 'KAFKA_UNAVAILABLE',
      message: expect.stringMatching(/id\.ledger.*too many partitions/),
    });
    expect(brokers.nowMs()).toBe(0);
  });

  test('refuses to create topics with more replicas than brokers', async () => {
    const { brokers, issued } = cluster(new Map(), [1]);
    await expect(initTopics(brokers, SETTINGS)).rejects.toMatchObject({ code: 'TOPIC_INVALID' });
    expect(issued).toEqual([]);
  });

  test('requires two in-sync replicas only with three replicas', () => {
    const inSync = (replicationFactor: number) =>
      planTopics({ ...SETTINGS, replicationFactor }).find(({ name }) => name === 'id.ledger')?.configs[
        'min.insync.replicas'
      ];
    expect([1, 2, 3, 5].map(inSync)).toEqual(['1', '1', '2', '2']);
  });
});

describe('checkTopics', () => {
  test('finds nothing in topics as planned, and returns the cluster ID', async () => {
    const { brokers } = cluster(planned());
    expect(await checkTopics(brokers, SETTINGS)).toEqual({
      clusterId: 'the-cluster',
      faults: [],
      added: [],
      warnings: [],
      differences: [],
      remedies: [],
      hidden: [],
    });
  });

  test('finds every missing topic on an empty cluster', async () => {
    const { brokers } = cluster(new Map());
    const report = await checkTopics(brokers, SETTINGS);
    expect(codes(report)).toEqual(['TOPIC_INVALID', 'TOPIC_INVALID', 'TOPIC_INVALID', 'TOPIC_INVALID']);
  });

  test.each([
    ['fewer partitions than REQUEST_PARTITIONS', 'id.requests', { partitions: 11 }, ['TOPIC_INVALID']],
    ['a ledger with fewer partitions', 'id.ledger', { partitions: 11 }, ['TOPIC_INVALID']],
    ['requests compressed by the broker', 'id.requests', { 'compression.type': 'gzip' }, ['TOPIC_INVALID']],
    ['requests above 1 MiB', 'id.requests', { 'max.message.bytes': '1048577' }, ['TOPIC_INVALID']],
    ['a witness that is not compacted', 'id.witness', { 'cleanup.policy': 'delete' }, ['TOPIC_INVALID']],
    ['a witness topic with retention by age', 'id.witness', { 'cleanup.policy': 'delete,compact' }, ['TOPIC_INVALID']],
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
    [
      'a ledger whose retention is 1 ms too short',
      'id.ledger',
      { 'retention.ms': String(26 * HOUR_MS - 1) },
      ['LEDGER_RETENTION'],
    ],
    ['longer requests', 'id.requests', { 'retention.ms': String(24 * HOUR_MS + 1) }, ['LEDGER_RETENTION']],
    [
      'longer segments of the request topic',
      'id.requests',
      { 'segment.ms': String(HOUR_MS + 1) },
      ['LEDGER_RETENTION'],
    ],
    ['endless requests', 'id.requests', { 'retention.ms': '-1' }, ['LEDGER_RETENTION']],
    ["requests kept for Java's longest time", 'id.requests', { 'retention.ms': LONG_MAX }, ['LEDGER_RETENTION']],
    ['requests that are never cleaned', 'id.requests', { 'cleanup.policy': '' }, ['LEDGER_RETENTION']],
    ['a request segment that stays open for ever', 'id.requests', { 'segment.ms': LONG_MAX }, ['LEDGER_RETENTION']],
    ['an unreported retention of the requests', 'id.requests', { 'retention.ms': 'n/a' }, ['LEDGER_RETENTION']],
    ['a witness that is never compacted', 'id.witness', { 'cleanup.policy': '' }, ['TOPIC_INVALID']],
    ['compacted requests, with a space', 'id.requests', { 'cleanup.policy': 'delete, compact' }, ['TOPIC_INVALID']],
    ['a ledger with retention by size', 'id.ledger', { 'retention.bytes': '1000000' }, ['LEDGER_RETENTION']],
    ['an unreported retention', 'id.ledger', { 'retention.ms': 'undefined' }, ['LEDGER_RETENTION']],
  ])('finds %s', async (_, name, change, expected) => {
    const { brokers } = cluster(changed(name, change));
    expect(codes(await checkTopics(brokers, SETTINGS))).toEqual(expected);
  });

  test.each([
    ['a ledger without a retention limit', 'id.ledger', { 'retention.ms': '-1' }],
    ["a ledger kept for Java's longest time", 'id.ledger', { 'retention.ms': LONG_MAX }],
    [
      'a ledger that is never cleaned',
      'id.ledger',
      { 'cleanup.policy': '', 'retention.bytes': '1', 'retention.ms': '1' },
    ],
    ['dead letters that are never cleaned', 'id.requests.dlt', { 'cleanup.policy': '' }],
    ['smaller requests', 'id.requests', { 'max.message.bytes': '65536' }],
    ['requests compressed by their producers', 'id.requests', { 'compression.type': 'producer' }],
    ['more replicas', 'id.ledger', { replicas: 5 }],
  ])('accepts %s', async (_, name, change) => {
    const { brokers } = cluster(changed(name, change));
    expect(codes(await checkTopics(brokers, SETTINGS))).toEqual([]);
  });

  test.each([
    ['retention.ms', '-1', 'has retention.ms=-1'],
    ['retention.ms', LONG_MAX, `has retention.ms=${LONG_MAX}`],
    ['segment.ms', LONG_MAX, `has segment.ms=${LONG_MAX}`],
    ['cleanup.policy', '', 'has an empty cleanup.policy'],
  ])('requires a ledger without a retention limit under requests without one: %s=%s', async (key, value, why) => {
    const topics = changed('id.requests', { [key]: value });
    const { faults } = await checkTopics(cluster(topics).brokers, SETTINGS);
    expect(faults.map(({ message }) => message)).toEqual([
      `topic 'id.ledger' must have retention.ms=-1 (no limit), since topic 'id.requests' ${why}, not ${26 * HOUR_MS}`,
    ]);
    for (const unlimited of [{ 'retention.ms': '-1' }, { 'retention.ms': LONG_MAX }, { 'cleanup.policy': '' }]) {
      const report = await checkTopics(cluster(changed('id.ledger', unlimited, topics)).brokers, SETTINGS);
      expect(codes(report)).toEqual([]);
    }
  });

  test.each(['id.requests', 'id.ledger'])(
    'reports partitions that were added to %s apart from the faults',
    async (name) => {
      const { faults, added } = await checkTopics(cluster(changed(name, { partitions: 13 })).brokers, SETTINGS);
      expect(faults).toEqual([]);
      expect(added).toEqual([
        {
          code: 'TOPIC_INVALID',
          message: expect.stringMatching(`^topic '${name}' has 13 .* the first 12: .*pair-of-topics`),
        },
      ]);
    },
  );

  test('says of a setting that it is empty, or that the brokers do not report it', async () => {
    const topics = changed('id.witness', { 'cleanup.policy': '' });
    const ledger = topics.get('id.ledger');
    if (ledger === undefined) throw new Error('no ledger');
    const hidden = ['min.insync.replicas', 'unclean.leader.election.enable'];
    topics.set('id.ledger', {
      ...ledger,
      configs: new Map([...ledger.configs].filter(([key]) => !hidden.includes(key))),
    });
    const { faults } = await checkTopics(cluster(topics).brokers, SETTINGS);
    expect(faults.map(({ message }) => message)).toEqual([
      "topic 'id.witness' must have cleanup.policy=compact, not empty",
      "topic 'id.ledger' must have unclean.leader.election.enable=false, but the brokers do not report it",
      "topic 'id.ledger' must have min.insync.replicas of at least 2, but the brokers do not report it; or set ALLOW_WEAK_LEDGER=1 for development",
    ]);
  });

  test('with ALLOW_WEAK_LEDGER only warns about too few replicas of ledger and witness', async () => {
    const settings = { ...SETTINGS, replicationFactor: 1, allowWeakLedger: true };
    const { brokers } = cluster(planned(settings), [1]);
    const { faults, warnings } = await checkTopics(brokers, settings);
    expect(faults).toEqual([]);
    expect(warnings.map(({ code }) => code)).toEqual(Array(4).fill('LEDGER_WEAK'));
    for (const { message } of warnings) expect(message).toMatch(/; ALLOW_WEAK_LEDGER=1 accepts that$/);
  });

  test.each([
    ['a compacted ledger', { 'cleanup.policy': 'compact' }],
    ['a short ledger', { 'retention.ms': '60000' }],
  ])('with ALLOW_WEAK_LEDGER still refuses %s', async (_, change) => {
    const { brokers } = cluster(changed('id.ledger', change));
    expect((await checkTopics(brokers, { ...SETTINGS, allowWeakLedger: true })).faults).toHaveLength(1);
  });

  test.each(['id.requests', 'id.ledger', 'id.witness'])(
    'reports segments of %s that stay open for too long, since retention deletes only whole segments',
    async (name) => {
      const { brokers } = cluster(changed(name, { 'segment.ms': String(168 * HOUR_MS) }));
      const { differences, remedies } = await checkTopics(brokers, SETTINGS);
      expect(differences).toEqual([`${name}: segment.ms is ${168 * HOUR_MS}, not ${HOUR_MS}`]);
      expect(remedies).toEqual([
        `kafka-configs --alter --entity-type topics --entity-name ${name} --add-config segment.ms=${HOUR_MS}`,
      ]);
    },
  );

  test.each([
    ['id.ledger', 'snappy'],
    ['id.witness', 'lz4'],
    ['id.requests.dlt', 'zstd'],
    ['id.replies.cli', 'gzip'],
  ])(
    "reports %s compressed with %s as a difference, not a fault, with Kafka's own command as remedy",
    async (name, type) => {
      const { brokers } = cluster(changed(name, { 'compression.type': type }));
      const command = `kafka-configs --alter --entity-type topics --entity-name ${name} --add-config compression.type=uncompressed`;
      expect(await checkTopics(brokers, SETTINGS)).toMatchObject({
        faults: [],
        warnings: [],
        differences: [`${name}: compression.type is ${type}, not uncompressed`],
        remedies: [command],
      });
    },
  );

  test.each(['id.ledger', 'id.witness', 'id.requests.dlt', 'id.replies.cli'])(
    'accepts compression.type=producer on %s, since its producers do not compress',
    async (name) => {
      const { brokers } = cluster(changed(name, { 'compression.type': 'producer' }));
      expect(await checkTopics(brokers, SETTINGS)).toMatchObject({ differences: [], remedies: [] });
    },
  );

  test.each([
    ['message.timestamp.before.max.ms', '2000'],
    ['message.timestamp.difference.max.ms', String(26 * HOUR_MS - 1)],
  ])('reports the limit %s=%s of a reply topic: it refuses the time of an old decision', async (key, limit) => {
    const { brokers } = cluster(changed('id.replies.cli', { [key]: limit }));
    const none = '9223372036854775807';
    expect(await checkTopics(brokers, SETTINGS)).toMatchObject({
      faults: [],
      differences: [`id.replies.cli: ${key} is ${limit}, not ${none}`],
      remedies: [`kafka-configs --alter --entity-type topics --entity-name id.replies.cli --add-config ${key}=${none}`],
    });
    const endless = { ...SETTINGS, ledgerRetentionMs: -1, requestRetentionMs: -1 };
    expect((await checkTopics(brokers, endless)).differences).toContain(
      `id.replies.cli: ${key} is ${limit}, not ${none}`,
    );
  });

  test.each<[string, Record<string, string>]>([
    ['lets in what is as old as the ledger', { 'message.timestamp.before.max.ms': String(26 * HOUR_MS) }],
    ['has none', { 'message.timestamp.before.max.ms': '9223372036854775807' }],
    ["has the broker's time", { 'message.timestamp.before.max.ms': '2000', 'message.timestamp.type': 'LogAppendTime' }],
  ])('accepts the limit of a reply topic that %s', async (_what, configs) => {
    const { brokers } = cluster(changed('id.replies.cli', configs));
    expect((await checkTopics(brokers, SETTINGS)).differences).toEqual([]);
  });

  test('does not report another spelling of no limit as a difference', async () => {
    const settings = { ...SETTINGS, ledgerRetentionMs: -1 };
    const { brokers } = cluster(changed('id.ledger', { 'retention.ms': LONG_MAX }, planned(settings)));
    expect(await checkTopics(brokers, settings)).toMatchObject({ differences: [], remedies: [] });
  });

  test('counts a config that the brokers do not report as a difference', async () => {
    const topics = planned();
    const ledger = topics.get('id.ledger');
    if (ledger === undefined) throw new Error('no ledger');
    const unreported = ['compression.type', 'retention.bytes'];
    const configs = new Map([...ledger.configs].filter(([key]) => !unreported.includes(key)));
    topics.set('id.ledger', { ...ledger, configs });
    const { brokers } = cluster(topics);
    expect((await checkTopics(brokers, SETTINGS)).differences).toEqual([
      'id.ledger: compression.type is undefined, not uncompressed',
      'id.ledger: retention.bytes is undefined, not -1',
    ]);
  });

  test.each([
    ['id.replies.cli', { faults: [], remedies: [], hidden: ['id.replies.cli'] }],
    ['id.ledger', { remedies: ["create 'id.ledger': idalloc topics init"], hidden: [] }],
  ])(
    'does not report a topic that this user may not describe, unless a worker needs it: %s',
    async (denied, report) => {
      const { link } = cluster(planned());
      const metadata: Answer<'metadata'> = async (request) => {
        const { topics } = await link.metadata(request);
        const hide = (topic: TopicMetadata): TopicMetadata =>
          topic.name === denied ? { name: topic.name, errorCode: 'TOPIC_AUTHORIZATION_FAILED', partitions: [] } : topic;
        return metadataAnswer(topics.map(hide));
      };
      const brokers = scriptedBrokers({ link: () => ({ ...link, metadata }) });
      expect(await checkTopics(brokers, SETTINGS)).toMatchObject(report);
    },
  );

  test('hides topics whose configs this user may not read, but fails for a needed topic', async () => {
    const { link } = cluster(planned());
    const deny = (denied: string): Answer<'describeConfigs'> => {
      return async (request) => {
        const answer = await link.describeConfigs(request);
        const hide = (topic: DescribeConfigsResponse['topics'][number]) =>
          topic.name === denied ? { name: denied, errorCode: 'TOPIC_AUTHORIZATION_FAILED', configs: new Map() } : topic;
        return { ...answer, topics: answer.topics.map(hide) };
      };
    };
    const without = (denied: string) => scriptedBrokers({ link: () => ({ ...link, describeConfigs: deny(denied) }) });
    expect(await checkTopics(without('id.replies.cli'), SETTINGS)).toMatchObject({ hidden: ['id.replies.cli'] });
    await expect(checkTopics(without('id.ledger'), SETTINGS)).rejects.toThrow(/id\.ledger.*AUTHORIZATION/);
  });

  test('reports brokers that do not answer as KAFKA_UNAVAILABLE, after 10 s', async () => {
    const brokers = scriptedBrokers({ link: () => ({ metadata: failing('UNREACHABLE') }) });
    await expect(checkTopics(brokers, SETTINGS)).rejects.toMatchObject({ code: 'KAFKA_UNAVAILABLE' });
    expect(brokers.nowMs()).toBe(10_000);
  });

  test.each([
    ['LOGIN_REFUSED', 'CONFIG_INVALID'],
    ['CLUSTER_AUTHORIZATION_FAILED', 'KAFKA_UNAVAILABLE'],
  ])('reports %s as %s immediately', async (errorCode, code) => {
    const brokers = scriptedBrokers({ link: () => ({ metadata: failing(errorCode) }) });
    await expect(checkTopics(brokers, SETTINGS)).rejects.toMatchObject({ code });
    expect(brokers.nowMs()).toBe(0);
  });
});

function ledWith(leader: number): TopicMetadata {
  return { name: 'id.ledger', partitions: [{ partition: 0, leader, replicas: [1], inSync: [1] }] };
}
