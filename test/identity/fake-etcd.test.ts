import { describe, expect, it } from 'vitest';
import { etcdContract, fullEtcdContract } from './etcd-contract.ts';
import { FakeEtcd, type Fault } from './fake-etcd.ts';

etcdContract('the fake', () => {
  let nowMs = 0;
  const etcd = new FakeEtcd(() => nowMs);
  return {
    port: etcd.port(),
    prefix: '/contract/',
    outlive: async (seconds) => {
      nowMs += seconds * 1000;
    },
    close: () => {},
  };
});

fullEtcdContract('the fake', async () => {
  const etcd = new FakeEtcd(() => 0);
  return {
    port: etcd.port(),
    prefix: '/contract/',
    fill: async () => etcd.fill(),
    free: async () => etcd.free(),
    close: () => {},
  };
});

it('the fake applies the write that reaches the quota, and refuses it', async () => {
  const etcd = new FakeEtcd(() => 0);
  etcd.fill(true);
  const put = () => etcd.port().transact([], [{ put: 'k', value: Buffer.from('v') }]);
  await expect(put()).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
  const { revision } = etcd;
  await expect(put()).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
  expect([etcd.peek('k')?.modRevision, etcd.revision]).toEqual([revision, revision]);
});

describe('the fake network', () => {
  const put = async (fault: Fault) => {
    const etcd = new FakeEtcd(() => 0);
    const port = etcd.port(async () => ({ fault }));
    const swap = port.transact([{ key: 'k', createRevision: 0n }], [{ put: 'k', value: Buffer.from('v') }]);
    const answer = await swap.catch(() => 'none' as const);
    return { etcd, answer: answer === 'none' ? answer : answer.succeeded };
  };
  const there = (etcd: FakeEtcd) => etcd.peek('k') !== undefined;

  it('a lost request has no effect', async () => {
    const { etcd, answer } = await put('request lost');
    expect([answer, there(etcd), etcd.lateCount]).toEqual(['none', false, 0]);
  });

  it('a lost answer hides an effect', async () => {
    const { etcd, answer } = await put('answer lost');
    expect([answer, there(etcd)]).toEqual(['none', true]);
  });

  it('a late request takes effect when delivered', async () => {
    const { etcd, answer } = await put('late');
    expect([answer, there(etcd)]).toEqual(['none', false]);
    etcd.deliverLate();
    expect(there(etcd)).toBe(true);
  });

  it('a request "asked twice" takes effect, and gets the failure of its second copy', async () => {
    const { etcd, answer } = await put('asked twice');
    expect([answer, there(etcd)]).toEqual([false, true]);
  });

  it('the second copy of a doubled request loses its comparison', async () => {
    const { etcd, answer } = await put('doubled');
    const before = etcd.revision;
    etcd.deliverLate();
    expect([answer, etcd.revision]).toEqual([true, before]);
  });
});
