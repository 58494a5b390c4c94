import { type FoundTopic, planTopics, type TopicSettings } from '../../../../src/adapters/kafka/topics/plan.ts';
import type { CreateTopicsRequest, TopicMetadata } from '../../../../src/kafka/wire/topic-apis.ts';
import type { Answers } from '../../../support/scripted-link.ts';
import { metadataAnswer, scriptedBrokers } from '../scripted-brokers.ts';

export const HOUR_MS = 3_600_000;

export const SETTINGS: TopicSettings = {
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

/** All topics as planned. */
export function planned(settings: TopicSettings = SETTINGS): Map<string, FoundTopic> {
  return new Map(
    planTopics(settings).map(({ name, partitions, configs }) => [
      name,
      { name, partitions, replicas: settings.replicationFactor, configs: new Map(Object.entries(configs)) },
    ]),
  );
}

/** The topics, of which one has other counts or configs. */
export function changed(
  name: string,
  change: Partial<FoundTopic> | Record<string, string>,
  before: ReadonlyMap<string, FoundTopic> = planned(),
): Map<string, FoundTopic> {
  const topics = new Map(before);
  const topic = topics.get(name);
  if (topic === undefined) throw new Error(`no topic ${name}`);
  const isCount = 'partitions' in change || 'replicas' in change;
  const configs = new Map([...topic.configs, ...(isCount ? [] : Object.entries(change as Record<string, string>))]);
  topics.set(name, { ...topic, configs, ...(isCount ? change : {}) });
  return topics;
}

/** Brokers with topics in memory. */
export function cluster(topics: Map<string, FoundTopic>, nodes: readonly number[] = [1, 2, 3]) {
  const issued: CreateTopicsRequest['topics'][number][] = [];
  const link = {
    metadata: async ({ topics: names }) => metadataAnswer(names === 'all' ? [] : names.map(metadataOf), nodes),
    describeConfigs: async ({ topics: names }) => ({
      throttleMs: 0,
      topics: names.map((name) => ({ name, configs: topics.get(name)?.configs ?? new Map() })),
    }),
    createTopics: async ({ topics: wanted }) => ({ throttleMs: 0, topics: wanted.map(make) }),
  } satisfies Answers;
  function metadataOf(name: string): TopicMetadata {
    const topic = topics.get(name);
    if (topic === undefined) return { name, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', partitions: [] };
    const replicas = Array.from({ length: topic.replicas }, (_, i) => i + 1);
    const partitions = Array.from({ length: topic.partitions }, (_, partition) => {
      return { partition, leader: 1, replicas, inSync: replicas };
    });
    return { name, partitions };
  }
  function make(wanted: CreateTopicsRequest['topics'][number]) {
    const { name, partitions, replicas, configs } = wanted;
    if (topics.has(name)) return { name, errorCode: 'TOPIC_ALREADY_EXISTS' };
    issued.push(wanted);
    topics.set(name, { name, partitions, replicas, configs: new Map(Object.entries(configs)) });
    return { name };
  }
  return { link, issued, brokers: scriptedBrokers({ link: () => link, nodes }) };
}

/** The codes of faults. */
export const codes = ({ faults }: { faults: readonly { code: string }[] }) => faults.map(({ code }) => code);
