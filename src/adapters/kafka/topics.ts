import { setTimeout as sleep } from 'node:timers/promises';
import kafkajs, { type Admin, type ConfigEntries, type ITopicMetadata } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import { brokerFault } from './broker-fault.ts';
import {
  differences,
  type FoundTopic,
  judgeTopics,
  mends,
  type PlannedTopic,
  planReplyTopics,
  planTopics,
  type TopicFault,
  type TopicSettings,
} from './topic-plan.ts';

export interface TopicsMade {
  /** Names of the topics that this call made. */
  readonly created: readonly string[];
  /** Where topics that were there already are not as planned. */
  readonly differences: readonly string[];
}

export interface TopicsReport {
  /** Of request topic and ledger; 0 when the request topic is missing. */
  readonly partitions: number;
  readonly clusterId: string;
  /** A worker must not start when there is one. */
  readonly faults: readonly TopicFault[];
  /** Faults that ALLOW_WEAK_LEDGER lets pass. */
  readonly warnings: readonly TopicFault[];
  /** Where topics are not as planned, whether or not that is a fault. */
  readonly differences: readonly string[];
  /** What would make them so. */
  readonly mends: readonly string[];
}

const MAX_POLLS = 100;
const POLL_MS = 100;

/**
 * Makes the topics that are missing. A topic that exists is never altered; where it differs from the plan is told. Two
 * calls at a time, or one again after a crash, do no harm.
 *
 * @param replyTopics topics of services for their replies: made if they are missing, and else taken as they are
 * @throws IdallocError INVALID_REPLY_TOPIC for a name that no worker would reply on; TOPIC_INVALID when there are fewer brokers than replicas; KAFKA_UNAVAILABLE.
 */
export function initTopics(
  admin: Admin,
  settings: TopicSettings,
  replyTopics: readonly string[] = [],
): Promise<TopicsMade> {
  return withCode(async () => {
    const planned = planTopics(settings);
    const all = [...planned, ...planReplyTopics(replyTopics, settings)];
    const before = await describeTopics(admin, all.map(nameOf));
    const missing = all.filter(({ name }) => !before.has(name));
    if (missing.length > 0) await checkBrokers(admin, settings.replicationFactor);
    const created: string[] = [];
    for (const { name, partitions, configs } of missing) {
      const made = await admin.createTopics({
        waitForLeaders: false,
        topics: [
          {
            topic: name,
            numPartitions: partitions,
            replicationFactor: settings.replicationFactor,
            configEntries: Object.entries(configs).map(([key, value]) => ({ name: key, value })),
          },
        ],
      });
      if (made) created.push(name);
    }
    await waitForLeaders(admin, all.map(nameOf));
    const differing = planned.flatMap((plan) => {
      const found = before.get(plan.name);
      return found === undefined ? [] : differences(plan, found, settings.replicationFactor);
    });
    return { created, differences: differing };
  });
}

/**
 * Looks whether a worker can start on the topics as they are. ALLOW_WEAK_LEDGER turns too few replicas into warnings,
 * nothing else.
 *
 * @param planned what is looked at; a worker may have no right to see more than its own
 * @throws IdallocError KAFKA_UNAVAILABLE
 */
export function checkTopics(
  admin: Admin,
  settings: TopicSettings,
  planned: readonly PlannedTopic[] = planTopics(settings),
): Promise<TopicsReport> {
  return withCode(async () => {
    const { clusterId } = await admin.describeCluster();
    const found = await describeTopics(admin, planned.map(nameOf));
    const { faults, waivable } = judgeTopics(found, settings);
    return {
      partitions: found.get(settings.requests)?.partitions ?? 0,
      clusterId,
      faults: settings.allowWeakLedger ? faults : [...faults, ...waivable],
      warnings: settings.allowWeakLedger ? waivable : [],
      differences: planned.flatMap((plan) => {
        const topic = found.get(plan.name);
        return topic === undefined ? [] : differences(plan, topic, settings.replicationFactor);
      }),
      mends: planned.flatMap((plan) => mends(plan, found.get(plan.name), settings)),
    };
  });
}

const nameOf = ({ name }: { readonly name: string }) => name;

async function checkBrokers(admin: Admin, replicationFactor: number): Promise<void> {
  const { brokers } = await admin.describeCluster();
  if (brokers.length >= replicationFactor) return;
  throw new IdallocError(
    'TOPIC_INVALID',
    `${replicationFactor} replicas need as many brokers, but there are ${brokers.length}: add brokers, or for ` +
      'development set TOPIC_REPLICATION_FACTOR=1 and ALLOW_WEAK_LEDGER=1',
  );
}

/** Those of the named topics that exist. */
function describeTopics(admin: Admin, names: readonly string[]): Promise<ReadonlyMap<string, FoundTopic>> {
  return onceKnown(async () => {
    const existing = new Set(await admin.listTopics());
    const topics = names.filter((name) => existing.has(name));
    if (topics.length === 0) return new Map();
    const metadata = (await admin.fetchTopicMetadata({ topics })).topics;
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: topics.map((name) => ({ type: kafkajs.ConfigResourceTypes.TOPIC, name })),
    });
    const configs = new Map(resources.map(({ resourceName, configEntries }) => [resourceName, configEntries]));
    return new Map(metadata.map((topic) => [topic.name, foundTopic(topic, configs.get(topic.name) ?? [])]));
  });
}

function foundTopic({ name, partitions }: ITopicMetadata, entries: readonly ConfigEntries[]): FoundTopic {
  return {
    name,
    partitions: partitions.length,
    replicas: Math.min(...partitions.map(({ replicas }) => replicas.length)),
    configs: new Map(entries.map(({ configName, configValue }) => [configName, configValue])),
  };
}

/**
 * A topic that was just made is not known at once to every broker, and its partitions have no leader yet. Rejects with
 * KAFKA_UNAVAILABLE when that does not change.
 */
export function waitForLeaders(admin: Admin, names: readonly string[]): Promise<void> {
  return onceKnown(async () => {
    const existing = new Set(await admin.listTopics());
    if (!names.every((name) => existing.has(name))) return 'not yet';
    const { topics } = await admin.fetchTopicMetadata({ topics: [...names] });
    const led = ({ partitions }: ITopicMetadata) => partitions.length > 0 && partitions.every((one) => one.leader >= 0);
    return topics.every(led) ? undefined : 'not yet';
  });
}

const NOT_YET: ReadonlySet<string | undefined> = new Set(['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE']);

/**
 * What `look` finds once all brokers agree: one may list a topic that another does not know yet, or that is being deleted.
 * Looked at anew from the beginning, for 10 s.
 */
async function onceKnown<T>(look: () => Promise<T | 'not yet'>): Promise<T> {
  for (let poll = 1; poll <= MAX_POLLS; poll++) {
    try {
      const found = await look();
      if (found !== 'not yet') return found;
    } catch (error) {
      if (!NOT_YET.has(brokerFault(error))) throw error;
    }
    await sleep(POLL_MS);
  }
  throw new IdallocError('KAFKA_UNAVAILABLE', 'the topics have no leaders, or go away: look at the log of the brokers');
}

async function withCode<T>(call: () => Promise<T>): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof IdallocError) throw error;
    throw new IdallocError('KAFKA_UNAVAILABLE', `the brokers refused or did not answer: ${describeError(error)}`, {
      cause: error,
    });
  }
}
