import { IdallocError } from '../errors.ts';
import type { ClientMetrics } from './metrics.ts';

/** Anything that has the metrics of a client. */
interface Measured {
  metrics(): ClientMetrics;
}

type Labels = Readonly<Record<string, string>>;
type Sample = readonly [value: number, labels: Labels];
type Suffixed = readonly [suffix: string, sample: Sample];

interface Exported {
  /** As Prometheus has it. */
  readonly name: string;
  readonly kind: 'gauge' | 'counter';
  readonly help: string;
  readonly labels: readonly string[];
  readonly read: (metrics: ClientMetrics) => readonly Sample[];
}

/** A metric without labels of its own; it has no sample while `value` has none. */
function plain(
  name: string,
  kind: Exported['kind'],
  help: string,
  value: (metrics: ClientMetrics) => number | undefined,
): Exported {
  const read = (metrics: ClientMetrics) => {
    const now = value(metrics);
    return now === undefined ? [] : [[now, {}] as const];
  };
  return { name: `idalloc_client_${name}`, kind, help, labels: [], read };
}

function byCode(
  name: string,
  help: string,
  totals: (metrics: ClientMetrics) => Readonly<Record<string, number>>,
): Exported {
  const read = (metrics: ClientMetrics) =>
    Object.entries(totals(metrics)).map(([code, total]): Sample => [total, { code }]);
  return { name: `idalloc_client_${name}`, kind: 'counter', help, labels: ['code'], read };
}

/** The time quantiles of a reply, in seconds; none before the first reply. */
function quantiles({ latency: { p50Ms, p95Ms, p99Ms } }: ClientMetrics): readonly Sample[] {
  const all = Object.entries({ '0.5': p50Ms, '0.95': p95Ms, '0.99': p99Ms });
  return all.flatMap(([quantile, ms]): Sample[] => (ms === undefined ? [] : [[ms / 1_000, { quantile }]]));
}

/** What both exports have, in the units of Prometheus. */
export const CLIENT_METRICS: readonly Exported[] = [
  plain('buffered', 'gauge', 'IDs in the buffer', ({ buffered }) => buffered),
  plain('oldest_seconds', 'gauge', 'Age of the oldest buffered ID', ({ oldestMs }) => oldestMs && oldestMs / 1_000),
  plain('low_water', 'gauge', 'At this number of buffered IDs, more are requested', ({ lowWater }) => lowWater),
  plain('waiting', 'gauge', 'Calls that wait for IDs', ({ waiting }) => waiting),
  plain('pending', 'gauge', 'Requests without a reply', ({ pending }) => pending),
  plain('taken_total', 'counter', 'IDs taken from the buffer', ({ taken }) => taken),
  plain('dropped_total', 'counter', 'IDs dropped because of maxAgeMs or maxBuffered', ({ dropped }) => dropped),
  plain('requests_total', 'counter', 'Requests', ({ requests }) => requests),
  plain('resends_total', 'counter', 'Requests sent again', ({ resends }) => resends),
  plain('replies_total', 'counter', 'Replies with a batch', ({ replies }) => replies),
  plain('passed_over_total', 'counter', 'Records that were no answer to their request', ({ passedOver }) => passedOver),
  plain('reply_seconds_total', 'counter', 'Time until replies, summed', ({ latency }) => latency.sumMs / 1_000),
  {
    name: 'idalloc_client_reply_seconds',
    kind: 'gauge',
    help: 'Time until a reply, of the last 1,024',
    labels: ['quantile'],
    read: quantiles,
  },
  byCode('errors_total', 'Failures that the client retries', ({ errors }) => errors),
  byCode('failures_total', 'Calls without IDs', ({ failures }) => failures),
];

/** The time until a reply as a histogram, which can be summed over instances, unlike the quantiles. Prometheus only. */
export const LATENCY_HISTOGRAM = {
  name: 'idalloc_client_request_seconds',
  help: 'Time from the first send of a request to its reply',
  read: ({ latency: { buckets, count, sumMs } }: ClientMetrics): readonly Suffixed[] => [
    ...buckets.map((bucket): Suffixed => ['_bucket', [bucket.count, { le: String(bucket.atMostMs / 1_000) }]]),
    ['_bucket', [count, { le: '+Inf' }]],
    ['_sum', [sumMs / 1_000, {}]],
    ['_count', [count, {}]],
  ],
};

/** The part of prom-client that is used here: `import * as prometheus from 'prom-client'` is one. */
export interface PrometheusLibrary<Registry> {
  readonly Gauge: new (settings: PrometheusSettings<Registry>) => unknown;
  readonly Counter: new (settings: PrometheusSettings<Registry>) => unknown;
  readonly Histogram: new (settings: PrometheusSettings<Registry>) => unknown;
  /** Its own registry. */
  readonly register: Registry;
}

/** The part of a registry of prom-client that is used here. */
export interface PrometheusRegistry {
  getSingleMetric(name: string): object | undefined;
  removeSingleMetric(name: string): void;
}

interface PrometheusSettings<Registry> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: string[];
  readonly registers: Registry[];
  collect?(this: unknown): void;
}

export interface PrometheusOptions<Registry> {
  /** Where to; by default prom-client's own registry. */
  readonly registers?: readonly Registry[];
  /** On each metric of this client, such as `{ client: 'orders' }`; all clients of a registry have the same names. */
  readonly labels?: Readonly<Record<string, string>>;
}

/** A gauge or a counter of prom-client, as its `collect` has it. */
interface Collected {
  reset(): void;
  remove(): void;
  inc(labels: Labels, value: number): void;
}

/** The clients in one registry, which has each metric once. */
class ExportedClients {
  readonly #registry: PrometheusRegistry;
  readonly #labelNames: readonly string[];
  /** By the values of their labels. */
  readonly clients = new Map<string, LabelledClient>();

  constructor(registry: PrometheusRegistry, labelNames: readonly string[]) {
    this.#registry = registry;
    this.#labelNames = labelNames;
  }

  /** Returns a function that removes the client. A closed client with the same labels gives way. */
  add(client: Measured, labels: Labels): () => void {
    const [has, wants] = [this.#labelNames, Object.keys(labels)].map((names) => names.toSorted().join(', ') || 'none');
    if (has !== wants) {
      const message = `the labels of this client are ${wants}, and those of another one in this registry are ${has}`;
      throw new IdallocError('CONFIG_INVALID', `${message}: give all clients the same names of labels`);
    }
    const key = JSON.stringify(this.#labelNames.map((name) => labels[name]));
    const other = this.clients.get(key)?.client;
    if (other !== undefined && other !== client && !other.metrics().closed) {
      const message = 'another open client has these labels: tell the two apart with `labels`, or close the former';
      throw new IdallocError('CONFIG_INVALID', message);
    }
    this.clients.set(key, { client, labels });
    return () => {
      if (this.clients.get(key)?.client !== client) return;
      this.clients.delete(key);
      if (this.clients.size > 0) return;
      for (const { name } of [...CLIENT_METRICS, LATENCY_HISTOGRAM]) this.#registry.removeSingleMetric(name);
    };
  }
}

interface LabelledClient {
  readonly client: Measured;
  readonly labels: Labels;
}

/** By the metric that shows whether a registry still has them: it may have been cleared. */
const EXPORTED = new WeakMap<object, ExportedClients>();

function exportedIn<Registry extends PrometheusRegistry>(
  registry: Registry,
  library: PrometheusLibrary<Registry>,
  labelNames: readonly string[],
): ExportedClients {
  const mark = registry.getSingleMetric(LATENCY_HISTOGRAM.name);
  const known = mark === undefined ? undefined : EXPORTED.get(mark);
  if (known !== undefined) return known;
  const names = [...CLIENT_METRICS, LATENCY_HISTOGRAM].map(({ name }) => name);
  const taken = names.find((name) => registry.getSingleMetric(name) !== undefined);
  if (taken !== undefined)
    throw new IdallocError('CONFIG_INVALID', `the registry has a metric ${taken} of something else: use another one`);
  const clients = new ExportedClients(registry, labelNames);
  EXPORTED.set(register(clients, registry, library, labelNames), clients);
  return clients;
}

/** Registers all metrics; returns the one that stands for them. */
function register<Registry>(
  { clients }: ExportedClients,
  registry: Registry,
  { Gauge, Counter, Histogram }: PrometheusLibrary<Registry>,
  labelNames: readonly string[],
): object {
  const { name, help, read } = LATENCY_HISTOGRAM;
  const histogram = new Histogram({ name, help, labelNames: [...labelNames], registers: [registry] }) as object;
  // One of prom-client only adds up what it has observed itself, and the client has counted already.
  const get = async () => {
    const values = [...clients.values()].flatMap(({ client, labels }) =>
      read(client.metrics()).map(([suffix, [value, own]]) => {
        return { metricName: `${name}${suffix}`, labels: { ...labels, ...own }, value };
      }),
    );
    return { name, help, type: 'histogram', aggregator: 'sum', values };
  };
  Object.assign(histogram, { get, getForPromString: get });
  for (const { name, kind, help, labels: own, read } of CLIENT_METRICS) {
    const Metric = kind === 'gauge' ? Gauge : Counter;
    new Metric({
      ...{ name, help, labelNames: [...labelNames, ...own], registers: [registry] },
      collect() {
        const metric = this as Collected;
        metric.reset();
        if (labelNames.length + own.length === 0) metric.remove(); // which is a zero after the reset
        for (const { client, labels } of clients.values()) {
          for (const [value, of] of read(client.metrics())) metric.inc({ ...labels, ...of }, value);
        }
      },
    });
  }
  return histogram;
}

/**
 * Exports the metrics of a client to prom-client. They are read when the registry is. Several clients share a registry
 * if their `labels` differ; a client that is closed gives way to the next one with its labels.
 *
 * @param options or only the registries, as a list
 * @returns a function that ends it.
 * @throws IdallocError CONFIG_INVALID for labels that can't be, or that another open client has; or if a registry has
 * such metrics already.
 */
export function exportToPrometheus<Registry extends PrometheusRegistry>(
  client: Measured,
  library: PrometheusLibrary<Registry>,
  options: PrometheusOptions<Registry> | Registry[] = {},
): () => void {
  const { registers = [library.register], labels = {} } = Array.isArray(options) ? { registers: options } : options;
  checkLabels(labels);
  const ends: (() => void)[] = [];
  const endAll = () => {
    for (const end of ends) end();
  };
  try {
    for (const registry of registers) ends.push(exportedIn(registry, library, Object.keys(labels)).add(client, labels));
  } catch (error) {
    endAll(); // all of them or none
    throw error;
  }
  return endAll;
}

/** The labels of the metrics themselves. */
const OWN_LABELS: readonly string[] = ['code', 'quantile', 'le'];

function checkLabels(labels: Labels): void {
  const isOne = ([name, value]: [string, unknown]) =>
    /^[a-z]\w*$/i.test(name) && !OWN_LABELS.includes(name) && typeof value === 'string';
  const wrong = Object.entries(labels).filter((entry) => !isOne(entry));
  if (wrong.length === 0) return;
  const names = wrong.map(([name]) => name).join(', ');
  const message = `labels: ${names}: a name has letters, digits and _, and is none of ${OWN_LABELS.join(', ')}; a value is a string`;
  throw new IdallocError('CONFIG_INVALID', message);
}

/** The part of a Meter of OpenTelemetry that is used here. */
export interface OpenTelemetryMeter {
  createObservableGauge(name: string, options: { description: string }): ObservableMetric;
  createObservableCounter(name: string, options: { description: string }): ObservableMetric;
}

interface ObservableMetric {
  addCallback(callback: Observe): void;
  removeCallback(callback: Observe): void;
}

type Observe = (result: { observe(value: number, attributes: Labels): void }) => void;

/**
 * Adds the metrics of a client to a meter of OpenTelemetry, under the names that they have in Prometheus, except the
 * histogram.
 *
 * @param attributes on each metric of this client; they tell the clients of one meter apart
 * @returns a function that ends it.
 */
export function exportToOpenTelemetry(
  client: Measured,
  meter: OpenTelemetryMeter,
  attributes: Readonly<Record<string, string>> = {},
): () => void {
  const stops = CLIENT_METRICS.map(({ name, kind, help, read }) => {
    const options = { description: help };
    const metric =
      kind === 'gauge' ? meter.createObservableGauge(name, options) : meter.createObservableCounter(name, options);
    const observe: Observe = (result) => {
      for (const [value, labels] of read(client.metrics())) result.observe(value, { ...attributes, ...labels });
    };
    metric.addCallback(observe);
    return () => metric.removeCallback(observe);
  });
  return () => {
    for (const stop of stops) stop();
  };
}
