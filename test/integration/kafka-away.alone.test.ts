import { expect, test } from 'vitest';
import { freePorts } from '../../ops/dev/ports.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';

const AT_ONCE_MS = 2_500;
const READY_WAIT_MS = 60_000;

test('a worker that starts while Kafka is down waits, logs the reason, and stops immediately on SIGTERM', async () => {
  await using realm = await Realm.create(suiteServers());
  const [port] = await freePorts(1);
  const worker = realm.worker({ KAFKA_BROKERS: `127.0.0.1:${port}` });
  await worker.line(({ reason }) => reason === 'KAFKA_UNAVAILABLE');
  const readyz = await worker.ops('/readyz');
  expect([readyz.status, await readyz.json()]).toEqual([503, { status: 'not ready', reason: 'KAFKA_UNAVAILABLE' }]);
  expect((await worker.ops('/healthz')).status).toBe(200);
  expect(worker.lines.filter(({ msg }) => msg === 'waiting for Kafka')).toHaveLength(1);
  const begunMs = performance.now();
  worker.kill('SIGTERM');
  expect(await worker.ended()).toEqual({ code: 0, signal: null });
  expect(performance.now() - begunMs).toBeLessThan(AT_ONCE_MS);
});

test('a worker that starts while Kafka is down serves once Kafka is up', async () => {
  await using realm = await Realm.create(suiteServers());
  const replies = await realm.follow();
  await using proxy = await TcpProxy.start(suiteServers().proxied);
  proxy.cut();
  const worker = realm.worker({ KAFKA_BROKERS: `127.0.0.1:${suiteServers().proxied.port}` });
  await worker.line(({ reason }) => reason === 'KAFKA_UNAVAILABLE');
  proxy.restore();
  await worker.ready();
  await realm.send([{ correlationId: 'late', count: 3 }]);
  await replies.reply('late');
});

test('a worker that is cut off from Kafka is not ready until Kafka is back', async () => {
  await using realm = await Realm.create(suiteServers());
  await using proxy = await TcpProxy.start(suiteServers().proxied);
  const worker = realm.worker({ KAFKA_BROKERS: `127.0.0.1:${suiteServers().proxied.port}` });
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
