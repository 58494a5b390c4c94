import { describe, expect, test } from 'vitest';
import { judgeTopics } from '../../../../src/adapters/kafka/topics/judge.ts';
import { type FoundTopic, planTopics } from '../../../../src/adapters/kafka/topics/plan.ts';
import { checkTopics, initTopics } from '../../../../src/adapters/kafka/topics/topics.ts';
import type { Answer } from '../../../support/scripted-link.ts';
import { scriptedBrokers } from '../scripted-brokers.ts';
import { changed, cluster, codes, HOUR_MS, planned, SETTINGS } from './topics-stage.ts';

/** What a managed service allows: other settings are refused, and values that are too low. */
interface Service {
  readonly settable: readonly string[];
  readonly least?: Readonly<Record<string, number>>;
  /** Whether it creates topics when it should only validate them. */
  readonly isEager?: boolean;
}

describe('initTopics of a managed service', () => {
  const MINE = ['cleanup.policy', 'max.message.bytes', 'message.timestamp.type', 'retention.bytes', 'retention.ms'];

  /** A cluster with a policy for new topics, and its own defaults for what nobody sets. */
  function managed({ settable, least = {}, isEager = false }: Service) {
    const topics = new Map<string, FoundTopic>();
    const { link, issued } = cluster(topics);
    const own = { 'compression.type': 'producer', 'min.insync.replicas': '2', 'segment.ms': String(168 * HOUR_MS) };
    const defaults = { ...own, 'unclean.leader.election.enable': 'false', 'retention.bytes': '250000000000' };
    const objection = (configs: Readonly<Record<string, string>>) => {
      const foreign = Object.keys(configs).find((key) => !settable.includes(key));
      const low = Object.keys(configs).find((key) => Number(configs[key]) < (least[key] ?? Number.NEGATIVE_INFINITY));
      return foreign === undefined ? low && `${low} is too low` : `${foreign} is fixed`;
    };
    const createTopics: Answer<'createTopics'> = async (request) => {
      if (request.validateOnly && !isEager) {
        const answers = request.topics.map(({ name, configs }) => ({ name, message: objection(configs) }));
        return {
          throttleMs: 0,
          topics: answers.map((one) => ({ ...one, errorCode: one.message && 'POLICY_VIOLATION' })),
        };
      }
      return link.createTopics({
        ...request,
        topics: request.topics.map((one) => {
          expect(objection(one.configs)).toBeUndefined();
          return { ...one, configs: { ...defaults, ...one.configs } };
        }),
      });
    };
    return { topics, issued, brokers: scriptedBrokers({ link: () => ({ ...link, createTopics }), nodes: [1] }) };
  }

  test('sends only what the service accepts, reports the rest with its reasons, and what it has is judged', async () => {
    const settings = { ...SETTINGS, ledgerRetentionMs: 193 * HOUR_MS };
    const { topics, brokers } = managed({ settable: MINE });
    const { created, refused } = await initTopics(brokers, settings, ['id.replies.orders'], true);
    expect(created).toHaveLength(6);
    expect(new Set(refused.map((line) => /: ([a-z.]+)=/.exec(line)?.[1]))).toEqual(
      new Set([
        'compression.type',
        'min.cleanable.dirty.ratio',
        'min.insync.replicas',
        'segment.ms',
        'unclean.leader.election.enable',
      ]),
    );
    expect(refused).toContain(
      "id.ledger: segment.ms=3600000, so the service's own value is used (segment.ms is fixed)",
    );
    expect(judgeTopics(topics, settings)).toEqual({ faults: [], added: [], waivable: [] });
    const short = managed({ settable: MINE });
    await initTopics(short.brokers, SETTINGS, [], true);
    expect(codes(judgeTopics(short.topics, SETTINGS))).toEqual(['LEDGER_RETENTION']);
  });

  test('takes the first longer segment time that the service accepts', async () => {
    const least = { 'segment.ms': 4 * HOUR_MS };
    const { topics, brokers } = managed({ settable: [...MINE, 'segment.ms'], least });
    const { refused } = await initTopics(brokers, SETTINGS, [], true);
    expect(topics.get('id.requests')?.configs.get('segment.ms')).toBe(String(4 * HOUR_MS));
    expect(refused).toContain('id.requests: segment.ms=3600000, so 14400000 is used (segment.ms is too low)');
  });

  test('an ordinary broker accepts the whole plan', async () => {
    const { brokers, topics } = managed({
      settable: planTopics(SETTINGS).flatMap(({ configs }) => Object.keys(configs)),
    });
    expect(await initTopics(brokers, SETTINGS, [], true)).toMatchObject({ created: { length: 5 }, refused: [] });
    expect(topics.get('id.witness')?.configs.get('min.cleanable.dirty.ratio')).toBe('0.1');
    expect(await initTopics(brokers, SETTINGS, [], true)).toEqual({ created: [], differences: [], refused: [] });
  });

  test('stops at a service that creates topics instead of validating them', async () => {
    const { brokers, issued } = managed({ settable: MINE, isEager: true });
    await expect(initTopics(brokers, SETTINGS, [], true)).rejects.toMatchObject({
      code: 'TOPIC_INVALID',
      message: expect.stringMatching(/^'id\.requests', 'id\.ledger'.* appeared while .* only validated/),
    });
    expect(issued.every(({ configs }) => !('retention.ms' in configs))).toBe(true);
  });
});

describe('what a service guarantees', () => {
  const without = (...hidden: readonly string[]) =>
    new Map(
      [...planned()].map(([name, topic]) => [
        name,
        { ...topic, configs: new Map([...topic.configs].filter(([key]) => !hidden.includes(key))) },
      ]),
    );
  const guarantees = { 'min.insync.replicas': '2', 'unclean.leader.election.enable': 'false' };

  test('stands in for settings that its brokers do not report', async () => {
    const topics = without(...Object.keys(guarantees));
    expect((await checkTopics(cluster(topics).brokers, SETTINGS)).faults.length).toBeGreaterThan(0);
    expect(await checkTopics(cluster(topics).brokers, { ...SETTINGS, guarantees })).toMatchObject({
      faults: [],
      differences: [],
    });
  });

  test('counts for nothing where the brokers report something else', async () => {
    const topics = changed('id.ledger', { 'min.insync.replicas': '1', 'unclean.leader.election.enable': 'true' });
    expect(codes(await checkTopics(cluster(topics).brokers, { ...SETTINGS, guarantees }))).toEqual([
      'LEDGER_WEAK',
      'LEDGER_WEAK',
    ]);
  });
});
