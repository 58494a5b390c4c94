import { expect, test } from 'vitest';
import { freePorts } from '../../ops/dev/ports.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';

const READY_WAIT_MS = 120_000;

test('a worker that starts while Kafka is down waits, logs the reason, and stops on SIGTERM', async () => {
  await using realm = await Realm.create(suiteServers());
  const [port] = await freePorts(1);
  const worker = realm.worker({ KAFKA_BROKERS: `127.0.0.1:${port}` });
  await worker.line(({ reason }) => reason === 'KAFKA_UNAVAILABLE');
  const readyz = await worker.ops('/readyz');
  expect(readyz.status).toBe(503);
  expect(await readyz.json()).toMatchObject({ status: 'not ready', reason: 'KAFKA_UNAVAILABLE' });
  expect((await worker.ops('/healthz')).status).toBe(200);
  expect(worker.lines.filter(({ msg }) => msg === 'waiting for Kafka')).toHaveLength(1);
  // Kafka never comes, so the worker can't be waiting for it. That it waits for nothing else either is shown in virtual
  // time, in test/worker/readiness.test.ts.
  worker.kill('SIGTERM');
  expect(await worker.ended()).toEqual({ code: 0, signal: null });
});

test('a worker that starts while Kafka is down serves once Kafka is up', async () => {
  await using realm = await Realm.create(suiteServers());
  const replies = await realm.follow();
  await using proxy = await TcpProxy.start(suiteServers());
  proxy.cut();
  const worker = realm.worker({ KAFKA_BROKERS: proxy.address });
  await worker.line(({ reason }) => reason === 'KAFKA_UNAVAILABLE');
  proxy.restore();
  await worker.ready();
  await realm.send([{ correlationId: 'late', count: 3 }]);
  await replies.reply('late');
});

test('a worker that is cut off from Kafka is not ready until Kafka is back', async () => {
  await using realm = await Realm.create(suiteServers());
  await using proxy = await TcpProxy.start(suiteServers());
  const worker = realm.worker({ KAFKA_BROKERS: proxy.address });
  await worker.ready();
  const reason = async () => {
    const body = (await (await worker.ops('/readyz')).json()) as { readonly reason?: string };
    return body.reason;
  };
  await expect.poll(reason, { timeout: READY_WAIT_MS }).toBeUndefined();
  proxy.cut();
  await expect.poll(reason, { timeout: READY_WAIT_MS }).toBe('KAFKA_UNAVAILABLE');
  proxy.restore();
  await expect.poll(reason, { timeout: READY_WAIT_MS }).toBeUndefined();
});
