import {
  durationOf,
  type FoundTopic,
  isNeverCleaned,
  LEDGER_MARGIN_MS,
  MAX_REQUEST_BATCH_BYTES,
  policiesOf,
  SAFE_IN_SYNC,
  SAFE_REPLICAS,
  type TopicSettings,
} from './plan.ts';

export interface TopicFault {
  readonly code: 'TOPIC_INVALID' | 'LEDGER_WEAK' | 'LEDGER_RETENTION';
  readonly message: string;
}

/** What is wrong with the topics. */
interface TopicsVerdict {
  /** No worker may start on these. */
  readonly faults: readonly TopicFault[];
  /**
   * Partitions beyond REQUEST_PARTITIONS: a namespace that has that count in etcd serves those from before, a new one
   * none.
   */
  readonly added: readonly TopicFault[];
  /**
   * Faults that can't be avoided with a single broker; clean-up policy and timestamps can be right on one broker too.
   */
  readonly waivable: readonly TopicFault[];
}

/** Every reason why a worker must not start on these topics. */
export function judgeTopics(found: ReadonlyMap<string, FoundTopic>, settings: TopicSettings): TopicsVerdict {
  const faults: TopicFault[] = [];
  for (const name of [settings.requests, settings.ledger, settings.deadLetters, settings.witness]) {
    if (!found.has(name)) faults.push(invalid(`topic '${name}' does not exist: run 'idalloc topics init'`));
  }
  const requests = found.get(settings.requests);
  const ledger = found.get(settings.ledger);
  const witness = found.get(settings.witness);
  const pair = [requests, ledger].filter((topic) => topic !== undefined);
  const countFaults = (isFault: (topic: FoundTopic) => boolean) =>
    pair.filter(isFault).map((topic) => invalid(otherCount(topic, settings)));
  faults.push(...countFaults(({ partitions }) => partitions < settings.requestPartitions));
  if (requests !== undefined) faults.push(...requestFaults(requests).map(invalid));
  for (const topic of [requests, found.get(settings.deadLetters)]) {
    if (topic === undefined || !policiesOf(topic).includes('compact')) continue;
    const why = 'compaction removes or rejects records that must be read';
    faults.push(invalid(`topic '${topic.name}' must have cleanup.policy=delete: ${why}`));
  }
  if (witness !== undefined) faults.push(...witnessFaults(witness).map(invalid));
  if (ledger !== undefined) faults.push(...ledgerFaults(ledger).map(weak));
  if (ledger !== undefined && requests !== undefined) faults.push(...retentionFaults(ledger, requests).map(forgetful));
  return {
    faults,
    added: countFaults(({ partitions }) => partitions > settings.requestPartitions),
    waivable: [ledger, witness].flatMap((topic) =>
      topic === undefined ? [] : weaknesses(topic, settings.allowWeakLedger).map(weak),
    ),
  };
}

function otherCount({ name, partitions }: FoundTopic, { requestPartitions: served }: TopicSettings): string {
  const message = `topic '${name}' has ${partitions} partitions, but REQUEST_PARTITIONS is ${served}: set it to the number that request topic and ledger were created with`;
  if (partitions < served) return message;
  return `${message}; if that is ${served}, partitions were added since, and workers serve the first ${served}: to end that, create a second pair of topics, see docs/how-to/pair-of-topics.md`;
}

function requestFaults(topic: FoundTopic): string[] {
  const limit = 'max.message.bytes';
  const stamps = differing(topic, { 'message.timestamp.type': 'LogAppendTime' });
  return [
    // Any producer may send requests. A compressed batch within the broker's limit can decompress to more than a worker
    // reads: its requests become dead letters without their records. Services that fix `producer` leave that to the
    // producers, who know what they compress; a codec of the broker's would do it to everyone.
    ...(topic.configs.get('compression.type') === 'producer'
      ? []
      : differing(topic, { 'compression.type': 'uncompressed' })),
    ...stamps.map((message) => `${message}: the age of a request must not depend on its sender's clock`),
    ...(numberOf(topic, limit) <= MAX_REQUEST_BATCH_BYTES
      ? []
      : [mustHave(topic, limit, ` of at most ${MAX_REQUEST_BATCH_BYTES}`)]),
  ];
}

/** The ceiling of a worker ID must be remembered however long the ID is unused, so records must not expire by age. */
function witnessFaults(topic: FoundTopic): string[] {
  const faults = differing(topic, { 'cleanup.policy': 'compact', 'unclean.leader.election.enable': 'false' });
  if (topic.partitions !== 1) faults.push(`topic '${topic.name}' must have 1 partition, not ${topic.partitions}`);
  return faults;
}

/** Entries that are neither deleted nor compacted are not lost, so an empty policy is as good as deletion. */
function ledgerFaults(ledger: FoundTopic): string[] {
  return differing(ledger, {
    ...(isNeverCleaned(ledger) ? {} : { 'cleanup.policy': 'delete' }),
    'message.timestamp.type': 'LogAppendTime',
    'unclean.leader.election.enable': 'false',
  });
}

function weaknesses(topic: FoundTopic, isAllowed: boolean): string[] {
  const faults: string[] = [];
  const remedy = isAllowed ? 'ALLOW_WEAK_LEDGER=1 accepts that' : 'or set ALLOW_WEAK_LEDGER=1 for development';
  if (topic.replicas < SAFE_REPLICAS) {
    faults.push(`topic '${topic.name}' must have ${SAFE_REPLICAS} replicas, not ${topic.replicas}; ${remedy}`);
  }
  if (!(numberOf(topic, 'min.insync.replicas') >= SAFE_IN_SYNC)) {
    faults.push(`${mustHave(topic, 'min.insync.replicas', ` of at least ${SAFE_IN_SYNC}`)}; ${remedy}`);
  }
  return faults;
}

/** If an entry expired before its request, the request could be read again as if it were new. */
function retentionFaults(ledger: FoundTopic, requests: FoundTopic): string[] {
  if (isNeverCleaned(ledger)) return [];
  const faults: string[] = [];
  const keptMs = durationOf(ledger.configs.get('retention.ms'));
  const endless = endlessBy(requests);
  const neededMs = endless === undefined ? lifeMs(requests) + LEDGER_MARGIN_MS : Infinity;
  if (!(keptMs >= neededMs)) {
    const what = endless === undefined ? ` of at least ${neededMs}` : `=-1 (no limit), since ${endless}`;
    faults.push(mustHave(ledger, 'retention.ms', what));
  }
  const bytes = differing(ledger, { 'retention.bytes': '-1' });
  return [...faults, ...bytes.map((message) => `${message}: entries must not be deleted by size`)];
}

/** What makes up the life of a record: a segment is deleted when its newest record has expired. */
const LIFE = ['retention.ms', 'segment.ms'];

/** Why requests are kept without limit, or for a time that the brokers don't report; undefined if there is a limit. */
function endlessBy(requests: FoundTopic): string | undefined {
  if (isNeverCleaned(requests)) return `topic '${requests.name}' has an empty cleanup.policy`;
  const key = LIFE.find((part) => !Number.isFinite(durationOf(requests.configs.get(part))));
  return key && `topic '${requests.name}' has ${key}=${requests.configs.get(key)}`;
}

function lifeMs(requests: FoundTopic): number {
  return LIFE.reduce((sum, part) => sum + durationOf(requests.configs.get(part)), 0);
}

const invalid = (message: string): TopicFault => ({ code: 'TOPIC_INVALID', message });
const weak = (message: string): TopicFault => ({ code: 'LEDGER_WEAK', message });
const forgetful = (message: string): TopicFault => ({ code: 'LEDGER_RETENTION', message });

/** A message for each config that has another value. */
function differing(topic: FoundTopic, expected: Readonly<Record<string, string>>): string[] {
  return Object.entries(expected)
    .filter(([key, value]) => topic.configs.get(key) !== value)
    .map(([key, value]) => mustHave(topic, key, `=${value}`));
}

function mustHave({ name, configs }: FoundTopic, key: string, what: string): string {
  const value = configs.get(key);
  const instead = value === undefined ? 'but the brokers do not report it' : `not ${value === '' ? 'empty' : value}`;
  return `topic '${name}' must have ${key}${what}, ${instead}`;
}

/**
 * NaN if the broker does not report the config. No comparison with NaN holds, so each check must be written to fail
 * then.
 */
function numberOf(topic: FoundTopic, key: string): number {
  const text = topic.configs.get(key);
  return text === undefined ? Number.NaN : Number(text);
}
