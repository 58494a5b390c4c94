import { describe, expect, it } from 'vitest';
import type { IdallocError } from '../../src/errors.ts';
import type { Compare, EtcdPort, KeyOperation } from '../../src/identity/identity-ports.ts';
import { SharedTransactions } from '../../src/ledger/heads.ts';
import { FakeEtcd, type Fault } from '../identity/fake-etcd.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const value = Buffer.from('v');
const put = (key: string, bytes = value): KeyOperation => ({ put: key, value: bytes });
const at = (key: string, modRevision = 0n): Compare => ({ key, modRevision });

/** etcd behind a link with these faults, one for each call, and what was sent to it: when, and how many operations. */
function stage(...faults: readonly Fault[]) {
  const runtime = new VirtualRuntime();
  const etcd = new FakeEtcd(() => 0);
  const sent: [number, number][] = [];
  const port = etcd.port(async () => ({ fault: faults[sent.length - 1] ?? 'pass' }));
  const transact: EtcdPort['transact'] = (compares, operations) => {
    if (operations.length > 128) throw new RangeError('more operations than etcd takes');
    const keys = operations.map((operation) => ('put' in operation ? operation.put : operation.delete));
    if (new Set(keys).size < keys.length) throw new RangeError('a key twice');
    sent.push([runtime.monotonicMs(), operations.length]);
    return port.transact(compares, operations);
  };
  const shared = new SharedTransactions({ transact }, runtime);
  const swap = (key: string, modRevision = 0n, more: readonly KeyOperation[] = []) =>
    shared.transact([at(key, modRevision)], [put(key), ...more]);
  return { runtime, etcd, sent, shared, swap };
}

describe('SharedTransactions', () => {
  it('transactions that arrive together are one, at one revision', async () => {
    const { runtime, etcd, sent, swap } = stage();
    const outcomes = await runtime.until(Promise.all(['a', 'b', 'c'].map((key) => swap(key))));
    expect(sent).toEqual([[0, 3]]);
    expect(outcomes).toEqual(outcomes.map(() => ({ succeeded: true, revision: etcd.revision })));
    expect(['a', 'b', 'c'].map((key) => etcd.peek(key)?.modRevision)).toEqual(outcomes.map(({ revision }) => revision));
  });

  it('those that arrive while one is in progress are the next one, 5 ms after it began', async () => {
    const { runtime, sent, swap } = stage();
    const first = swap('a');
    await new Promise((resolve) => setImmediate(resolve)); // it is sent in the next turn
    expect(sent).toHaveLength(1);
    await runtime.until(Promise.all([first, swap('b'), swap('c')]));
    expect(sent).toEqual([
      [0, 1],
      [5, 2],
    ]);
  });

  it('one that is outdated is refused, and the others are done', async () => {
    const { runtime, etcd, swap } = stage();
    etcd.tamper('b', value);
    const outcomes = await runtime.until(Promise.all(['a', 'b', 'c'].map((key) => swap(key))));
    expect(outcomes.map(({ succeeded }) => succeeded)).toEqual([true, false, true]);
  });

  it('a round takes in those that are tried alone: the next one waits for them', async () => {
    const runtime = new VirtualRuntime();
    const sent: PromiseWithResolvers<{ succeeded: boolean; revision: bigint }>[] = [];
    const transact: EtcdPort['transact'] = () => {
      const call = Promise.withResolvers<{ succeeded: boolean; revision: bigint }>();
      sent.push(call);
      return call.promise;
    };
    const shared = new SharedTransactions({ transact }, runtime);
    const done = ['a', 'b'].map((key) => shared.transact([at(key)], [put(key)]));
    await runtime.pass(1);
    sent[0]?.resolve({ succeeded: false, revision: 1n });
    await runtime.pass(1);
    const next = shared.transact([at('c')], [put('c')]);
    await runtime.pass(1_000);
    expect(sent, 'the two alone').toHaveLength(3);
    for (const call of sent) call.resolve({ succeeded: true, revision: 2n });
    await Promise.all(done);
    await runtime.pass(1);
    expect(sent).toHaveLength(4);
    sent[3]?.resolve({ succeeded: true, revision: 3n });
    await next;
  });

  it('one that was sent twice is refused, though it was done, and never done again', async () => {
    const { runtime, etcd, swap } = stage('asked twice');
    const outcomes = await runtime.until(Promise.all(['a', 'b'].map((key) => swap(key))));
    expect(outcomes.map(({ succeeded }) => succeeded)).toEqual([false, false]);
    expect(etcd.peek('a')?.modRevision).toBe(etcd.peek('b')?.modRevision);
    expect(etcd.peek('a')?.createRevision).toBe(etcd.peek('a')?.modRevision);
  });

  it('one that was refused and comes again late does nothing, once those that shared it were done alone', async () => {
    const { runtime, etcd, swap } = stage('doubled');
    etcd.tamper('b', value);
    await runtime.until(Promise.all(['a', 'b'].map((key) => swap(key))));
    const revision = etcd.revision;
    etcd.deliverLate();
    expect(etcd.revision).toBe(revision);
  });

  it('without an answer all that share it are rejected, and the next ones go on', async () => {
    const { runtime, swap } = stage('answer lost');
    const all = Promise.allSettled(['a', 'b'].map((key) => swap(key)));
    const outcomes = await runtime.until(all);
    expect(outcomes.map((one) => one.status === 'rejected' && (one.reason as IdallocError).code)).toEqual([
      'ETCD_UNAVAILABLE',
      'ETCD_UNAVAILABLE',
    ]);
    expect(await runtime.until(swap('c'))).toMatchObject({ succeeded: true });
  });

  it('what comes late of one without an answer does nothing, once those that shared it were done', async () => {
    const { runtime, etcd, swap } = stage('late');
    await runtime.until(Promise.allSettled(['a', 'b'].map((key) => swap(key))));
    expect(etcd.peek('a')).toBeUndefined();
    expect(await runtime.until(swap('a'))).toMatchObject({ succeeded: true });
    const { revision } = etcd;
    etcd.deliverLate();
    expect([etcd.revision, etcd.peek('b')]).toEqual([revision, undefined]);
  });

  it('one that etcd does and refuses, as it runs out of space, is refused for all, and never done again', async () => {
    const { runtime, etcd, sent, swap } = stage();
    etcd.fill(true);
    const outcomes = await runtime.until(Promise.allSettled(['a', 'b'].map((key) => swap(key))));
    expect(outcomes.map((one) => one.status === 'rejected' && (one.reason as IdallocError).code)).toEqual([
      'ETCD_REFUSED',
      'ETCD_REFUSED',
    ]);
    expect(sent).toHaveLength(1);
    etcd.free();
    const { revision } = etcd;
    const again = await runtime.until(Promise.all(['a', 'b'].map((key) => swap(key))));
    expect([again.map(({ succeeded }) => succeeded), etcd.revision]).toEqual([[false, false], revision]);
  });

  it('what etcd does not take in one transaction goes beside it, in the same round', async () => {
    const { runtime, sent, shared, swap } = stage();
    const many = (key: string, count: number) => Array.from({ length: count }, (_, i) => put(`${key}${i}`));
    const large = (key: string) => shared.transact([at(key)], [put(key, Buffer.alloc(600_000))]);
    await runtime.until(
      Promise.all([
        swap('a', 0n, many('a', 100)),
        swap('b', 0n, many('b', 26)),
        swap('c', 0n, many('c', 1)),
        large('d'),
        large('e'),
        swap('e', 7n),
      ]),
    );
    expect(sent).toEqual([
      [0, 128],
      [0, 3],
      [0, 1],
      [0, 1],
    ]);
  });
});
