import { expect, test } from 'vitest';
import { IdAllocContainer, StartedIdAllocContainer } from '../../src/testcontainers/index.ts';

test.each([
  ['localhost', 'http://localhost:9464'],
  ['::1', 'http://[::1]:9464'],
  ['[::1]', 'http://[::1]:9464'],
])('the URLs of a worker whose host is %s can be opened', (host, url) => {
  const started = { getHost: () => host, getMappedPort: (port: number) => port };
  const worker = new StartedIdAllocContainer(started as never);
  expect([worker.opsUrl, worker.apiUrl]).toEqual([url, url.replace('9464', '8080')]);
});

test('brokers and etcd may have IPv6 addresses, beside names', () => {
  const worker = new IdAllocContainer().withKafka(['[2001:db8::1]:9092', 'kafka:9092']).withEtcd('[2001:db8::2]:2379');
  expect((worker as unknown as { environment: object }).environment).toMatchObject({
    KAFKA_BROKERS: '[2001:db8::1]:9092,kafka:9092',
    ETCD_ENDPOINTS: 'http://[2001:db8::2]:2379',
  });
});
