import { Gauge, type Registry } from 'prom-client';

const KAFKA_RESOURCES = ['login', 'requests', 'ledger', 'witness', 'dead_letters', 'replies', 'group'] as const;
export type KafkaResource = (typeof KAFKA_RESOURCES)[number];

const COUNTED_TOPICS = ['requests', 'ledger'] as const;
const TOPIC_FAULTS = ['TOPIC_INVALID', 'LEDGER_WEAK', 'LEDGER_RETENTION'] as const;

/** The alarms with which etcd refuses writes. */
const ETCD_ALARMS = ['NOSPACE', 'CORRUPT'] as const;

const COPY_STATES = ['restoring', 'following', 'serving', 'stopped'] as const;

/** What waits in the partitions of the request topic. */
export interface RequestVitals {
  /** How long the oldest request of each partition has waited; 0 when none waits. */
  readonly oldestUnread: readonly { readonly partition: number; readonly milliseconds: number }[];
  /** Partitions with unanswered large requests: how many, and for how long the oldest has been in the topic. */
  readonly largeWaiting: readonly WaitingVitals[];
  /** Partitions with unanswered requests for numbers, likewise. */
  readonly numbersWaiting: readonly WaitingVitals[];
}

export const NO_REQUESTS: RequestVitals = { oldestUnread: [], largeWaiting: [], numbersWaiting: [] };

/** The worker's state, read once per scrape. */
export interface Vitals extends RequestVitals {
  /** It has joined the request group and has not been removed since. */
  readonly isMember: boolean;
  /** How long no broker has answered. */
  readonly kafkaSilenceMs: number;
  /** Brokers that do not answer and on which partitions of the worker depend. */
  readonly silent: readonly {
    readonly partition: number;
    readonly topic: 'requests' | 'ledger' | 'replies';
    readonly broker: string;
    readonly milliseconds: number;
  }[];
  /** Partitions of which a request has waited since the look before or longer, whoever owns them, and for how long. */
  readonly groupUnread: readonly { readonly partition: number; readonly milliseconds: number }[];
  readonly stoppedPartitions: number;
  /** For how long etcd has not confirmed how far the worker's ledger partitions have gone. */
  readonly headsFailingMs: number;
  /** Partitions of a topic beyond those that have a ledger; absent for none. */
  readonly addedPartitions: ReadonlyMap<(typeof COUNTED_TOPICS)[number], number>;
  /** Why a worker would not start on the topics as they were when it last looked, but for added partitions. */
  readonly topicFaults: readonly { readonly code: (typeof TOPIC_FAULTS)[number] }[];
  /** Sequences whose numbers the ledger and etcd contradict, as far as requests have shown it. */
  readonly stoppedSequences: number;
  /** The resources that the brokers deny to this worker. */
  readonly kafkaRefused: ReadonlySet<KafkaResource>;
  /** What the endpoints of etcd last reported; those that did not answer are left out. */
  readonly etcd: {
    readonly databases: readonly { readonly endpoint: string; readonly bytes: number }[];
    readonly alarms: ReadonlySet<(typeof ETCD_ALARMS)[number]>;
  };
  /** The copies of ledger partitions that the worker keeps. */
  readonly copies: readonly CopyVitals[];
  /** How far the clock of each broker that answered lately is certainly ahead of this worker's; negative: behind. */
  readonly brokerLeads: readonly { readonly broker: string; readonly milliseconds: number }[];
  /** The certificates in use, by variable. */
  readonly certificates: readonly {
    readonly variable: string;
    readonly expiresAtMs: number;
    readonly lifeMs: number;
  }[];
  /** The disk of the index; undefined while it can't be asked. */
  readonly indexDisk: { readonly bytes: number; readonly freeBytes: number } | undefined;
  /** What other metrics are compared with. */
  readonly configured: {
    readonly reservationMs: number;
    /** Twice the largest difference of two brokers' clocks that is allowed for. */
    readonly clockMarginMs: number;
    readonly etcdQuotaBytes: number;
    /** The worker IDs of the namespace's pool. */
    readonly poolWorkerIds: number;
    /** The fewest standbys that each ledger partition should have. */
    readonly standbys: number;
    /** The first moment without an ID in the layout (wall ms). */
    readonly layoutEndMs: number;
  };
}

export interface WaitingVitals {
  readonly partition: number;
  readonly waiting: number;
  readonly milliseconds: number;
}

interface CopyVitals {
  readonly partition: number;
  /** A following copy counts as serving if the worker owns the partition. */
  readonly state: (typeof COPY_STATES)[number];
  /** The start of the log when reading began, the end of the copy and the last known end of the log, as offsets. */
  readonly low: number;
  readonly end: number;
  readonly logEnd: number;
}

type Series = readonly [labels: Readonly<Record<string, string | number>>, value: number];

/** A metric that shows a part of the vitals. What its name gives in seconds is milliseconds here. */
interface VitalGauge {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly string[];
  /** Undefined vitals: the worker does not exist yet. */
  readonly of: (vitals: Vitals | undefined) => readonly Series[];
}

type Single = 'isMember' | 'kafkaSilenceMs' | 'stoppedPartitions' | 'headsFailingMs' | 'stoppedSequences';

/** A metric without labels, which is 0 before there is a worker. */
function single(name: string, help: string, vital: Single): VitalGauge {
  return { name, help, labels: [], of: (vitals) => [[{}, Number(vitals?.[vital] ?? 0)]] };
}

/** A metric without labels that comes from the configuration, and is absent before it is known. */
function configured(name: string, help: string, setting: keyof Vitals['configured']): VitalGauge {
  return { name, help, labels: [], of: (vitals) => seriesOf(vitals?.configured[setting]) };
}

/** A series for each item. */
function each(
  name: string,
  labels: readonly string[],
  help: string,
  of: (vitals: Vitals) => readonly Series[],
): VitalGauge {
  return { name, help, labels, of: (vitals) => (vitals === undefined ? [] : of(vitals)) };
}

/** A series for each of a closed set. */
function closed<T extends string>(
  name: string,
  [label, values]: readonly [string, readonly T[]],
  help: string,
  of: (vitals: Vitals, value: T) => number,
): VitalGauge {
  const read = (vitals: Vitals | undefined, value: T) => (vitals === undefined ? 0 : of(vitals, value));
  return {
    name,
    help,
    labels: [label],
    of: (vitals) => values.map((value) => [{ [label]: value }, read(vitals, value)]),
  };
}

/** The series of a metric without labels, which is absent while its value is unknown. */
function seriesOf(value: number | undefined): readonly Series[] {
  return value === undefined ? [] : [[{}, value]];
}

/** Reads what comes from files once in a scrape, whatever number of metrics show it. */
function onceInScrape<T>(read: (vitals: Vitals) => T): (vitals: Vitals) => T {
  let last: { readonly of: Vitals; readonly value: T } | undefined;
  return (vitals) => {
    if (last?.of !== vitals) last = { of: vitals, value: read(vitals) };
    return last.value;
  };
}

const certificatesOf = onceInScrape(({ certificates }) => certificates);
const indexDiskOf = onceInScrape(({ indexDisk }) => indexDisk);

const GAUGES: readonly VitalGauge[] = [
  single('group_joined', '1 while the worker is a member of the request group', 'isMember'),
  single('kafka_silence_seconds', 'Time since any broker last answered', 'kafkaSilenceMs'),
  closed(
    'kafka_refused',
    ['resource', KAFKA_RESOURCES],
    '1 while the brokers reject the login, deny access to the named resource, or reject the session in the group',
    ({ kafkaRefused }, resource) => Number(kafkaRefused.has(resource)),
  ),
  each(
    'etcd_database_bytes',
    ['endpoint'],
    'Size of the database of an etcd member, asked for each minute; absent while the member does not answer',
    ({ etcd }) => etcd.databases.map(({ endpoint, bytes }) => [{ endpoint }, bytes]),
  ),
  closed(
    'etcd_alarm',
    ['alarm', ETCD_ALARMS],
    '1 while etcd reports the alarm, with which it refuses writes; asked for each minute',
    ({ etcd }, alarm) => Number(etcd.alarms.has(alarm)),
  ),
  each(
    'partition_unreached_seconds',
    ['partition', 'topic', 'broker'],
    'Time since a broker last answered that leads a partition of the worker, its part of the ledger, or replies that it waits for; absent while it answers',
    ({ silent }) =>
      silent.map(({ partition, topic, broker, milliseconds }) => [{ partition, topic, broker }, milliseconds]),
  ),
  single(
    'ledger_stopped_partitions',
    "Ledger partitions that can't be read, or whose entries were copied to other offsets; their requests wait",
    'stoppedPartitions',
  ),
  single(
    'ledger_heads_failing_seconds',
    "Time for which etcd has not confirmed how far the worker's ledger partitions have gone; 0 while it does",
    'headsFailingMs',
  ),
  closed(
    'topic_added_partitions',
    ['topic', COUNTED_TOPICS],
    'Partitions that were added to a topic, whose requests are forwarded to the others',
    ({ addedPartitions }, topic) => addedPartitions.get(topic) ?? 0,
  ),
  closed(
    'topic_faults',
    ['code', TOPIC_FAULTS],
    'Reasons why a worker would not start on the topics as they are now, by code; running workers look each minute',
    ({ topicFaults }, code) => topicFaults.filter((fault) => fault.code === code).length,
  ),
  each(
    'partition_state',
    ['partition', 'state'],
    "1 for the state of the worker's copy of a ledger partition: restoring, following (standby), serving, stopped",
    ({ copies }) => copies.map(({ partition, state }) => [{ partition, state }, 1]),
  ),
  each(
    'ledger_lag_records',
    ['partition'],
    "Entries of a ledger partition missing from the worker's copy",
    ({ copies }) => copies.map(({ partition, end, logEnd }) => [{ partition }, logEnd - end]),
  ),
  each(
    'restore_progress_ratio',
    ['partition'],
    'Share of a ledger partition that a copy being restored has, from 0 to 1; absent for a copy that is complete',
    ({ copies }) =>
      copies.flatMap((copy) => (copy.state === 'restoring' ? [[{ partition: copy.partition }, progressOf(copy)]] : [])),
  ),
  each(
    'request_oldest_unread_seconds',
    ['partition'],
    'Time since the worker first saw the oldest unanswered request of a partition, or since it could last look; 0 when none waits',
    ({ oldestUnread }) => oldestUnread.map(({ partition, milliseconds }) => [{ partition }, milliseconds]),
  ),
  each(
    'group_oldest_unread_seconds',
    ['partition'],
    'Time that the oldest request of a partition which no worker has answered has been in the topic, whoever owns the partition; absent while none has waited for about two scrapes',
    ({ groupUnread }) => groupUnread.map(({ partition, milliseconds }) => [{ partition }, milliseconds]),
  ),
  each('large_requests_waiting', ['partition'], 'Large requests of a partition not yet answered', ({ largeWaiting }) =>
    largeWaiting.map(({ partition, waiting }) => [{ partition }, waiting]),
  ),
  each(
    'large_request_oldest_seconds',
    ['partition'],
    'Time that the oldest unanswered large request of a partition has been in the topic',
    ({ largeWaiting }) => largeWaiting.map(({ partition, milliseconds }) => [{ partition }, milliseconds]),
  ),
  each(
    'number_requests_waiting',
    ['partition'],
    'Requests of a partition for numbers of sequences, not yet answered',
    ({ numbersWaiting }) => numbersWaiting.map(({ partition, waiting }) => [{ partition }, waiting]),
  ),
  each(
    'number_request_oldest_seconds',
    ['partition'],
    'Time that the oldest unanswered request of a partition for numbers has been in the topic; they wait for etcd',
    ({ numbersWaiting }) => numbersWaiting.map(({ partition, milliseconds }) => [{ partition }, milliseconds]),
  ),
  single(
    'sequences_stopped',
    'Sequences that are stopped because the ledger contradicts etcd, as far as requests for their numbers have shown it',
    'stoppedSequences',
  ),
  each(
    'broker_clock_lead_seconds',
    ['broker'],
    "How far the clock of a broker that leads ledger partitions is certainly ahead of the worker's, or behind it if negative; 0 while both may agree",
    ({ brokerLeads }) => brokerLeads.map(({ broker, milliseconds }) => [{ broker }, milliseconds]),
  ),
  each(
    'certificate_expiry_timestamp_seconds',
    ['variable'],
    'Unix time at which a certificate in use expires, by the variable that holds it',
    (vitals) => certificatesOf(vitals).map(({ variable, expiresAtMs }) => [{ variable }, expiresAtMs]),
  ),
  each(
    'certificate_life_seconds',
    ['variable'],
    'Time from the first to the last moment of a certificate in use, by the variable that holds it',
    (vitals) => certificatesOf(vitals).map(({ variable, lifeMs }) => [{ variable }, lifeMs]),
  ),
  each('index_disk_bytes', [], 'Size of the disk that has INDEX_DIR', (vitals) => seriesOf(indexDiskOf(vitals)?.bytes)),
  each('index_disk_free_bytes', [], 'What is free on the disk that has INDEX_DIR', (vitals) =>
    seriesOf(indexDiskOf(vitals)?.freeBytes),
  ),
  configured('pool_worker_ids', 'Worker IDs of the pool: POOL_FIRST to POOL_LAST', 'poolWorkerIds'),
  configured('layout_end_timestamp_seconds', 'Unix time from which on the layout has no IDs', 'layoutEndMs'),
  configured('reservation_seconds', 'How far each raise of the ceiling reaches: RESERVATION_MS', 'reservationMs'),
  configured(
    'broker_clock_margin_seconds',
    "Twice the largest difference of two brokers' clocks that is allowed for: BROKER_CLOCK_MARGIN_MS",
    'clockMarginMs',
  ),
  configured(
    'etcd_quota_bytes',
    'Size of the database at which etcd refuses writes: ETCD_QUOTA_BYTES',
    'etcdQuotaBytes',
  ),
  configured(
    'standbys_wanted',
    'The fewest standbys that each ledger partition should have: INDEX_STANDBYS, or 1 for all',
    'standbys',
  ),
];

function progressOf({ low, end, logEnd }: CopyVitals): number {
  return logEnd > low ? Math.max(0, end - low) / (logEnd - low) : 1;
}

/** Registers the metrics that show the vitals. `vitals` returns those of the current scrape. */
export function registerVitals(registry: Registry, vitals: () => Vitals | undefined): void {
  for (const { name, help, labels, of } of GAUGES) {
    const unit = name.endsWith('_seconds') ? 1_000 : 1;
    new Gauge({
      name: `idalloc_${name}`,
      help,
      labelNames: [...labels],
      registers: [registry],
      collect() {
        this.reset();
        if (labels.length === 0) this.remove();
        for (const [values, value] of of(vitals())) this.set(values, value / unit);
      },
    });
  }
}
