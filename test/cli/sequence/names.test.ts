import { expect, test } from 'vitest';
import { namesIn } from '../../../src/cli/sequence/sequence-names.ts';
import { ledgerHeadKeys } from '../../../src/identity/bindings.ts';
import { FakeEtcd } from '../../identity/fake-etcd.ts';

const CONFIG = { etcd: { prefix: '/ids' }, datacenterId: 4, topics: { ledger: 'id.ledger' } } as never;

function etcdWith(...heads: readonly (readonly [ledger: string, partition: number, name: string])[]): FakeEtcd {
  const etcd = new FakeEtcd(() => 0);
  for (const [ledger, partition, name] of heads) {
    const keys = ledgerHeadKeys('/ids', 4, ledger, partition);
    etcd.tamper(keys.sequence(name), Buffer.from('head'));
    etcd.tamper(keys.end, Buffer.from('end'));
    etcd.tamper(keys.pending, Buffer.from('pending'));
  }
  return etcd;
}

test('the names of sequences are those of all partitions of the ledger, in their order', async () => {
  const etcd = etcdWith(
    ['id.ledger', 7, 'tickets'],
    ['id.ledger', 0, 'invoices/2027'],
    ['id.ledger', 11, 'invoices/2026'],
    ['id.ledger.2', 0, 'of another ledger'],
  );
  expect(await namesIn(etcd.port(), CONFIG)).toEqual(['invoices/2026', 'invoices/2027', 'tickets']);
});

test('a key that no worker wrote is no name: a shell would run what is in it', async () => {
  const etcd = etcdWith(['id.ledger', 0, '$(reboot)'], ['id.ledger', 0, 'a b'], ['id.ledger', 0, 'tickets\n']);
  expect(await namesIn(etcd.port(), CONFIG)).toEqual([]);
});
