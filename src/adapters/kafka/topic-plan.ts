import { refuseReplyTopic, replyPolicyOf } from '../../codec/reply-policy.ts';
import { IdallocError } from '../../errors.ts';

/** Names and promises of the topics. */
export interface TopicSettings {
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly witness: string;
  /** Replies go to topics whose names start with this. */
  readonly replyPrefix: string;
  /** Partitions of the request topic, and so of the ledger. Frozen once the topics exist. */
  readonly requestPartitions: number;
  readonly replicationFactor: number;
  /** -1: for ever. */
  readonly requestRetentionMs: number;
  /** -1: for ever. */
  readonly ledgerRetentionMs: number;
  /** Go on, with a warning, on fewer than three brokers, where losing one can lose decisions. */
  readonly allowWeakLedger: boolean;
}

/** A topic as it shall be. */
export interface PlannedTopic {
  readonly name: string;
  readonly partitions: number;
  readonly configs: Readonly<Record<string, string>>;
}

/** A topic as it is. */
export interface FoundTopic {
  readonly name: string;
  readonly partitions: number;
  /** Of the partition that has the fewest. */
  readonly replicas: number;
  /** All configs with the values that are in force, the broker's defaults among them. */
  readonly configs: ReadonlyMap<string, string>;
}

export interface TopicFault {
  readonly code: 'TOPIC_INVALID' | 'LEDGER_WEAK' | 'LEDGER_RETENTION';
  readonly message: string;
}

/** A segment of the request topic stays open for at most this long, and its records are kept as much longer. */
export const REQUEST_SEGMENT_MS = 3_600_000;
/** What the ledger must outlive the requests by, beyond the request topic's own segment time. */
export const LEDGER_MARGIN_MS = 3_600_000;

/** The limit holds for compressed batches, and compression hides the size: so requests come uncompressed. */
const MAX_REQUEST_BATCH_BYTES = 1_048_576;
/** A dead letter is the request and the headers that say what was wrong with it. */
const MAX_DEAD_LETTER_BATCH_BYTES = MAX_REQUEST_BATCH_BYTES + 65_536;
/** Each worker writes a witness every heartbeat, and reads them all when it starts: only closed segments are compacted. */
const WITNESS_SEGMENT_MS = 3_600_000;
const CLI_REPLY_RETENTION_MS = 3_600_000;
const SAFE_REPLICAS = 3;
const SAFE_IN_SYNC = 2;

/** The topic that `idalloc request` reads its replies from. */
export function cliReplyTopic(settings: TopicSettings): string {
  return `${settings.replyPrefix}cli`;
}

/** Every topic that idalloc needs, as it makes them on an empty cluster. */
export function planTopics(settings: TopicSettings): readonly PlannedTopic[] {
  const inSync = String(settings.replicationFactor >= SAFE_REPLICAS ? SAFE_IN_SYNC : 1);
  const durable = { 'min.insync.replicas': inSync, 'unclean.leader.election.enable': 'false' };
  return [
    {
      name: settings.requests,
      partitions: settings.requestPartitions,
      configs: {
        'cleanup.policy': 'delete',
        'compression.type': 'uncompressed',
        'max.message.bytes': String(MAX_REQUEST_BATCH_BYTES),
        'retention.ms': String(settings.requestRetentionMs),
        'segment.ms': String(REQUEST_SEGMENT_MS),
      },
    },
    {
      name: settings.ledger,
      partitions: settings.requestPartitions,
      configs: {
        ...durable,
        'cleanup.policy': 'delete',
        'message.timestamp.type': 'LogAppendTime',
        'retention.bytes': '-1',
        'retention.ms': String(settings.ledgerRetentionMs),
      },
    },
    {
      name: settings.deadLetters,
      partitions: 1,
      configs: { 'cleanup.policy': 'delete', 'max.message.bytes': String(MAX_DEAD_LETTER_BATCH_BYTES) },
    },
    {
      name: settings.witness,
      partitions: 1,
      configs: {
        ...durable,
        'cleanup.policy': 'compact',
        'message.timestamp.type': 'LogAppendTime',
        'min.cleanable.dirty.ratio': '0.1',
        'segment.ms': String(WITNESS_SEGMENT_MS),
      },
    },
    {
      name: cliReplyTopic(settings),
      partitions: 1,
      configs: { 'cleanup.policy': 'delete', 'retention.ms': String(CLI_REPLY_RETENTION_MS) },
    },
  ];
}

/**
 * Topics for the replies to services, with the brokers' own configs.
 *
 * @throws IdallocError INVALID_REPLY_TOPIC
 */
export function planReplyTopics(names: readonly string[], settings: TopicSettings): readonly PlannedTopic[] {
  for (const name of names) checkReplyTopicName(name, settings);
  const planned = new Set(planTopics(settings).map(({ name }) => name));
  return [...new Set(names)]
    .filter((name) => !planned.has(name))
    .map((name) => ({ name, partitions: settings.requestPartitions, configs: {} }));
}

/** @throws IdallocError INVALID_REPLY_TOPIC for a name that no worker of these settings replies on. */
export function checkReplyTopicName(name: string, settings: TopicSettings): void {
  const refusal = refuseReplyTopic(name, replyPolicyOf(settings));
  if (refusal === undefined) return;
  const hint = `workers reply on what begins with '${settings.replyPrefix}', by REPLY_TOPIC_PREFIX`;
  throw new IdallocError('INVALID_REPLY_TOPIC', `${refusal} (${hint})`);
}

/** Those of them that a worker reads or writes by itself. */
export function workerTopics(settings: TopicSettings): readonly PlannedTopic[] {
  return planTopics(settings).filter(({ name }) => name !== cliReplyTopic(settings));
}

/** What differs between a topic as planned and as it is, one text each; nothing here says that it is wrong. */
export function differences(planned: PlannedTopic, found: FoundTopic, replicationFactor: number): string[] {
  const counts = [
    ['partitions', planned.partitions, found.partitions],
    ['replication factor', replicationFactor, found.replicas],
  ] as const;
  const configs = Object.entries(planned.configs).map(([key, value]) => [key, value, found.configs.get(key)] as const);
  return [...counts, ...configs]
    .filter(([, expected, actual]) => String(expected) !== String(actual))
    .map(([what, expected, actual]) => `${planned.name}: ${what} is ${actual}, not ${expected}`);
}

/**
 * What to do so that a topic is as planned, one line each, in the words of Kafka's own tools. What is already in the
 * topic stays as it is.
 */
export function mends(planned: PlannedTopic, found: FoundTopic | undefined, settings: TopicSettings): string[] {
  if (found === undefined) return [`make '${planned.name}': idalloc topics init`];
  const lines: string[] = [];
  const configs = Object.entries(planned.configs).filter(([key, value]) => found.configs.get(key) !== value);
  if (configs.length > 0) {
    const list = configs.map(([key, value]) => `${key}=${value}`).join(',');
    lines.push(`kafka-configs --alter --entity-type topics --entity-name ${planned.name} --add-config ${list}`);
  }
  if (found.replicas < settings.replicationFactor) {
    lines.push(`give '${planned.name}' ${settings.replicationFactor} replicas: kafka-reassign-partitions`);
  }
  if (found.partitions !== planned.partitions) {
    lines.push(
      `'${planned.name}' has ${found.partitions} partitions, not ${planned.partitions}: set REQUEST_PARTITIONS to what it was ` +
        'made with, or make topics under new names; partitions that are added to can not be taken back',
    );
  }
  return lines;
}

/**
 * Every reason why a worker must not start on these topics. The weakness that one broker can't help is told apart, as
 * `waivable`, for those who accept it; wrong clean-up or wrong timestamps can be had right on one broker too.
 */
export function judgeTopics(
  found: ReadonlyMap<string, FoundTopic>,
  settings: TopicSettings,
): { readonly faults: readonly TopicFault[]; readonly waivable: readonly TopicFault[] } {
  const faults: TopicFault[] = [];
  const invalid = (message: string) => faults.push({ code: 'TOPIC_INVALID', message });
  for (const name of [settings.requests, settings.ledger, settings.deadLetters, settings.witness]) {
    if (!found.has(name)) invalid(`topic '${name}' does not exist: run 'idalloc topics init'`);
  }
  const requests = found.get(settings.requests);
  const ledger = found.get(settings.ledger);
  const witness = found.get(settings.witness);
  if (requests !== undefined) requestFaults(requests, settings).forEach(invalid);
  for (const topic of [requests, found.get(settings.deadLetters)]) {
    if (topic?.configs.get('cleanup.policy')?.split(',').includes('compact')) {
      invalid(
        `topic '${topic.name}' must have cleanup.policy=delete: compaction takes, or refuses, what has to be read`,
      );
    }
  }
  if (witness !== undefined) witnessFaults(witness).forEach(invalid);
  const waivable = [ledger, witness].flatMap((topic) => (topic === undefined ? [] : weaknesses(topic)));
  if (ledger === undefined) return { faults, waivable };
  if (requests !== undefined && ledger.partitions !== requests.partitions) {
    invalid(
      `'${ledger.name}' has ${ledger.partitions} partitions, '${requests.name}' ${requests.partitions}: must agree`,
    );
  }
  faults.push(...ledgerFaults(ledger));
  if (requests !== undefined) faults.push(...retentionFaults(ledger, requests));
  return { faults, waivable };
}

function requestFaults(topic: FoundTopic, settings: TopicSettings): string[] {
  const faults: string[] = [];
  if (topic.partitions !== settings.requestPartitions) {
    faults.push(
      `topic '${topic.name}' has ${topic.partitions} partitions, REQUEST_PARTITIONS says ${settings.requestPartitions}: ` +
        'set it to what the topic was made with; a topic whose partitions were added to can not be replayed exactly',
    );
  }
  const compression = topic.configs.get('compression.type');
  if (compression !== 'uncompressed') {
    faults.push(`topic '${topic.name}' must have compression.type=uncompressed, not ${compression}`);
  }
  const limit = numberOf(topic, 'max.message.bytes');
  if (!(limit <= MAX_REQUEST_BATCH_BYTES)) {
    faults.push(
      `topic '${topic.name}' must have max.message.bytes of at most ${MAX_REQUEST_BATCH_BYTES}, not ${limit}`,
    );
  }
  return faults;
}

/** Whoever holds no worker ID for long must be remembered for as long, so nothing goes by age. */
function witnessFaults(topic: FoundTopic): string[] {
  const expected = { 'cleanup.policy': 'compact', 'unclean.leader.election.enable': 'false' };
  const faults = Object.entries(expected)
    .filter(([key, value]) => topic.configs.get(key) !== value)
    .map(([key, value]) => `topic '${topic.name}' must have ${key}=${value}, not ${topic.configs.get(key)}`);
  if (topic.partitions !== 1) faults.push(`topic '${topic.name}' must have 1 partition, not ${topic.partitions}`);
  return faults;
}

function ledgerFaults(ledger: FoundTopic): TopicFault[] {
  const expected = {
    'cleanup.policy': 'delete',
    'message.timestamp.type': 'LogAppendTime',
    'unclean.leader.election.enable': 'false',
  };
  return Object.entries(expected)
    .filter(([key, value]) => ledger.configs.get(key) !== value)
    .map(([key, value]) => weak(`topic '${ledger.name}' must have ${key}=${value}, not ${ledger.configs.get(key)}`));
}

function weaknesses(topic: FoundTopic): TopicFault[] {
  const faults: TopicFault[] = [];
  const inSync = numberOf(topic, 'min.insync.replicas');
  const remedy = 'or accept it for development by ALLOW_WEAK_LEDGER=1';
  if (topic.replicas < SAFE_REPLICAS) {
    faults.push(weak(`topic '${topic.name}' must have ${SAFE_REPLICAS} replicas, not ${topic.replicas}; ${remedy}`));
  }
  if (!(inSync >= SAFE_IN_SYNC)) {
    faults.push(weak(`topic '${topic.name}' must have min.insync.replicas of at least 2, not ${inSync}; ${remedy}`));
  }
  return faults;
}

/** An entry that goes before its request does would let the request come again as if it were new. */
function retentionFaults(ledger: FoundTopic, requests: FoundTopic): TopicFault[] {
  const faults: TopicFault[] = [];
  const kept = endless(numberOf(ledger, 'retention.ms'));
  const needed = endless(numberOf(requests, 'retention.ms')) + numberOf(requests, 'segment.ms') + LEDGER_MARGIN_MS;
  if (!(kept >= needed)) {
    const message = `topic '${ledger.name}' must have retention.ms of at least ${needed === Infinity ? '-1' : needed}, not ${kept}`;
    faults.push({ code: 'LEDGER_RETENTION', message });
  }
  const bytes = ledger.configs.get('retention.bytes');
  if (bytes !== '-1') {
    const message = `topic '${ledger.name}' must have retention.bytes=-1, not ${bytes}: entries must not go by size`;
    faults.push({ code: 'LEDGER_RETENTION', message });
  }
  return faults;
}

const weak = (message: string): TopicFault => ({ code: 'LEDGER_WEAK', message });
const endless = (milliseconds: number) => (milliseconds === -1 ? Infinity : milliseconds);

/** NaN when the broker does not tell the config: no comparison holds for it, so each check must fail then. */
function numberOf(topic: FoundTopic, key: string): number {
  const text = topic.configs.get(key);
  return text === undefined ? Number.NaN : Number(text);
}
