import * as prometheus from 'prom-client';
import { describe, expect, test } from 'vitest';
import { exportToOpenTelemetry, exportToPrometheus, type OpenTelemetryMeter } from '../../src/client/metric-exports.ts';
import { stage, turns } from './stage.ts';

describe('the metrics of a client', () => {
  test('count requests, resends and replies, and summarize latencies', async () => {
    const { client, runtime, workers } = await stage({ resendAfterMs: 1_000 }, (them) => {
      them.answering = false;
    });
    expect(client.metrics()).toMatchObject({ pending: 1, requests: 1, resends: 0, replies: 0 });
    expect(client.metrics().latency).toEqual({
      ...{ count: 0, sumMs: 0, p50Ms: undefined, p95Ms: undefined, p99Ms: undefined, maxMs: undefined },
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
    });
  });

  test('have the quantiles of the last 1,024 replies, and the longest of all', async () => {
    const { client, runtime, workers } = await stage({ prefetch: false }, (them) => {
      them.answering = false;
    });
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

test('are exported to prom-client, and are current whenever its registry is read', async () => {
  const { client } = await stage();
  const registry = new prometheus.Registry();
  exportToPrometheus(client, prometheus, [registry]);
  client.take(10);
  const read = async () => (await registry.metrics()).split('\n').filter((line) => !line.startsWith('#'));
  expect(await read()).toContain('idalloc_client_taken_total 10');
  client.take(5);
  expect(() => client.take(4_000)).toThrow();
  const lines = await read();
  expect(lines).toContain('idalloc_client_taken_total 15');
  expect(lines).toContain('idalloc_client_buffered 3985');
  expect(lines).toContain('idalloc_client_failures_total{code="BUFFER_EMPTY"} 1');
  expect(lines).toContain('idalloc_client_reply_seconds{quantile="0.5"} 0');
  expect(() => exportToPrometheus(client, prometheus, [registry])).toThrow('already been registered');
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
  const end = exportToOpenTelemetry(client, meter);
  const observed = (name: string) => {
    const values: unknown[] = [];
    for (const callback of callbacks.get(name) ?? []) callback({ observe: (...args) => values.push(args) });
    return values;
  };
  client.take(10);
  expect(observed('idalloc_client_taken_total')).toEqual([[10, {}]]);
  expect(observed('idalloc_client_reply_seconds')).toContainEqual([0, { quantile: '0.99' }]);
  end();
  expect(observed('idalloc_client_taken_total')).toEqual([]);
});
