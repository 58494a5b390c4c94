import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { registerVitals, type Vitals } from './vitals.ts';

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
  /** A change of the heads of sequences in etcd, by how it ended. */
  addSwap(outcome: (typeof SWAP_OUTCOMES)[number]): void;
  /** A sequence of which the ledger had lost numbers goes on behind them. */
  addSequenceLoss(): void;
  addRequests(result: RequestResult, count?: number): void;
  /** Replies that the brokers acknowledged. */
  addReplies(count: number): void;
  /** Replies that were not sent, since their topic had just refused others like them. */
  addSkippedReplies(reason: (typeof SKIP_REASONS)[number], count: number): void;
  /** A dead letter with this code was acknowledged that stands for so many requests. */
  addDeadLetters(code: ErrorCode, requests: number): void;
  /** Requests that were appended to their home partitions. */
  addForwarded(count: number): void;
  /** A committed offset was found that no worker wrote. */
  addForeignOffset(): void;
  /** The loss of a ledger partition's tail was stated in the ledger. */
  addLedgerLoss(): void;
  /** Requests that let others go first. */
  addDeferred(count: number): void;
  /** A request lets others go first since its account is in debt. */
  addIndebted(): void;
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
  /** The time that a step of a part of a record batch took, whether or not it succeeded. */
  observeStep(step: Step, milliseconds: number): void;
  /** The time that a call of etcd took, and how it ended. */
  observeEtcdCall(call: EtcdCall, milliseconds: number, outcome: EtcdOutcome): void;
  /**
   * Records waiting in a request partition, those of open transactions included; undefined once another worker owns it.
   */
  setLag(partition: number, records: number | undefined): void;
  /**
   * A request of the HTTP API; the route is one of the API's routes or 'other', the caller a name in the configuration.
   */
  addHttpRequest(route: string, status: number, caller: string, milliseconds: number): void;
  /** A request of the HTTP API has waited for what the ledger decides. */
  observeHttpLedger(outcome: LedgerOutcome, milliseconds: number): void;
  /** A connection was closed or refused because its listener was at its limit. */
  addShedConnection(listener: Listener): void;
  /** In the text format of Prometheus. */
  render(): Promise<{ readonly contentType: string; readonly body: string }>;
}

const LISTENERS = ['api', 'ops'] as const;
type Listener = (typeof LISTENERS)[number];

const STEPS = ['swap', 'append', 'settle', 'reply', 'forward', 'dead_letter'] as const;
/**
 * What the answer to a part consists of. `swap`: changing the heads of its sequences in etcd; `append`: sending its
 * entries to the ledger until they are acknowledged; `settle`: the same until its index shows who was first; `reply`,
 * `forward` and `dead_letter`: sending these until they are acknowledged.
 */
type Step = (typeof STEPS)[number];

/**
 * refused: another worker had changed them. unanswered: etcd may have done it, or may later. failed: etcd answered that
 * it does not.
 */
const SWAP_OUTCOMES = ['done', 'refused', 'unanswered', 'failed'] as const;

/** size: one that was not larger was refused. any: the topic took no record. */
const SKIP_REASONS = ['size', 'any'] as const;

/** refused: etcd answered that it does not do it. failed: nothing answered in time. */
export type EtcdOutcome = 'answered' | 'refused' | 'failed';

const LEDGER_OUTCOMES = ['answered', 'refused', 'failed'] as const;
/** refused: a worker answered with a refusal. failed: nobody answered in time, or nobody could be asked. */
type LedgerOutcome = (typeof LEDGER_OUTCOMES)[number];

type EtcdCall = 'range' | 'get' | 'transact' | 'grant_lease' | 'keep_alive' | 'revoke_lease';

const BUCKETS_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];

/** Interval at which the event loop's delay is sampled, which wakes an idle process; the metric includes it. */
const LOOP_DELAY_STEP_MS = 20;

/** Gauges of prom-client under names of counters: linters of metrics reject them, and a rate of them means nothing. */
const MISNAMED = ['handles', 'requests', 'resources'].map((what) => `nodejs_active_${what}_total`);

interface MetricsOptions {
  /** The version of this worker's package. */
  readonly version?: string;
  /** Undefined before there is a worker. */
  readonly vitals?: () => Vitals | undefined;
  readonly registry?: Registry;
}

/** Metrics in a separate registry, so that two workers in one process do not mix. */
export function createMetrics({
  version = 'unknown',
  vitals = () => undefined,
  registry = new Registry(),
}: MetricsOptions = {}): Metrics {
  const registers = [registry];
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LOOP_DELAY_STEP_MS });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Counter({ name: `idalloc_${name}_total`, help, labelNames, registers });
  const gauge = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Gauge({ name: `idalloc_${name}`, help, labelNames, registers });
  const histogram = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Histogram({ name: `idalloc_${name}_seconds`, help, labelNames, buckets: BUCKETS_SECONDS, registers });
  /** The worker's state as of the current scrape. */
  let worker: Vitals | undefined;

  const ids = counter('ids', 'IDs in new batches');
  const numbers = counter('sequence_numbers', 'Numbers of sequences given out for the first time');
  const swaps = counter(
    'sequence_swaps',
    'Changes of the heads of sequences in etcd, by outcome: done, refused because another worker changed them, unanswered, failed',
    'outcome',
  );
  const losses = counter(
    'sequence_losses',
    'Sequences of which the ledger had lost numbers, and which go on behind them',
  );
  const requests = counter('requests', 'Requests answered, by result: issued, replayed, refused', 'result');
  const replays = counter('replays', 'Requests answered again with the batch they already had');
  const replies = counter('replies', 'Replies acknowledged by the brokers');
  const skipped = counter(
    'replies_skipped',
    'Replies that were not sent because their topic had just refused others: size, if those were not larger, or any',
    'reason',
  );
  const forwarded = counter('requests_forwarded', 'Requests forwarded to the partition of their correlation ID');
  const foreignOffsets = counter(
    'foreign_offsets',
    'Committed offsets that no worker wrote, and that were not believed',
  );
  const lostTails = counter('ledger_losses', 'Losses of the tail of a ledger partition that this worker stated in it');
  const deferred = counter(
    'requests_deferred',
    'Requests that let others go first: large, of dense batches, or in debt',
  );
  const indebted = counter(
    'requests_indebted',
    'Requests that let others go first, since their reply topic or quota had used more than its share of the worker; without the rest of a batch, which is not looked at',
  );
  const deadLetters = counter(
    'dead_letters',
    'Requests that became dead letters by code, each request of a range counted',
    'code',
  );
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
  registerVitals(registry, () => worker);
  const batch = histogram('batch', 'Time from the delivery of a record batch until all of it was answered');
  const steps = histogram(
    'step',
    'Time of a step of answering up to 500 requests, failed ones included: append to the ledger; settle, which is the append until the index shows what it decided; reply, forward, dead_letter until acknowledged',
    'step',
  );
  const etcdCalls = histogram(
    'etcd_call',
    'Time of a call of etcd, by outcome: answered, refused, failed',
    'call',
    'outcome',
  );
  const httpRequests = counter('http_requests', 'HTTP requests', 'route', 'status', 'caller');
  const shed = counter('connections_shed', 'Connections closed or refused at the limit of a listener', 'listener');
  const http = histogram(
    'http_request',
    'Time from reading the headers of an HTTP request until its response was handed to the socket',
    'route',
  );
  const keyed = histogram(
    'http_ledger',
    'Time that an HTTP request with an Idempotency-Key waited for what the ledger decides, by outcome: answered, refused by a worker, failed without an answer',
    'outcome',
  );

  let gateReason: string | undefined;
  for (const result of ['issued', 'replayed', 'refused']) requests.inc({ result }, 0);
  for (const listener of LISTENERS) shed.inc({ listener }, 0);
  for (const outcome of SWAP_OUTCOMES) swaps.inc({ outcome }, 0);
  for (const reason of SKIP_REASONS) skipped.inc({ reason }, 0);
  for (const step of STEPS) steps.zero({ step });
  for (const outcome of LEDGER_OUTCOMES) keyed.zero({ outcome });
  // The first dead letter of a code must be a rise for Prometheus, not the start of a series.
  for (const [code, { deadLetter }] of Object.entries(ERRORS)) if (deadLetter) deadLetters.inc({ code }, 0);
  gauge('build_info', '1; the version of the worker is its label', 'version').set({ version }, 1);

  return {
    addIds: (count) => ids.inc(count),
    addNumbers: (count) => numbers.inc(count),
    addSwap: (outcome) => swaps.inc({ outcome }),
    addSequenceLoss: () => losses.inc(),
    addRequests(result, count = 1) {
      requests.inc({ result }, count);
      if (result === 'replayed') replays.inc(count);
    },
    addReplies: (count) => replies.inc(count),
    addSkippedReplies: (reason, count) => skipped.inc({ reason }, count),
    addDeadLetters(code, requests) {
      deadLetters.inc({ code }, requests);
      if (requests > 1) ranges.inc();
    },
    addForwarded: (count) => forwarded.inc(count),
    addForeignOffset: () => foreignOffsets.inc(),
    addLedgerLoss: () => lostTails.inc(),
    addDeferred: (count) => deferred.inc(count),
    addIndebted: () => indebted.inc(),
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
    observeStep: (step, milliseconds) => steps.observe({ step }, milliseconds / 1_000),
    observeEtcdCall: (call, milliseconds, outcome) => etcdCalls.observe({ call, outcome }, milliseconds / 1_000),
    setLag(partition, records) {
      if (records === undefined) lag.remove({ partition: String(partition) });
      else lag.set({ partition: String(partition) }, records);
    },
    addHttpRequest(route, status, caller, milliseconds) {
      httpRequests.inc({ route, status: String(status), caller });
      http.observe({ route }, milliseconds / 1_000);
    },
    observeHttpLedger: (outcome, milliseconds) => keyed.observe({ outcome }, milliseconds / 1_000),
    addShedConnection: (listener) => shed.inc({ listener }),
    async render() {
      worker = vitals();
      return { contentType: registry.contentType, body: await registry.metrics() };
    },
  };
}
