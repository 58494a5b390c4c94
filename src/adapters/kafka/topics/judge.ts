import {
  type FoundTopic,
  LEDGER_MARGIN_MS,
  MAX_REQUEST_BATCH_BYTES,
  SAFE_IN_SYNC,
  SAFE_REPLICAS,
  type TopicSettings,
} from './plan.ts';

export interface TopicFault {
  readonly code: 'TOPIC_INVALID' | 'LEDGER_WEAK' | 'LEDGER_RETENTION';
  readonly message: string;
}

/**
 * Every reason why a worker must not start on these topics. Faults that can't be avoided with a single broker are separate,
 * as `waivable`; clean-up policy and timestamps can be right on one broker too.
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
        `topic '${topic.name}' must have cleanup.policy=delete: compaction removes or rejects records that must be read`,
      );
    }
  }
  if (witness !== undefined) witnessFaults(witness).forEach(invalid);
  const waivable = [ledger, witness].flatMap((topic) =>
    topic === undefined ? [] : weaknesses(topic, settings.allowWeakLedger),
  );
  if (ledger === undefined) return { faults, waivable };
  if (requests !== undefined && ledger.partitions !== requests.partitions) {
    invalid(
      `'${ledger.name}' has ${ledger.partitions} partitions, '${requests.name}' ${requests.partitions}: they must be equal`,
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
      `topic '${topic.name}' has ${topic.partitions} partitions, but REQUEST_PARTITIONS is ${settings.requestPartitions}: ` +
        "set it to the number that the topic was created with; a topic with added partitions can't be served: create a second pair of topics, see docs/how-to/pair-of-topics.md",
    );
  }
  // Any producer may send requests. A compressed batch within the broker's limit can decompress to more than a worker
  // reads: its requests would become dead letters without their records. On the other topics it is only a difference.
  const compression = topic.configs.get('compression.type');
  if (compression !== 'uncompressed') {
    faults.push(`topic '${topic.name}' must have compression.type=uncompressed, not ${compression}`);
  }
  const stamps = topic.configs.get('message.timestamp.type');
  if (stamps !== 'LogAppendTime') {
    faults.push(
      `topic '${topic.name}' must have message.timestamp.type=LogAppendTime, not ${stamps}: the age of a request must not depend on its sender's clock`,
    );
  }
  const limit = numberOf(topic, 'max.message.bytes');
  if (!(limit <= MAX_REQUEST_BATCH_BYTES)) {
    faults.push(
      `topic '${topic.name}' must have max.message.bytes of at most ${MAX_REQUEST_BATCH_BYTES}, not ${limit}`,
    );
  }
  return faults;
}

/** The ceiling of a worker ID must be remembered however long the ID is unused, so records must not expire by age. */
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

function weaknesses(topic: FoundTopic, isAllowed: boolean): TopicFault[] {
  const faults: TopicFault[] = [];
  const inSync = numberOf(topic, 'min.insync.replicas');
  const remedy = isAllowed ? 'ALLOW_WEAK_LEDGER=1 accepts that' : 'or set ALLOW_WEAK_LEDGER=1 for development';
  if (topic.replicas < SAFE_REPLICAS) {
    faults.push(weak(`topic '${topic.name}' must have ${SAFE_REPLICAS} replicas, not ${topic.replicas}; ${remedy}`));
  }
  if (!(inSync >= SAFE_IN_SYNC)) {
    faults.push(weak(`topic '${topic.name}' must have min.insync.replicas of at least 2, not ${inSync}; ${remedy}`));
  }
  return faults;
}

/** If an entry expired before its request, the request could be read again as if it were new. */
function retentionFaults(ledger: FoundTopic, requests: FoundTopic): TopicFault[] {
  const faults: TopicFault[] = [];
  const kept = endless(numberOf(ledger, 'retention.ms'));
  const needed = endless(numberOf(requests, 'retention.ms')) + numberOf(requests, 'segment.ms') + LEDGER_MARGIN_MS;
  if (!(kept >= needed)) {
    const message =
      needed === Infinity
        ? `topic '${ledger.name}' must have retention.ms=-1 (no limit), as topic '${requests.name}' has, not ${kept}`
        : `topic '${ledger.name}' must have retention.ms of at least ${needed}, not ${kept}`;
    faults.push({ code: 'LEDGER_RETENTION', message });
  }
  const bytes = ledger.configs.get('retention.bytes');
  if (bytes !== '-1') {
    const message = `topic '${ledger.name}' must have retention.bytes=-1, not ${bytes}: entries must not be deleted by size`;
    faults.push({ code: 'LEDGER_RETENTION', message });
  }
  return faults;
}

const weak = (message: string): TopicFault => ({ code: 'LEDGER_WEAK', message });
const endless = (milliseconds: number) => (milliseconds === -1 ? Infinity : milliseconds);

/** NaN if the broker does not report the config. No comparison with NaN holds, so each check must be written to fail then. */
function numberOf(topic: FoundTopic, key: string): number {
  const text = topic.configs.get(key);
  return text === undefined ? Number.NaN : Number(text);
}
