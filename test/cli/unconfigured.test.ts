import { expect, test } from 'vitest';
import { cli } from './harness.ts';

test.each([
  ['worker'],
  ['request'],
  ['audit'],
  ['sequence', 'create', 'invoices'],
  ['sequence', 'list'],
  ['sequence', 'show', 'invoices'],
  ['sequence', 'restart', 'invoices', '--at', '5'],
  ['sequence', 'redefine', 'invoices', '--max', '5'],
  ['sequence', 'close', 'invoices', '--yes'],
  ['trace', '55325805773398016'],
  ['trace', '--correlation-id', 'order-4711'],
  ['trace', '--sequence', 'invoices', '--number', '5'],
  ['replay', '--from', '1d'],
  ['journal'],
  ['leases'],
  ['leases', 'evict', '3'],
  ['deadletters', 'list'],
  ['deadletters', 'show', '0:1'],
  ['deadletters', 'resend', '0:1'],
  ['namespace', 'show'],
  ['namespace', 'rebuild'],
  ['namespace', 'adopt-cluster'],
  ['topics', 'init'],
  ['topics', 'check'],
  ['doctor'],
])('%s %s ends with 78 where no server is configured, and names the variables', async (...args) => {
  const { code, err } = await cli(args);
  expect([code, err]).toEqual([78, expect.stringMatching(/^CONFIG_INVALID: .*(KAFKA_BROKERS|ETCD_ENDPOINTS)/s)]);
});
