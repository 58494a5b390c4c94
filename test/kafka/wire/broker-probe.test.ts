import { expect, test } from 'vitest';
import { probeBroker } from '../../../src/kafka/wire/broker-probe.ts';
import { API_VERSIONS, TcpBroker } from './tcp-broker.ts';

test('a broker reports its newest version of Fetch without a login', async () => {
  await using broker = await TcpBroker.start();
  broker.versions = { 1: [4, 17] };
  const { fetchVersion, latencyMs } = await probeBroker(broker.address, undefined, 10_000);
  expect(fetchVersion).toBe(17);
  expect(latencyMs).toBeGreaterThan(0);
  expect(broker.calls.map(({ apiKey, apiVersion }) => [apiKey, apiVersion])).toEqual([[API_VERSIONS, 0]]);
  await expect.poll(() => broker.sockets.size).toBe(0);
});

test.for([
  [
    'hangs up',
    (broker: TcpBroker) => (broker.send = (socket) => void socket.destroy()),
    /closed without a response/,
    60_000,
  ],
  ['stays silent', (broker: TcpBroker) => (broker.send = () => {}), /no response in 200 ms/, 200],
  [
    'speaks another protocol',
    (broker: TcpBroker) => (broker.send = (socket) => void socket.write('HTTP/1.1 400')),
    /not a Kafka broker/,
    60_000,
  ],
] as const)('a server that %s is not a broker', async ([, script, said, limitMs]) => {
  await using broker = await TcpBroker.start();
  script(broker);
  await expect(probeBroker(broker.address, undefined, limitMs)).rejects.toThrow(said);
  await expect.poll(() => broker.sockets.size).toBe(0);
});

test('a plaintext port dialled with TLS is not a broker', async () => {
  await using broker = await TcpBroker.start();
  await expect(probeBroker(broker.address, {}, 10_000)).rejects.toThrow();
});
