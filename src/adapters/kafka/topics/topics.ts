import { retrying } from '../../../async/retrying.ts';
import { IdallocError } from '../../../errors.ts';
import { isLinkError, isUnusableTopic, meaningOf } from '../../../kafka/wire/error-codes.ts';
import { KafkaError, kafkaErrorCode } from '../../../kafka/wire/kafka-error.ts';
import type { BrokerLink } from '../../../kafka/wire/port.ts';
import type {
  AclRule,
  DescribeConfigsResponse,
  MetadataResponse,
  TopicMetadata,
} from '../../../kafka/wire/topic-apis.ts';
import { type Brokers, CALL_TIMEOUT_MS, isTransientCode, PATIENT, requireNoError, withCode } from '../brokers.ts';
import { createTopics, settableOf } from './creation.ts';
import { judgeTopics, type TopicFault } from './judge.ts';
import {
  differences,
  durationOf,
  type FoundTopic,
  isNeverCleaned,
  type PlannedTopic,
  planReplyTopics,
  planTopics,
  remediesFor,
  type TopicSettings,
  workerTopics,
} from './plan.ts';

export interface CreatedTopics {
  /** Names of the topics that this call created. */
  readonly created: readonly string[];
  /** Differences of existing topics from the plan. */
  readonly differences: readonly string[];
  /** The settings that a managed service refuses, with its reasons. */
  readonly refused: readonly string[];
}

export interface TopicsReport {
  readonly clusterId: string;
  /** A worker must not start when there is one. */
  readonly faults: readonly TopicFault[];
  /** Partitions beyond REQUEST_PARTITIONS: only workers of a namespace that was created with that count may start. */
  readonly added: readonly TopicFault[];
  /** Faults that ALLOW_WEAK_LEDGER turns into warnings. */
  readonly warnings: readonly TopicFault[];
  /** Differences from the plan, whether or not they are faults. */
  readonly differences: readonly string[];
  /** The remedies for the differences. */
  readonly remedies: readonly string[];
  /** Topics that workers don't need and this user may not describe; they are not checked. */
  readonly hidden: readonly string[];
}

/**
 * Creates the missing topics. An existing topic is never altered; its differences from the plan are reported. Safe to
 * run concurrently, and again after a crash.
 *
 * @param replyTopics reply topics of services: created if they are missing, else left as they are
 * @param isManaged sends only the settings that the service accepts, and leaves the number of brokers to it
 * @throws IdallocError INVALID_REPLY_TOPIC for a name that no worker would reply to; TOPIC_INVALID when there are fewer
 * brokers than replicas; KAFKA_UNAVAILABLE; CONFIG_INVALID for a rejected login.
 */
export function initTopics(
  brokers: Brokers,
  settings: TopicSettings,
  replyTopics: readonly string[] = [],
  isManaged = false,
): Promise<CreatedTopics> {
  return withCode(async () => {
    const { replicationFactor } = settings;
    const planned = planTopics(settings);
    const all = [...planned, ...planReplyTopics(replyTopics, settings)];
    const { found: before, brokerCount } = await describeTopics(brokers, settings, all.map(nameOf));
    const missing = all.filter(({ name }) => !before.has(name));
    if (missing.length > 0 && !isManaged) requireBrokers(brokerCount, replicationFactor);
    const { topics, refused } = isManaged
      ? await settableOf(brokers, missing, replicationFactor)
      : { topics: missing, refused: [] };
    const created = topics.length > 0 ? await createTopics(brokers, topics, replicationFactor) : [];
    await waitForLeaders(brokers, all.map(nameOf));
    return { created, differences: differencesOf(planned, before, replicationFactor), refused };
  });
}

/**
 * Checks whether a worker can start on the topics as they are. ALLOW_WEAK_LEDGER turns only too few replicas into
 * warnings.
 *
 * @param planned the topics to check; a worker may have no right to describe other topics
 * @throws IdallocError KAFKA_UNAVAILABLE; CONFIG_INVALID for a rejected login.
 */
export function checkTopics(
  brokers: Brokers,
  settings: TopicSettings,
  planned: readonly PlannedTopic[] = planTopics(settings),
): Promise<TopicsReport> {
  return withCode(async () => {
    const { found, clusterId, hidden } = await describeTopics(
      brokers,
      settings,
      planned.map(nameOf),
      neededBy(settings),
    );
    const { faults, added, waivable } = judgeTopics(found, settings);
    const seen = planned.filter(({ name }) => !hidden.includes(name));
    return {
      clusterId,
      faults: settings.allowWeakLedger ? faults : [...faults, ...waivable],
      added,
      warnings: settings.allowWeakLedger ? waivable : [],
      differences: differencesOf(seen, found, settings.replicationFactor),
      remedies: seen.flatMap((plan) => remediesFor(plan, found.get(plan.name), settings)),
      hidden,
    };
  });
}

/**
 * How long a topic keeps records, in milliseconds; -1: no limit, undefined if this user may not see that.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE.
 */
export function retentionOf(brokers: Brokers, topic: string): Promise<number | undefined> {
  return withCode(async () => {
    const [found] = await retrying(brokers.runtime, PATIENT, () => describeConfigs(brokers, [topic]));
    if (found === undefined || found.errorCode !== undefined) return undefined;
    const keptMs = isNeverCleaned(found) ? Infinity : durationOf(found.configs.get('retention.ms'));
    if (keptMs === Infinity) return -1;
    return Number.isNaN(keptMs) ? undefined : keptMs;
  });
}

/**
 * A new topic is not known to every broker immediately, and its partitions have no leaders yet. Resolves when every
 * broker that answers knows the topics and a leader of each partition.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE when that takes longer than 10 s.
 */
export function waitForLeaders(brokers: Brokers, names: readonly string[]): Promise<void> {
  return withCode(() => retrying(brokers.runtime, PATIENT, () => requireLeaders(brokers, names)));
}

const nameOf = ({ name }: { readonly name: string }) => name;

function differencesOf(
  planned: readonly PlannedTopic[],
  found: ReadonlyMap<string, FoundTopic>,
  replicationFactor: number,
): string[] {
  return planned.flatMap((plan) => {
    const topic = found.get(plan.name);
    return topic === undefined ? [] : differences(plan, topic, replicationFactor);
  });
}

/** The topics that a worker needs: one that can't be described is a fault. */
function neededBy(settings: TopicSettings): (name: string) => boolean {
  const needed = new Set(workerTopics(settings).map(nameOf));
  return (name) => needed.has(name);
}

function requireBrokers(count: number, replicationFactor: number): void {
  if (count >= replicationFactor) return;
  throw new IdallocError(
    'TOPIC_INVALID',
    `${replicationFactor} replicas need as many brokers, but there are ${count}: add brokers, or for ` +
      'development set TOPIC_REPLICATION_FACTOR=1 and ALLOW_WEAK_LEDGER=1',
  );
}

interface Described {
  readonly clusterId: string;
  readonly brokerCount: number;
  /** The named topics that exist and that this user may describe. */
  readonly found: ReadonlyMap<string, FoundTopic>;
  /** Topics that are not needed and of which this user may not describe the metadata or the configs. */
  readonly hidden: readonly string[];
}

/** Starts again when a topic is deleted or created between the two requests. */
function describeTopics(
  brokers: Brokers,
  { guarantees = {} }: TopicSettings,
  names: readonly string[],
  isNeeded: (name: string) => boolean = () => true,
): Promise<Described> {
  return retrying(brokers.runtime, PATIENT, async () => {
    const metadata = await brokers.cluster.metadata(names, CALL_TIMEOUT_MS);
    const existing = metadata.topics.filter(({ errorCode }) => !isUnusableTopic(errorCode));
    for (const { name, errorCode } of existing) requireNoError(errorCode, `topic ${name}`);
    const { clusterId, brokers: all } = metadata;
    const configs = await describeConfigs(brokers, existing.map(nameOf));
    const denied = [...metadata.topics, ...configs]
      .filter(({ errorCode }) => meaningOf(errorCode).isDenied)
      .map(nameOf);
    const hidden = denied.filter((name) => !isNeeded(name));
    const visible = configs.filter(({ name }) => !hidden.includes(name));
    for (const { name, errorCode } of visible) requireNoError(errorCode, `configs of topic ${name}`);
    const byName = new Map(visible.map((topic) => [topic.name, topic.configs]));
    const found = existing.flatMap((topic) => foundTopic(topic, byName.get(topic.name), guarantees));
    return { clusterId, brokerCount: all.length, found: new Map(found), hidden };
  });
}

async function describeConfigs(
  brokers: Brokers,
  topics: readonly string[],
): Promise<DescribeConfigsResponse['topics']> {
  if (topics.length === 0) return [];
  const ask = (link: BrokerLink) => link.call('describeConfigs', { topics });
  return (await brokers.cluster.callAny(CALL_TIMEOUT_MS, ask)).topics;
}

/** What the brokers report counts, whatever the service guarantees. */
function foundTopic(
  { name, partitions }: TopicMetadata,
  reported: FoundTopic['configs'] | undefined,
  guarantees: Readonly<Record<string, string>>,
): [string, FoundTopic][] {
  if (reported === undefined) return [];
  const configs = new Map([...Object.entries(guarantees), ...reported]);
  const replicas = Math.min(...partitions.map(({ replicas }) => replicas.length));
  return [[name, { name, partitions: partitions.length, replicas, configs }]];
}

async function requireLeaders({ cluster }: Brokers, names: readonly string[]): Promise<void> {
  const { brokers } = await cluster.metadata([], CALL_TIMEOUT_MS);
  const responses = await Promise.allSettled(
    brokers.map(({ nodeId }) =>
      cluster.call<MetadataResponse>(nodeId, 'control', CALL_TIMEOUT_MS, (link) =>
        link.call('metadata', { topics: names }),
      ),
    ),
  );
  const known: MetadataResponse[] = [];
  for (const response of responses) {
    if (response.status === 'fulfilled') known.push(response.value);
    else if (!isLinkError(kafkaErrorCode(response.reason))) throw response.reason;
  }
  if (known.length === 0) throw new KafkaError('UNREACHABLE', 'no broker answers');
  for (const { name, errorCode } of known.flatMap(({ topics }) => topics)) {
    if (!isTransientCode(errorCode)) requireNoError(errorCode, `topic ${name}`);
  }
  if (known.every(({ topics }) => topics.length === names.length && topics.every(isLed))) return;
  throw new KafkaError(
    'LEADER_NOT_AVAILABLE',
    "the topics have no leaders, or have disappeared: check the brokers' logs",
  );
}

function isLed({ errorCode, partitions }: TopicMetadata): boolean {
  return errorCode === undefined && partitions.length > 0 && partitions.every(({ leader }) => leader >= 0);
}

const GRANT_REMEDIES: Readonly<Record<string, string>> = {
  SECURITY_DISABLED: 'the brokers have no authorizer, so every user may do everything: set authorizer.class.name first',
  CLUSTER_AUTHORIZATION_FAILED: 'this user may not grant rights: log in as a user with Alter on the cluster',
};

/**
 * Creates the rules; existing ones stay. Safe to repeat.
 *
 * @throws IdallocError KAFKA_UNAVAILABLE if the brokers reject the call or do not answer; CONFIG_INVALID for a rejected
 * login.
 */
export function grant(brokers: Brokers, rules: readonly AclRule[]): Promise<void> {
  return withCode(() => retrying(brokers.runtime, PATIENT, () => createAcls(brokers, rules)));
}

async function createAcls({ cluster }: Brokers, rules: readonly AclRule[]): Promise<void> {
  const { controllerId } = await cluster.metadata([], CALL_TIMEOUT_MS);
  const response = await cluster.call(controllerId, 'control', CALL_TIMEOUT_MS, (link) =>
    link.call('createAcls', { rules }),
  );
  const at = response.rules.findIndex(({ errorCode }) => errorCode !== undefined);
  const { errorCode, message = '' } = response.rules[at] ?? {};
  if (errorCode === undefined) return;
  const remedy = GRANT_REMEDIES[errorCode];
  if (remedy !== undefined)
    throw new IdallocError('KAFKA_UNAVAILABLE', `no right was granted (${errorCode}): ${remedy}`);
  const { resource, name } = rules[at] ?? {};
  throw new KafkaError(errorCode, `the right on ${resource} ${name} was not granted: ${message || errorCode}`);
}
