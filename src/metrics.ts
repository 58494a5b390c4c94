import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** What became of a request that was answered: new IDs, the same ones again, or an error. */
type RequestResult = 'issued' | 'replayed' | 'refused';

/**
 * Everything that the worker counts. Each call is cheap and never throws; label values come from closed sets or, for
 * partitions, from the brokers, so the number of series is bounded.
 */
export interface Metrics {
  /** IDs of settled batches that were handed out for the first time. */
  addIds(count: number): void;
  addRequests(result: RequestResult, count?: number): void;
  /** Replies that the brokers acknowledged. */
  addReplies(count: number): void;
  addDeadLetters(count: number): void;
  /** Requests that were appended to the partitions of their correlation IDs. */
  addForwarded(count: number): void;
  /** A request that the quota of this prefix refused; the prefixes are those of the configuration. */
  addQuotaExceeded(prefix: string): void;
  /** An error with a code of the closed set, told to a requester or met by the worker. */
  addError(code: string, count?: number): void;
  /** The gate's reason, or 'open'. */
  setGate(reason: string): void;
  /** Until the worker's own deadline; negative when past it. */
  setLeaseMargin(milliseconds: number): void;
  /** From now to the ceiling; negative when the clock is past it. */
  setCeilingMargin(milliseconds: number): void;
  /** The interval in which our clock's lead over the brokers' lies; undefined when none has answered. */
  setClockDrift(interval: { readonly lowMs: number; readonly highMs: number } | undefined): void;
  /** From a batch's delivery until its offsets could be resolved. */
  observeBatch(milliseconds: number): void;
  /** Records of a request partition that wait, those of open transactions included; undefined when the partition is another worker's now. */
  setLag(partition: number, records: number | undefined): void;
  /** A request of the HTTP API; the route is one of the API's own, or 'other', the caller a name of the configuration. */
  addHttpRequest(route: string, status: number, caller: string, milliseconds: number): void;
  /** A connection was cut, or not taken, since its listener had as many as it may have. */
  addShedConnection(listener: Listener): void;
  /** In the text format of Prometheus. */
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
}

/** What is looked up in the worker whenever the metrics are read. */
export interface Vitals {
  /** It has joined the request group, and was not thrown out since. */
  readonly isMember: boolean;
  /** For how long no broker has answered anything. */
  readonly kafkaSilenceMs: number;
  readonly stoppedPartitions: number;
  /** For how long the oldest request of each partition has waited; 0 where none waits. */
  readonly oldestUnread: readonly { readonly partition: number; readonly milliseconds: number }[];
  /** What the brokers refuse to this worker. */
  readonly kafkaRefused: ReadonlySet<KafkaResource>;
  /** The copies of ledger partitions that the worker keeps. */
  readonly copies: readonly {
    readonly partition: number;
    /** A copy that is followed is serving where the worker owns the partition. */
    readonly state: (typeof COPY_STATES)[number];
    /** Entries of the log that it lacks, as far as that is known. */
    readonly lag: number;
  }[];
  /** Certificates in use, by the variables that hold them. */
  readonly certificates: readonly { readonly variable: string; readonly expiresAtMs: number }[];
}

const LISTENERS = ['api', 'ops'] as const;
type Listener = (typeof LISTENERS)[number];

const KAFKA_RESOURCES = ['login', 'requests', 'ledger', 'witness', 'dead_letters', 'replies', 'group'] as const;
export type KafkaResource = (typeof KAFKA_RESOURCES)[number];

const COPY_STATES = ['restoring', 'following', 'serving', 'stopped'] as const;

const BATCH_BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** How often the loop's delay is sampled, which wakes an idle process; the metric's values include it. */
const LOOP_DELAY_STEP_MS = 20;

/** Metrics in a registry of their own: two workers in one process do not mix. */
export function createMetrics(vitals: () => Vitals | undefined = () => undefined): Metrics {
  const registry = new Registry();
  const registers = [registry];
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_DELAY_STEP_MS });
  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Counter({ name: `idalloc_${name}_total`, help, labelNames, registers });
  const gauge = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Gauge({ name: `idalloc_${name}`, help, labelNames, registers });
  const vital = (name: string, help: string, of: (worker: Vitals) => number) =>
    new Gauge({
      name: `idalloc_${name}`,
      help,
      registers,
      collect() {
        const worker = vitals();
        if (worker !== undefined) this.set(of(worker));
      },
    });

  const ids = counter('ids', 'IDs handed out for the first time');
  const requests = counter('requests', 'Requests answered, by result: issued, replayed, refused', 'result');
  const replays = counter('replays', 'Requests answered with the batch that they got before');
  const replies = counter('replies', 'Replies acknowledged by the brokers');
  const forwarded = counter('requests_forwarded', 'Requests forwarded to the partition of their correlation ID');
  const deadLetters = counter('dead_letters', 'Requests put on the dead-letter topic');
  const quotaExceeded = counter('quota_exceeded', 'Requests refused by the quota of a reply-topic prefix', 'prefix');
  const errors = counter('errors', 'Errors by code', 'code');
  const gate = gauge('gate', '1 for the state of the gate now: open, or the reason why it is closed', 'reason');
  const gateChanges = counter(
    'gate_changes',
    'How often the gate came to say this: open, or why it is closed',
    'reason',
  );
  const lease = gauge('lease_margin_seconds', "Until the worker's own deadline for its lease; negative past it");
  const ceiling = gauge('ceiling_margin_seconds', 'From the wall clock to the ceiling of the reservation');
  const drift = gauge('clock_drift_seconds', "Lead of this clock over the brokers', lowest and highest", 'bound');
  const lag = gauge(
    'consumer_lag_records',
    'Records of a request partition not yet answered, up to its high watermark',
    'partition',
  );
  vital('group_joined', '1 while the worker is a member of the request group', ({ isMember }) => Number(isMember));
  vital('kafka_silence_seconds', 'Since a broker answered anything', ({ kafkaSilenceMs }) => kafkaSilenceMs / 1_000);
  new Gauge({
    name: 'idalloc_kafka_refused',
    help: '1 while the brokers refuse the login, or a right to what is named',
    labelNames: ['resource'],
    registers,
    collect() {
      const refused = vitals()?.kafkaRefused;
      for (const resource of KAFKA_RESOURCES) this.set({ resource }, Number(refused?.has(resource) === true));
    },
  });
  vital(
    'ledger_stopped_partitions',
    "Ledger partitions that can't be read, so that their requests wait",
    ({ stoppedPartitions }) => stoppedPartitions,
  );
  new Gauge({
    name: 'idalloc_partition_state',
    help: "1 for the state of the worker's copy of a ledger partition: restoring, following (standby), serving, stopped",
    labelNames: ['partition', 'state'],
    registers,
    collect() {
      this.reset();
      for (const { partition, state } of vitals()?.copies ?? []) this.set({ partition, state }, 1);
    },
  });
  new Gauge({
    name: 'idalloc_ledger_lag_records',
    help: "Entries of a ledger partition that the worker's copy lacks",
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset();
      for (const { partition, lag } of vitals()?.copies ?? []) this.set({ partition }, lag);
    },
  });
  new Gauge({
    name: 'idalloc_request_oldest_unread_seconds',
    help: 'Since the worker first saw the oldest request of a partition that is not answered; 0 when none waits',
    labelNames: ['partition'],
    registers,
    collect() {
      this.reset();
      for (const { partition, milliseconds } of vitals()?.oldestUnread ?? []) {
        this.set({ partition }, milliseconds / 1_000);
      }
    },
  });
  new Gauge({
    name: 'idalloc_certificate_expiry_timestamp_seconds',
    help: 'Unix time at which a certificate in use ends, by the variable that holds it',
    labelNames: ['variable'],
    registers,
    collect() {
      this.reset();
      for (const { variable, expiresAtMs } of vitals()?.certificates ?? []) this.set({ variable }, expiresAtMs / 1_000);
    },
  });
  const batch = new Histogram({
    name: 'idalloc_batch_seconds',
    help: 'From the delivery of a batch until its offsets could be resolved',
    buckets: BATCH_BUCKETS_SECONDS,
    registers,
  });
  const httpRequests = counter('http_requests', 'Requests over HTTP', 'route', 'status', 'caller');
  const shed = counter('connections_shed', 'Connections cut or not taken at the limit of a listener', 'listener');
  const http = new Histogram({
    name: 'idalloc_http_request_seconds',
    help: 'From a request over HTTP, its headers read, until its answer was handed to the socket',
    labelNames: ['route'],
    buckets: BATCH_BUCKETS_SECONDS,
    registers,
  });

  let gateReason: string | undefined;
  for (const result of ['issued', 'replayed', 'refused']) requests.inc({ result }, 0);
  for (const listener of LISTENERS) shed.inc({ listener }, 0);

  return {
    addIds: (count) => ids.inc(count),
    addRequests(result, count = 1) {
      requests.inc({ result }, count);
      if (result === 'replayed') replays.inc(count);
    },
    addReplies: (count) => replies.inc(count),
    addDeadLetters: (count) => deadLetters.inc(count),
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
    render: async () => ({ contentType: registry.contentType, body: await registry.metrics() }),
  };
}
