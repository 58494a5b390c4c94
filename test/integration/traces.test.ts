import { join } from 'node:path';
import { context, propagation, ROOT_CONTEXT, trace } from '@opentelemetry/api';
import { NodeSDK } from '@opentelemetry/sdk-node';
import { afterEach, expect, test } from 'vitest';
import { IdClient } from '../../src/client/index.ts';
import { encodeIdRequest } from '../../src/codec/id-request.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { OtlpReceiver, type ReceivedSpan } from '../support/otlp-receiver.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const PARTITIONS = 2;
/** Nothing is exported before the end, so what arrives was flushed then. */
const LATE = { OTEL_BSP_SCHEDULE_DELAY: '600000' };
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';
const PARENT = 'b7ad6b7169203331';
const TRACEPARENT = `00-${TRACE_ID}-${PARENT}-01`;
const MAIN = join(import.meta.dirname, '../../src/main.ts');
const REGISTER = join(import.meta.dirname, '../support/register-sdk.mjs');

afterEach(() => {
  trace.disable();
  context.disable();
  propagation.disable();
});

/** A service's own SDK in this process, which exports to the receiver. */
function serviceSdk({ url }: OtlpReceiver): NodeSDK {
  process.env.OTEL_EXPORTER_OTLP_ENDPOINT = url;
  const sdk = new NodeSDK({ serviceName: 'orders', metricReaders: [], logRecordProcessors: [] });
  sdk.start();
  delete process.env.OTEL_EXPORTER_OTLP_ENDPOINT;
  return sdk;
}

/** Sends a request with a trace to a partition, and resolves when it was answered. */
async function ask(realm: Realm, correlationId: string, partition: number): Promise<void> {
  const replies = await realm.follow();
  const value = encodeIdRequest({ count: 2, correlationId: Buffer.from(correlationId), replyTopic: realm.replyTopic });
  await realm.sendRaw([{ key: correlationId, value, partition, headers: { traceparent: TRACEPARENT } }]);
  await replies.reply(correlationId);
}

const homeOf = (correlationId: string) => partitionFor(Buffer.from(correlationId), PARTITIONS, () => 0);

/** The spans of a trace as lines: service, kind, name, and the name or ID of the parent. */
function linesOf(spans: readonly ReceivedSpan[], traceId: string): string[] {
  const own = spans.filter((span) => span.traceId === traceId);
  const nameOf = (id: string) => own.find(({ spanId }) => spanId === id)?.name ?? id;
  return own.map(({ service, kind, name, parent }) => `${service}: ${kind} ${name} < ${nameOf(parent)}`).sort();
}

test('a request is one trace from the span of its service to the reply', async () => {
  await using receiver = await OtlpReceiver.start();
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const { requestTopic, replyTopic, ledgerTopic } = realm;
  const worker = realm.worker({ ...LATE, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url });
  await worker.ready();
  const sdk = serviceSdk(receiver);
  const { brokers } = suiteServers();
  const client = await IdClient.connect({ brokers: [...brokers], requestTopic, replyTopic, prefetch: false });
  const order = trace.getTracer('orders').startSpan('order', {}, ROOT_CONTEXT);
  await context.with(trace.setSpan(ROOT_CONTEXT, order), () => client.request({ count: 3, correlationId: 'order-1' }));
  order.end();
  await client.close();
  await sdk.shutdown();
  await worker.stop();

  const { traceId } = order.spanContext();
  expect(linesOf(receiver.spans, traceId)).toEqual([
    `idalloc: client append ${ledgerTopic} < decide`,
    `idalloc: client receive ${requestTopic} < process ${requestTopic}`,
    `idalloc: client reply ${replyTopic} < process ${requestTopic}`,
    `idalloc: consumer process ${requestTopic} < request ${requestTopic}`,
    `idalloc: internal decide < process ${requestTopic}`,
    'orders: internal order < ',
    `orders: producer request ${requestTopic} < order`,
  ]);
  const processed = receiver.spans.find(({ name, ...span }) => name.startsWith('process') && span.traceId === traceId);
  expect(processed).toMatchObject({
    scope: 'idalloc',
    schemaUrl: 'https://opentelemetry.io/schemas/1.44.0',
    failed: false,
    attributes: { 'messaging.message.conversation_id': 'order-1', 'idalloc.count': 3, 'idalloc.result': 'issued' },
  });
  const part = receiver.spans.find(({ spanId }) => processed?.links.includes(spanId));
  expect(part).toMatchObject({ name: `process ${requestTopic}`, parent: '', links: [processed?.parent] });
});

test('a request on another partition than its home is one trace through both, by an SDK that was registered before', async () => {
  await using receiver = await OtlpReceiver.start();
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const { requestTopic, replyTopic, ledgerTopic } = realm;
  const program = [process.execPath, '--import', REGISTER, MAIN, 'worker'];
  const worker = realm.worker({ ...LATE, OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url }, program);
  await worker.ready();
  await ask(realm, 'astray', 1 - homeOf('astray'));
  await worker.stop();

  const service = 'registered-before';
  expect(linesOf(receiver.spans, TRACE_ID)).toEqual([
    `${service}: client append ${ledgerTopic} < decide`,
    `${service}: client forward ${requestTopic} < process ${requestTopic}`,
    `${service}: client receive ${requestTopic} < process ${requestTopic}`,
    `${service}: client receive ${requestTopic} < process ${requestTopic}`,
    `${service}: client reply ${replyTopic} < process ${requestTopic}`,
    `${service}: consumer process ${requestTopic} < ${PARENT}`,
    `${service}: consumer process ${requestTopic} < ${PARENT}`,
    `${service}: internal decide < process ${requestTopic}`,
    `${service}: internal decide < process ${requestTopic}`,
  ]);
});

test('a collector that is away is logged, and delays neither replies nor the end beyond its limit', async () => {
  await using realm = await Realm.create(suiteServers(), { partitions: PARTITIONS });
  const away = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1', OTEL_BSP_SCHEDULE_DELAY: '100' };
  const worker = realm.worker(away);
  await worker.ready();
  await ask(realm, 'lost', homeOf('lost'));
  const line = await worker.line(({ component }) => component === 'traces');
  expect(line).toMatchObject({ level: 40, error: expect.stringContaining('ECONNREFUSED') });
  worker.kill('SIGTERM');
  expect(await worker.ended()).toEqual({ code: 0, signal: null });
});
