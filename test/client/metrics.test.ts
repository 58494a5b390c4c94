import * as prometheus from 'prom-client';
import { describe, expect, test } from 'vitest';
import { exportToOpenTelemetry, exportToPrometheus, type OpenTelemetryMeter } from '../../src/client/metric-exports.ts';
import type { LatencySummary } from '../../src/client/metrics.ts';
import { stage, turns } from './stage.ts';

/** The buckets after so many replies that all took so long. */
function bucketsOf(replies: number, latencyMs: number): LatencySummary['buckets'] {
  const limits = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];
  return limits.map((atMostMs) => ({ atMostMs, count: atMostMs < latencyMs ? 0 : replies }));
}

describe('the metrics of a client', () => {
  test('count requests, resends and replies, and summarize latencies', async () => {
    const { client, runtime, workers } = await stage({ resendAfterMs: 1_000 }, { answering: false });
    expect(client.metrics()).toMatchObject({ pending: 1, requests: 1, resends: 0, replies: 0 });
    expect(client.metrics().latency).toEqual({
      ...{ count: 0, sumMs: 0, p50Ms: undefined, p95Ms: undefined, p99Ms: undefined, maxMs: undefined },
      buckets: bucketsOf(0, 0),
    });
    await runtime.pass(1_500);
    const [sent] = workers.sent;
    workers.answer(sent?.correlationId ?? '', 4_000);
    await turns();
    client.take(10);
    const metrics = client.metrics();
    expect(metrics).toMatchObject({ buffered: 3_990, lowWater: 2_150, idsPerSecond: 100, pending: 0, waiting: 0 });
    expect(metrics).toMatchObject({ taken: 10, dropped: 0, requests: 1, resends: 1, replies: 1, replayed: 0 });
    expect(metrics.latency).toEqual({
      ...{ count: 1, sumMs: 1_500, p50Ms: 1_500, p95Ms: 1_500, p99Ms: 1_500, maxMs: 1_500 },
      buckets: bucketsOf(1, 1_500),
    });
  });

  test('have the quantiles of the last 1,024 replies, and the longest of all', async () => {
    const { client, runtime, workers } = await stage({ prefetch: false }, { answering: false });
    for (let i = 1; i <= 1_124; i += 1) {
      const reply = client.request({ count: 1, correlationId: `r${i}`, timeoutMs: 60_000 });
      await turns();
      runtime.nowMs += i <= 100 ? 2_000 : i - 100;
      workers.answer(`r${i}`, 1);
      await reply;
    }
    const { count, p50Ms, p95Ms, p99Ms, maxMs } = client.metrics().latency;
    expect({ count, p50Ms, p95Ms, p99Ms, maxMs }).toEqual({
      ...{ count: 1_124, p50Ms: 512, p95Ms: 973, p99Ms: 1_014, maxMs: 2_000 },
    });
  });

  test('count calls without IDs by code, and each failure behind the scenes, although onError has it once', async () => {
    const reported: Error[] = [];
    const hooks = { onError: (error: Error) => void reported.push(error) };
    const { client, runtime, workers } = await stage({ hooks, prefetch: false });
    workers.broken = new Error('no broker');
    expect(() => client.next()).toThrow();
    expect(() => client.take(2)).toThrow();
    await expect(client.takeAsync(2)).rejects.toThrow();
    const refused = client.request({ count: 1, timeoutMs: 1_200 }).catch((error: unknown) => error);
    await runtime.pass(1_200);
    await refused;
    await expect(client.request({ count: 1, signal: AbortSignal.abort() })).rejects.toThrow();
    await client.close();
    expect(() => client.next()).toThrow();
    expect(client.metrics().failures).toEqual({ BUFFER_EMPTY: 3, KAFKA_UNAVAILABLE: 1, ABORTED: 1, CLIENT_CLOSED: 1 });
    expect(client.metrics().errors).toEqual({ OTHER: 3 });
    expect(reported).toHaveLength(1);
  });
});

/** The samples of a registry of Prometheus, by what identifies them. */
async function samplesOf(registry: prometheus.Registry): Promise<Readonly<Record<string, number>>> {
  const lines = (await registry.metrics()).split('\n').filter((line) => /^[a-z]/.test(line));
  return Object.fromEntries(lines.map((line) => [line.replace(/ \S+$/, ''), Number(line.replace(/^.* /, ''))]));
}

const invalid = (message: string) =>
  expect.objectContaining({ code: 'CONFIG_INVALID', message: expect.stringContaining(message) });

describe('the export to prom-client', () => {
  test('is current whenever the registry is read', async () => {
    const { client, runtime, workers } = await stage();
    const registry = new prometheus.Registry();
    exportToPrometheus(client, prometheus, [registry]);
    client.take(10);
    runtime.nowMs += 1_500;
    expect(await samplesOf(registry)).toMatchObject({
      idalloc_client_taken_total: 10,
      idalloc_client_oldest_seconds: 1.5,
    });
    workers.answering = false;
    client.take(5);
    expect(() => client.take(4_000)).toThrow();
    expect(await samplesOf(registry)).toMatchObject({
      idalloc_client_taken_total: 15,
      idalloc_client_passed_over_total: 0,
      idalloc_client_buffered: 3_985,
      'idalloc_client_failures_total{code="BUFFER_EMPTY"}': 1,
      'idalloc_client_reply_seconds{quantile="0.5"}': 0,
    });
    client.take(client.buffered);
    expect(await samplesOf(registry)).not.toHaveProperty('idalloc_client_oldest_seconds');
  });

  test('has a histogram of the time until replies', async () => {
    const { client, runtime, workers } = await stage({ prefetch: false }, { answering: false });
    for (const [id, latencyMs] of [
      ['fast', 4],
      ['slow', 700],
      ['slowest', 61_000],
    ] as const) {
      const reply = client.request({ count: 1, correlationId: id, timeoutMs: 120_000 });
      await turns();
      runtime.nowMs += latencyMs;
      workers.answer(id, 1);
      await reply;
    }
    const registry = new prometheus.Registry();
    exportToPrometheus(client, prometheus, { registers: [registry] });
    expect(await registry.metrics()).toContain('# TYPE idalloc_client_request_seconds histogram');
    expect(await samplesOf(registry)).toMatchObject({
      'idalloc_client_request_seconds_bucket{le="0.0025"}': 0,
      'idalloc_client_request_seconds_bucket{le="0.005"}': 1,
      'idalloc_client_request_seconds_bucket{le="0.5"}': 1,
      'idalloc_client_request_seconds_bucket{le="1"}': 2,
      'idalloc_client_request_seconds_bucket{le="60"}': 2,
      'idalloc_client_request_seconds_bucket{le="+Inf"}': 3,
      idalloc_client_request_seconds_sum: 61.704,
      idalloc_client_request_seconds_count: 3,
    });
  });

  test('takes several clients into one registry, told apart by labels, and each may end', async () => {
    const [orders, billing] = [(await stage()).client, (await stage()).client];
    const registry = new prometheus.Registry();
    const endOrders = exportToPrometheus(orders, prometheus, { registers: [registry], labels: { client: 'orders' } });
    const end = exportToPrometheus(billing, prometheus, { registers: [registry], labels: { client: 'billing' } });
    orders.take(3);
    billing.take(4);
    const all = await samplesOf(registry);
    expect(all['idalloc_client_taken_total{client="orders"}']).toBe(3);
    expect(all['idalloc_client_taken_total{client="billing"}']).toBe(4);
    expect(all['idalloc_client_request_seconds_count{client="billing"}']).toBe(1);
    endOrders();
    expect(Object.keys(await samplesOf(registry)).filter((name) => name.includes('orders'))).toEqual([]);
    end();
    expect(await registry.metrics()).not.toContain('idalloc');
    exportToPrometheus(orders, prometheus, [registry]); // with other labels: nothing is left of the former
  });

  test('gives the place of a closed client to the next one, and refuses a second open one', async () => {
    const [former, next] = [(await stage()).client, (await stage()).client];
    const registry = new prometheus.Registry();
    const end = exportToPrometheus(former, prometheus, [registry]);
    exportToPrometheus(former, prometheus, [registry]);
    expect(() => exportToPrometheus(next, prometheus, [registry])).toThrow(invalid('another open client'));
    await former.close();
    exportToPrometheus(next, prometheus, [registry]);
    end(); // the former's: nothing of the next one ends
    next.take(2);
    expect(await samplesOf(registry)).toMatchObject({ idalloc_client_taken_total: 2 });
  });

  test('is in all registries or in none', async () => {
    const [one, other] = [(await stage()).client, (await stage()).client];
    const registries = [new prometheus.Registry(), new prometheus.Registry()];
    exportToPrometheus(other, prometheus, registries.slice(1));
    expect(() => exportToPrometheus(one, prometheus, registries)).toThrow(invalid('another open client'));
    expect(registries[0]?.getMetricsAsArray()).toEqual([]);
  });

  test('is made again in a registry that was cleared, and by default is in the one of prom-client', async () => {
    const { client } = await stage();
    for (let round = 0; round < 2; round += 1) {
      exportToPrometheus(client, prometheus);
      expect(await samplesOf(prometheus.register)).toHaveProperty('idalloc_client_taken_total');
      prometheus.register.clear();
    }
  });

  test('refuses labels that can not be, and leaves names to whoever registered them', async () => {
    const { client } = await stage();
    const registry = new prometheus.Registry();
    for (const labels of [{ code: 'x' }, { le: 'x' }, { 'a-b': 'x' }, { client: 7 as unknown as string }]) {
      expect(() => exportToPrometheus(client, prometheus, { registers: [registry], labels })).toThrow(
        invalid('labels: '),
      );
    }
    new prometheus.Gauge({ name: 'idalloc_client_waiting', help: 'of somebody else', registers: [registry] });
    expect(() => exportToPrometheus(client, prometheus, [registry])).toThrow(
      invalid('a metric idalloc_client_waiting'),
    );
    expect(registry.getMetricsAsArray()).toHaveLength(1);
    const own = new prometheus.Registry();
    exportToPrometheus(client, prometheus, { registers: [own], labels: { client: 'a' } });
    expect(() => exportToPrometheus(client, prometheus, [own])).toThrow(invalid('same names of labels'));
  });
});

test('are exported to a meter of OpenTelemetry until that is ended', async () => {
  const { client } = await stage();
  type Callback = Parameters<ReturnType<OpenTelemetryMeter['createObservableGauge']>['addCallback']>[0];
  const callbacks = new Map<string, Set<Callback>>();
  const observable = (name: string) => {
    const own = new Set<Callback>();
    callbacks.set(name, own);
    return { addCallback: (one: Callback) => own.add(one), removeCallback: (one: Callback) => own.delete(one) };
  };
  const meter: OpenTelemetryMeter = { createObservableGauge: observable, createObservableCounter: observable };
  const end = exportToOpenTelemetry(client, meter, { client: 'orders' });
  const observed = (name: string) => {
    const values: unknown[] = [];
    for (const callback of callbacks.get(name) ?? []) callback({ observe: (...args) => values.push(args) });
    return values;
  };
  client.take(10);
  expect(observed('idalloc_client_taken_total')).toEqual([[10, { client: 'orders' }]]);
  expect(observed('idalloc_client_reply_seconds')).toContainEqual([0, { client: 'orders', quantile: '0.99' }]);
  end();
  expect(observed('idalloc_client_taken_total')).toEqual([]);
});
