import { replyPolicyOf, replyTopicViolation } from '../../../codec/reply-policy.ts';
import { IdallocError } from '../../../errors.ts';

/** Names and required settings of the topics. */
export interface TopicSettings {
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly witness: string;
  /** Replies go to topics whose names start with this. */
  readonly replyPrefix: string;
  /** Where workers receive replies for their HTTP callers; undefined where they ask for none. */
  readonly apiReplies?: string | undefined;
  /** Partitions of the request topic, and so of the ledger. Fixed once the topics exist. */
  readonly requestPartitions: number;
  readonly replicationFactor: number;
  /** -1: unlimited. */
  readonly requestRetentionMs: number;
  /** -1: unlimited. */
  readonly ledgerRetentionMs: number;
  /** Continue with a warning on fewer than three brokers, where losing one can lose decisions. */
  readonly allowWeakLedger: boolean;
  /** What the Kafka service guarantees of every topic, for settings that its brokers don't report; by default none. */
  readonly guarantees?: Readonly<Record<string, string>> | undefined;
}

/** A topic as it should be. */
export interface PlannedTopic {
  readonly name: string;
  readonly partitions: number;
  readonly configs: Readonly<Record<string, string>>;
  /** Values to try, in this order, where a managed service refuses the one in `configs`. */
  readonly alternatives?: Readonly<Record<string, readonly string[]>>;
  /** Other values of configs that have the same effect here, so that they don't count as differences. */
  readonly equivalents?: Readonly<Record<string, string>>;
  /** Records have times that are up to this old, as those of replies have, which are the decisions'; -1: no limit. */
  readonly oldestMs?: number;
}

/**
 * The settings that a service may guarantee without reporting them. The others differ from topic to topic, or are what
 * makes a topic usable at all, so that they have to be seen.
 */
export const GUARANTEED_SETTINGS = [
  'max.message.bytes',
  'min.insync.replicas',
  'retention.bytes',
  'segment.ms',
  'unclean.leader.election.enable',
] as const;

/** A topic as it is. */
export interface FoundTopic {
  readonly name: string;
  readonly partitions: number;
  /** The replicas of the partition that has the fewest. */
  readonly replicas: number;
  /** All effective configs, including the broker's defaults. */
  readonly configs: ReadonlyMap<string, string>;
}

/** The clean-up policies of a topic; empty if the brokers report none. */
export function policiesOf({ configs }: Pick<FoundTopic, 'configs'>): readonly string[] {
  return (configs.get('cleanup.policy') ?? '').split(',').flatMap((policy) => policy.trim() || []);
}

/** Whether the topic keeps its records without limit, because its clean-up policy is empty, as Kafka 4.2 allows. */
export function isNeverCleaned(topic: Pick<FoundTopic, 'configs'>): boolean {
  return topic.configs.has('cleanup.policy') && policiesOf(topic).length === 0;
}

/**
 * A duration of a topic in milliseconds; Infinity for no limit: -1, or more than any clock shows. NaN if it is not
 * reported.
 */
export function durationOf(text: string | undefined): number {
  const milliseconds = Number(text ?? Number.NaN);
  return milliseconds === -1 || milliseconds >= Number.MAX_SAFE_INTEGER ? Infinity : milliseconds;
}

/** How long a segment of the request topic stays open at most; its records are kept that much longer. */
export const REQUEST_SEGMENT_MS = 3_600_000;
/** Retention deletes whole segments: an open one of a week, or of a gigabyte, would be kept that much longer. */
const LEDGER_SEGMENT_MS = 3_600_000;
/** What managed services allow that refuse an hour: a record lives that much longer, and the ledger must outlive it. */
const LONGER_SEGMENTS = { alternatives: { 'segment.ms': ['14400000', '86400000'] } } as const;
/** How much longer the ledger must be kept than the requests, beyond the request topic's segment time. */
export const LEDGER_MARGIN_MS = 3_600_000;

/** The broker checks the compressed size of a batch against the limit, so requests must be stored uncompressed. */
export const MAX_REQUEST_BATCH_BYTES = 1_048_576;
/** A dead letter is the request plus the headers with the reason. */
const MAX_DEAD_LETTER_BATCH_BYTES = MAX_REQUEST_BATCH_BYTES + 65_536;
/**
 * Each worker writes a witness every heartbeat and reads them all when it starts; only closed segments are compacted.
 */
const WITNESS_SEGMENT_MS = 3_600_000;
/** Of replies that nobody reads later. */
const SHORT_RETENTION_MS = 3_600_000;
export const SAFE_REPLICAS = 3;
export const SAFE_IN_SYNC = 2;

/**
 * For topics that workers write. They write uncompressed, and 'producer', Kafka's default, keeps it that way. Any other
 * type costs brokers and readers time for records of a few hundred bytes, and not every client supports every codec.
 */
const AS_WRITTEN = {
  configs: { 'compression.type': 'uncompressed' },
  equivalents: { 'compression.type': 'producer' },
} as const;

/** By these topics refuse records whose time is older; the second is that of Kafka before 3.6. */
const AGE_LIMITS = ['message.timestamp.before.max.ms', 'message.timestamp.difference.max.ms'];
/** Their default. */
const NO_AGE_LIMIT = '9223372036854775807';

/** The reply topic of `idalloc request`. */
export function cliReplyTopic(settings: TopicSettings): string {
  return `${settings.replyPrefix}cli`;
}

/** Every topic that idalloc needs, as `topics init` creates it. */
export function planTopics(settings: TopicSettings): readonly PlannedTopic[] {
  const inSync = String(settings.replicationFactor >= SAFE_REPLICAS ? SAFE_IN_SYNC : 1);
  const durable = { 'min.insync.replicas': inSync, 'unclean.leader.election.enable': 'false' };
  return [
    {
      ...LONGER_SEGMENTS,
      name: settings.requests,
      partitions: settings.requestPartitions,
      configs: {
        ...durable,
        'cleanup.policy': 'delete',
        'compression.type': 'uncompressed',
        'max.message.bytes': String(MAX_REQUEST_BATCH_BYTES),
        'message.timestamp.type': 'LogAppendTime',
        'retention.ms': String(settings.requestRetentionMs),
        'segment.ms': String(REQUEST_SEGMENT_MS),
      },
    },
    {
      ...AS_WRITTEN,
      ...LONGER_SEGMENTS,
      name: settings.ledger,
      partitions: settings.requestPartitions,
      configs: {
        ...AS_WRITTEN.configs,
        ...durable,
        'cleanup.policy': 'delete',
        'message.timestamp.type': 'LogAppendTime',
        'retention.bytes': '-1',
        'retention.ms': String(settings.ledgerRetentionMs),
        'segment.ms': String(LEDGER_SEGMENT_MS),
      },
    },
    {
      ...AS_WRITTEN,
      name: settings.deadLetters,
      partitions: 1,
      configs: {
        ...AS_WRITTEN.configs,
        'cleanup.policy': 'delete',
        'max.message.bytes': String(MAX_DEAD_LETTER_BATCH_BYTES),
      },
    },
    {
      ...AS_WRITTEN,
      ...LONGER_SEGMENTS,
      name: settings.witness,
      partitions: 1,
      configs: {
        ...AS_WRITTEN.configs,
        ...durable,
        'cleanup.policy': 'compact',
        'message.timestamp.type': 'LogAppendTime',
        'min.cleanable.dirty.ratio': '0.1',
        'segment.ms': String(WITNESS_SEGMENT_MS),
      },
    },
    shortReplies(cliReplyTopic(settings), 1, settings),
    ...optionalReplies(settings).map((name) => shortReplies(name, settings.requestPartitions, settings)),
  ];
}

function optionalReplies({ apiReplies }: TopicSettings): readonly string[] {
  return apiReplies === undefined ? [] : [apiReplies];
}

function shortReplies(name: string, partitions: number, { ledgerRetentionMs }: TopicSettings): PlannedTopic {
  const configs = { 'cleanup.policy': 'delete', 'retention.ms': String(SHORT_RETENTION_MS) };
  const oldestMs = ledgerRetentionMs;
  return { ...AS_WRITTEN, name, partitions, oldestMs, configs: { ...AS_WRITTEN.configs, ...configs } };
}

/**
 * Topics for the replies to services. Except for the compression they have the brokers' default configs.
 *
 * @throws IdallocError INVALID_REPLY_TOPIC
 */
export function planReplyTopics(names: readonly string[], settings: TopicSettings): readonly PlannedTopic[] {
  for (const name of names) checkReplyTopicName(name, settings);
  const planned = new Set(planTopics(settings).map(({ name }) => name));
  return [...new Set(names)]
    .filter((name) => !planned.has(name))
    .map((name) => ({ ...AS_WRITTEN, name, partitions: settings.requestPartitions }));
}

/** @throws IdallocError INVALID_REPLY_TOPIC for a name that workers with these settings don't reply to. */
export function checkReplyTopicName(name: string, settings: TopicSettings): void {
  const refusal = replyTopicViolation(name, replyPolicyOf(settings));
  if (refusal === undefined) return;
  const hint = `workers reply to topics that begin with REPLY_TOPIC_PREFIX, here '${settings.replyPrefix}'`;
  throw new IdallocError('INVALID_REPLY_TOPIC', `${refusal} (${hint})`);
}

/** The topics that a worker cannot start without. */
export function workerTopics(settings: TopicSettings): readonly PlannedTopic[] {
  const replies = [cliReplyTopic(settings), ...optionalReplies(settings)];
  return planTopics(settings).filter(({ name }) => !replies.includes(name));
}

/** The differences between a topic and its plan, one line each; a difference is not always a fault. */
export function differences(planned: PlannedTopic, found: FoundTopic, replicationFactor: number): string[] {
  const counts = [
    ['partitions', planned.partitions, found.partitions],
    ['replication factor', replicationFactor, found.replicas],
  ] as const;
  const configs = differingConfigs(planned, found).map(([key, value]) => [key, value, found.configs.get(key)] as const);
  return [...counts, ...configs]
    .filter(([, expected, actual]) => String(expected) !== String(actual))
    .map(([what, expected, actual]) => `${planned.name}: ${what} is ${actual}, not ${expected}`);
}

/** The planned configs that differ from the topic's. */
function differingConfigs(planned: PlannedTopic, found: FoundTopic): [string, string][] {
  const { configs, equivalents = {} } = planned;
  const differing = Object.entries(configs).filter(([key, value]) => {
    const actual = found.configs.get(key);
    if (key.endsWith('.ms') && durationOf(actual) === durationOf(value)) return false;
    return actual === undefined || (actual !== value && actual !== equivalents[key]);
  });
  return [...differing, ...tooShort(planned, found).map((key): [string, string] => [key, NO_AGE_LIMIT])];
}

/** The limits on the age of records that are below that of the topic's. */
function tooShort({ oldestMs }: PlannedTopic, { configs }: FoundTopic): string[] {
  if (oldestMs === undefined || configs.get('message.timestamp.type') === 'LogAppendTime') return [];
  const needed = oldestMs === -1 ? NO_AGE_LIMIT : oldestMs;
  return AGE_LIMITS.filter((key) => Number(configs.get(key) ?? NO_AGE_LIMIT) < Number(needed));
}

/**
 * The remedies that bring a topic in line with the plan, one line each, as commands of Kafka's tools. Records in the
 * topic are not changed.
 */
export function remediesFor(
  planned: PlannedTopic,
  found: FoundTopic | undefined,
  { replicationFactor }: Pick<TopicSettings, 'replicationFactor'>,
): string[] {
  if (found === undefined) return [`create '${planned.name}': idalloc topics init`];
  const lines: string[] = [];
  const configs = differingConfigs(planned, found);
  if (configs.length > 0) {
    const list = configs.map(([key, value]) => `${key}=${value}`).join(',');
    lines.push(`kafka-configs --alter --entity-type topics --entity-name ${planned.name} --add-config ${list}`);
  }
  if (found.replicas < replicationFactor) {
    lines.push(`raise '${planned.name}' to ${replicationFactor} replicas: kafka-reassign-partitions`);
  }
  if (found.partitions !== planned.partitions) {
    lines.push(
      `'${planned.name}' has ${found.partitions} partitions, not ${planned.partitions}: set REQUEST_PARTITIONS to the number that it was ` +
        "created with, or create topics under new names; added partitions can't be removed",
    );
  }
  return lines;
}
