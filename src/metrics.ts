import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** The result of an answered request: new IDs, the same ones again, or an error. */
type RequestResult = 'issued' | 'replayed' | 'refused';

/**
 * The metrics of a worker. Each call is cheap and never throws; label values come from closed sets or, for partitions,
 * from the brokers, so the number of series is bounded.
 */
export interface Metrics {
  /** IDs of settled batches that were sent for the first time. */
  addIds(count: number): void;
  /** Numbers of sequences that were given out for the first time. */
  addNumbers(count: number): void;
  addRequests(result: RequestResult, count?: number): void;
  /** Replies that the brokers acknowledged. */
  addReplies(count: number): void;
  /** A dead letter was acknowledged that stands for so many requests. */
  addDeadLetters(requests: number): void;
  /** Requests that were appended to their home partitions. */
  addForwarded(count: number): void;
  /** A request refused by the quota of this prefix; the prefixes are those of the configuration. */
  addQuotaExceeded(prefix: string): void;
  /** An error with a code of the closed set, sent to a requester or raised in the worker. */
  addError(code: string, count?: number): void;
  /** The gate's reason, or 'open'. */
  setGate(reason: string): void;
  /** The time until the worker's own deadline; negative when past it. */
  setLeaseMargin(milliseconds: number): void;
  /** The time from now to the ceiling; negative when the clock is past it. */
  setCeilingMargin(milliseconds: number): void;
  /** The interval in which our clock's lead over the brokers' lies; undefined when no broker has answered. */
  setClockDrift(interval: { readonly lowMs: number; readonly highMs: number } | undefined): void;
  /** The time from the delivery of a record batch until all of it was answered. */
  observeBatch(milliseconds: number): void;
  /** Records waiting in a request partition, those of open transactions included; undefined once another worker owns it. */
  setLag(partition: number, records: number | undefined): void;
  /** A request of the HTTP API; the route is one of the API's routes or 'other', the caller a name in the configuration. */
  addHttpRequest(route: string, status: number, caller: string, milliseconds: number): void;
  /** A connection was closed or refused because its listener was at its limit. */
  addShedConnection(listener: Listener): void;
  /** In the text format of Prometheus. */
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
}

/** The worker's state, read once per scrape. */
export interface Vitals {
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
  readonly stoppedPartitions: number;
  /** Partitions of a topic beyond those that are served; absent for none. */
  readonly addedPartitions: ReadonlyMap<(typeof COUNTED_TOPICS)[number], number>;
  /** How long the oldest request of each partition has waited; 0 when none waits. */
  readonly oldestUnread: readonly { readonly partition: number; readonly milliseconds: number }[];
  /** Partitions with unanswered large requests: how many, and for how long the oldest has been in the topic. */
  readonly largeWaiting: readonly {
    readonly partition: number;
    readonly waiting: number;
    readonly milliseconds: number;
  }[];
  /** The resources that the brokers deny to this worker. */
  readonly kafkaRefused: ReadonlySet<KafkaResource>;
  /** The copies of ledger partitions that the worker keeps. */
  readonly copies: readonly {
    readonly partition: number;
    /** A following copy counts as serving if the worker owns the partition. */
    readonly state: (typeof COPY_STATES)[number];
    /** Entries of the log that it lacks, as far as is known. */
    readonly lag: number;
  }[];
  /** The certificates in use, by variable. */
  readonly certificates: readonly { readonly variable: string; readonly expiresAtMs: number }[];
}

const LISTENERS = ['api', 'ops'] as const;
type Listener = (typeof LISTENERS)[number];

const KAFKA_RESOURCES = ['login', 'requests', 'ledger', 'witness', 'dead_letters', 'replies', 'group'] as const;
export type KafkaResource = (typeof KAFKA_RESOURCES)[number];

const COUNTED_TOPICS = ['requests', 'ledger'] as const;

const COPY_STATES = ['restoring', 'following', 'serving', 'stopped'] as const;

const BATCH_BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Interval at which the event loop's delay is sampled, which wakes an idle process; the metric includes it. */
const LOOP_DELAY_STEP_MS = 20;

/** Metrics in a separate registry, so that two workers in one process do not mix. */
export function createMetrics(
  vitals: () => Vitals | undefined = () => undefined,
  registry: Registry = new Registry(),
): Metrics {
  const registers = [registry];
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_DELAY_STEP_MS });
  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Counter({ name: `idalloc_${name}_total`, help, labelNames, registers });
  const gauge = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Gauge({ name: `idalloc_${name}`, help, labelNames, registers });
  /** The worker's state as of the current scrape. */
  let worker: Vitals | undefined;
  const vital = (name: string, help: string, of: (vitals: Vitals) => number) =>
    new Gauge({
      name: `idalloc_${name}`,
      help,
      registers,
      collect() {
        if (worker !== undefined) this.set(of(worker));
      },
    });

  const ids = counter('ids', 'IDs in new batches');
  const numbers = counter('sequence_numbers', 'Numbers of sequences given out for the first time');
  const requests = counter('requests', 'Requests answered, by result: issued, replayed, refused', 'result');
  const replays = counter('replays', 'Requests answered again with the batch they already had');
  const replies = counter('replies', 'Replies acknowledged by the brokers');
  const forwarded = counter('requests_forwarded', 'Requests forwarded to the partition of their correlation ID');
  const deadLetters = counter('dead_letters', 'Requests that became dead letters, each request of a range counted');
  const ranges = counter('dead_letter_ranges', 'Dead letters that stand for a range of requests, above the rate');
  const quotaExceeded = counter('quota_exceeded', 'Requests refused by the quota of a reply-topic prefix', 'prefix');
  const errors = counter('errors', 'Errors by code', 'code');
  const gate = gauge('gate', '1 for the current state of the gate: open, or the reason why it is closed', 'reason');
  const gateChanges = counter(
    'gate_changes',
    'Changes of the gate to this state: open, or the reason why it is closed',
    'reason',
  );
  const lease = gauge('lease_margin_seconds', "Time until the worker's own deadline for its lease; negative after it");
  const ceiling = gauge('ceiling_margin_seconds', 'Time from the wall clock to the ceiling of the reservation');
  const drift = gauge(
    'clock_drift_seconds',
    "How far this clock is ahead of the brokers': lower and upper bound",
    'bound',
  );
  const lag = gauge(
    'consumer_lag_records',
    'Records of a request partition not yet answered, up to its high watermark',
    'partition',
  );
  vital('group_joined', '1 while the worker is a member of the request group', ({ isMember }) => Number(isMember));
  vital('kafka_silence_seconds', 'Time since any broker last answered', ({ kafkaSilenceMs }) => kafkaSilenceMs / 1_000);
  new Gauge({
    name: 'idalloc_kafka_refused',
    help: '1 while the brokers reject the login, deny access to the named resource, or reject the session in the group',
    labelNames: ['resource'],
    registers,
    collect() {
      const refused = worker?.kafkaRefused;
      for (const resource of KAFKA_RESOURCES) this.set({ resource }, Number(refused?.has(resource) === true));
    },
  });
  new Gauge({
    name: 'idalloc_partition_unreached_seconds',
    help: 'Time since a broker last answered that leads a partition of the worker, its part of the ledger, or replies that it waits for; absent while it answers',
    labelNames: ['partition', 'topic', 'broker'],
    registers,
    collect() {
      this.reset();
      for (const { partition, topic, broker, milliseconds } of worker?.silent ?? []) {
        this.set({ partition, topic, broker }, milliseconds / 1_000);
      }
    },
  });
  vital(
    'ledger_stopped_partitions',
    "Ledger partitions that can't be read; their requests wait",
    ({ stoppedPartitions }) => stoppedPartitions,
  );
  new Gauge({
    name: 'idalloc_topic_added_partitions',
    help: 'Partitions that were added to a topic since the worker started, and are not served',
    labelNames: ['topic'],
    registers,
    collect() {
      for (const topic of COUNTED_TOPICS) this.set({ topic }, worker?.addedPartitions.get(topic) ?? 0);
    },
  });
  new Gauge({
    name: 'idalloc_partition_state',
    help: "1 for the state of the worker's copy of a ledger partition: restoring, following (standby), serving, stopped",
    labelNames: ['partition', 'state'],
    registers,
    collect() {
      this.reset();
      for (const { partition, state } of worker?.copies ?? []) this.set({ partition, state }, 1);
    },
  });
  new Gauge({
    name: 'idalloc_ledger_lag_records',
    help: "Entries of a ledger partition missing from the worker's copy",
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset();
      for (const { partition, lag } of worker?.copies ?? []) this.set({ partition }, lag);
    },
  });
  new Gauge({
    name: 'idalloc_request_oldest_unread_seconds',
    help: 'Time since the worker first saw the oldest unanswered request of a partition, or since it could last look; 0 when none waits',
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset();
      for (const { partition, milliseconds } of worker?.oldestUnread ?? []) {
        this.set({ partition }, milliseconds / 1_000);
      }
    },
  });
  const byPartition = (name: string, help: string, of: (large: Vitals['largeWaiting'][number]) => number) =>
    new Gauge({
      name: `idalloc_${name}`,
      help,
      labelNames: ['partition'],
      registers,
      collect() {
        this.reset();
        for (const large of worker?.largeWaiting ?? []) this.set({ partition: large.partition }, of(large));
      },
    });
  byPartition('large_requests_waiting', 'Large requests of a partition not yet answered', ({ waiting }) => waiting);
  byPartition(
    'large_request_oldest_seconds',
    'Time that the oldest unanswered large request of a partition has been in the topic',
    ({ milliseconds }) => milliseconds / 1_000,
  );
  new Gauge({
    name: 'idalloc_certificate_expiry_timestamp_seconds',
    help: 'Unix time at which a certificate in use expires, by the variable that holds it',
    labelNames: ['variable'],
    registers,
    collect() {
      this.reset();
      for (const { variable, expiresAtMs } of worker?.certificates ?? []) this.set({ variable }, expiresAtMs / 1_000);
    },
  });
  const batch = new Histogram({
    name: 'idalloc_batch_seconds',
    help: 'Time from the delivery of a record batch until all of it was answered',
    buckets: BATCH_BUCKETS_SECONDS,
    registers,
  });
  const httpRequests = counter('http_requests', 'HTTP requests', 'route', 'status', 'caller');
  const shed = counter('connections_shed', 'Connections closed or refused at the limit of a listener', 'listener');
  const http = new Histogram({
    name: 'idalloc_http_request_seconds',
    help: 'Time from reading the headers of an HTTP request until its response was handed to the socket',
    labelNames: ['route'],
    buckets: BATCH_BUCKETS_SECONDS,
    registers,
  });

  let gateReason: string | undefined;
  for (const result of ['issued', 'replayed', 'refused']) requests.inc({ result }, 0);
  for (const listener of LISTENERS) shed.inc({ listener }, 0);

  return {
    addIds: (count) => ids.inc(count),
    addNumbers: (count) => numbers.inc(count),
    addRequests(result, count = 1) {
      requests.inc({ result }, count);
      if (result === 'replayed') replays.inc(count);
    },
    addReplies: (count) => replies.inc(count),
    addDeadLetters(requests) {
      deadLetters.inc(requests);
      if (requests > 1) ranges.inc();
    },
    addForwarded: (count) => forwarded.inc(count),
    addQuotaExceeded: (prefix) => quotaExceeded.inc({ prefix }),
    addError: (code, count = 1) => errors.inc({ code }, count),
    setGate(reason) {
      if (gateReason !== undefined && gateReason !== reason) gate.set({ reason: gateReason }, 0);
      if (gateReason !== reason) gateChanges.inc({ reason });
      gateReason = reason;
      gate.set({ reason }, 1);
    },
    setLeaseMargin: (milliseconds) => lease.set(milliseconds / 1_000),
    setCeilingMargin: (milliseconds) => ceiling.set(milliseconds / 1_000),
    setClockDrift(interval) {
      if (interval === undefined) return drift.reset();
      drift.set({ bound: 'low' }, interval.lowMs / 1_000);
      drift.set({ bound: 'high' }, interval.highMs / 1_000);
    },
    observeBatch: (milliseconds) => batch.observe(milliseconds / 1_000),
    setLag(partition, records) {
      if (records === undefined) lag.remove({ partition: String(partition) });
      else lag.set({ partition: String(partition) }, records);
    },
    addHttpRequest(route, status, caller, milliseconds) {
      httpRequests.inc({ route, status: String(status), caller });
      http.observe({ route }, milliseconds / 1_000);
    },
    addShedConnection: (listener) => shed.inc({ listener }),
    async render() {
      worker = vitals();
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}
