import { expect, test } from 'vitest';
import { parseQuotas } from '../../src/codec/quota.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';
import { blockCommands, readPage } from '../support/docs.ts';

test('the example of how-to/quotas.md is a valid setting, with the quotas that the page describes', () => {
  const [shown] = blockCommands(readPage('docs/how-to/quotas.md'));
  const [, quotas] = /^export QUOTAS='(.+)'$/.exec(shown?.command ?? '') ?? [];
  const env = { KAFKA_BROKERS: 'k:1', ETCD_ENDPOINTS: 'http://e:1', DATACENTER_ID: '0', QUOTAS: quotas };
  expect(parseQuotas(loadWorkerConfig(env).quotas?.() ?? '')).toMatchObject([
    { prefix: 'id.replies.acme.', idsPerSecond: 100_000, requestsPerSecond: 50 },
    { prefix: 'id.replies.', idsPerSecond: 1_000_000 },
  ]);
});
