import type { ClientMetrics } from './metrics.ts';

/** Anything that has the metrics of a client. */
interface Measured {
  metrics(): ClientMetrics;
}

type Labels = Record<string, string>;
type Reading = readonly [value: number, labels: Labels];

interface Exported {
  /** As Prometheus has it. */
  readonly name: string;
  readonly kind: 'gauge' | 'counter';
  readonly help: string;
  readonly labels: readonly string[];
  readonly read: (metrics: ClientMetrics) => readonly Reading[];
}

function plain(
  name: string,
  kind: Exported['kind'],
  help: string,
  value: (metrics: ClientMetrics) => number,
): Exported {
  return { name: `idalloc_client_${name}`, kind, help, labels: [], read: (metrics) => [[value(metrics), {}]] };
}

function byCode(
  name: string,
  help: string,
  totals: (metrics: ClientMetrics) => Readonly<Record<string, number>>,
): Exported {
  const read = (metrics: ClientMetrics) =>
    Object.entries(totals(metrics)).map(([code, total]): Reading => [total, { code }]);
  return { name: `idalloc_client_${name}`, kind: 'counter', help, labels: ['code'], read };
}

/** The time quantiles of a reply, in seconds; none before the first reply. */
function quantiles({ latency: { p50Ms, p95Ms, p99Ms } }: ClientMetrics): readonly Reading[] {
  const all = Object.entries({ '0.5': p50Ms, '0.95': p95Ms, '0.99': p99Ms });
  return all.flatMap(([quantile, ms]): Reading[] => (ms === undefined ? [] : [[ms / 1_000, { quantile }]]));
}

/** What both exports have, in the units of Prometheus. */
export const CLIENT_METRICS: readonly Exported[] = [
  plain('buffered', 'gauge', 'IDs in the buffer', ({ buffered }) => buffered),
  plain('low_water', 'gauge', 'At this number of buffered IDs, more are requested', ({ lowWater }) => lowWater),
  plain('waiting', 'gauge', 'Calls that wait for IDs', ({ waiting }) => waiting),
  plain('pending', 'gauge', 'Requests without a reply', ({ pending }) => pending),
  plain('taken_total', 'counter', 'IDs taken from the buffer', ({ taken }) => taken),
  plain('dropped_total', 'counter', 'IDs dropped because of maxAgeMs or maxBuffered', ({ dropped }) => dropped),
  plain('requests_total', 'counter', 'Requests', ({ requests }) => requests),
  plain('resends_total', 'counter', 'Requests sent again', ({ resends }) => resends),
  plain('replies_total', 'counter', 'Replies with a batch', ({ replies }) => replies),
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

/** The part of prom-client that is used here: `import * as prometheus from 'prom-client'` is one. */
export interface PrometheusLibrary<Registry> {
  readonly Gauge: new (settings: PrometheusSettings<Registry>) => unknown;
  readonly Counter: new (settings: PrometheusSettings<Registry>) => unknown;
}

interface PrometheusSettings<Registry> {
  readonly name: string;
  readonly help: string;
  readonly labelNames: string[];
  registers?: Registry[];
  collect(this: unknown): void;
}

/** A gauge or a counter of prom-client, as its `collect` has it. */
interface Collected {
  reset(): void;
  inc(labels: Labels, value: number): void;
}

/**
 * Registers the metrics of a client with prom-client, once for each registry. They are read when the registry is.
 *
 * @param registers where to; by default prom-client's own registry
 * @throws Error when prom-client already has metrics of these names.
 */
export function exportToPrometheus<Registry>(
  client: Measured,
  library: PrometheusLibrary<Registry>,
  registers?: Registry[],
): void {
  for (const { name, kind, help, labels, read } of CLIENT_METRICS) {
    const Metric = kind === 'gauge' ? library.Gauge : library.Counter;
    new Metric({
      ...{ name, help, labelNames: [...labels] },
      ...(registers === undefined ? {} : { registers }),
      collect() {
        const metric = this as Collected;
        metric.reset();
        for (const [value, own] of read(client.metrics())) metric.inc(own, value);
      },
    });
  }
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
 * Adds the metrics of a client to a meter of OpenTelemetry, under the names that they have in Prometheus.
 *
 * @returns a function that ends it.
 */
export function exportToOpenTelemetry(client: Measured, meter: OpenTelemetryMeter): () => void {
  const stops = CLIENT_METRICS.map(({ name, kind, help, read }) => {
    const options = { description: help };
    const metric =
      kind === 'gauge' ? meter.createObservableGauge(name, options) : meter.createObservableCounter(name, options);
    const observe: Observe = (result) => {
      for (const [value, labels] of read(client.metrics())) result.observe(value, labels);
    };
    metric.addCallback(observe);
    return () => metric.removeCallback(observe);
  });
  return () => {
    for (const stop of stops) stop();
  };
}
