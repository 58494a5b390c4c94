import { describe, expect, it } from 'vitest';
import {
  type Bound,
  bindingConflicts,
  bindingsOf,
  bindNamespace,
  boundLedgers,
  claimDatacenter,
} from '../../src/identity/bindings.ts';
import { namespaceKeys } from '../../src/identity/keys.ts';
import { openNamespace } from '../../src/identity/namespace.ts';
import { MemoryWitness } from '../support/memory-witness.ts';
import { FakeEtcd, type Fault } from './fake-etcd.ts';
import { BOUND, bindings, descriptorOf, keys, Stage } from './stage.ts';

const SECOND_KEYS = namespaceKeys('/second', 4);
const SECOND = bindingsOf(SECOND_KEYS, BOUND);
const mismatch = (...named: string[]) =>
  expect.objectContaining({ code: 'NAMESPACE_MISMATCH', message: expect.stringMatching(named.join('.*')) });

function boundAs(topics: Partial<Bound['topics']> = {}, rest: Partial<Bound> = {}) {
  return bindingsOf(keys, { ...BOUND, ...rest, topics: { ...BOUND.topics, ...topics } });
}

/** A second pair of topics, with the partition count of its request topic. */
const PAIR = { requests: 'id.requests.2', ledger: 'id.ledger.2', requestPartitions: 24 };
const OTHERS = { groupId: 'idalloc.2' };

async function opened(): Promise<FakeEtcd> {
  const { etcd } = await Stage.open();
  return etcd;
}

describe('two namespaces of one datacenter in one etcd', () => {
  it('of which the first is open: the second is rejected, and creates nothing below its prefix', async () => {
    const stage = await Stage.open();
    const second = { keys: SECOND_KEYS, bindings: SECOND, wanted: descriptorOf(), newNonce: () => 'n' };
    const witness = new MemoryWitness(4).port(); // not the first one's, so that only the claim can show the conflict
    const open = openNamespace({ etcd: stage.etcd.port(), witness, ...second });
    await expect(open).rejects.toEqual(mismatch('/keyspace/datacenter/4/', '/second/datacenter/4/', 'DATACENTER_ID'));
    expect(stage.etcd.range('/second').kvs).toEqual([]);
  });

  it('that start together: one is created, the other rejected', async () => {
    const etcd = new FakeEtcd(() => 0);
    const open = (at: typeof keys, bound: typeof bindings) => {
      const ports = { etcd: etcd.port(), witness: new MemoryWitness(4).port() };
      return openNamespace({ ...ports, keys: at, bindings: bound, wanted: descriptorOf(), newNonce: () => 'n' });
    };
    const outcomes = await Promise.allSettled([open(keys, bindings), open(SECOND_KEYS, SECOND)]);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    expect(outcomes.find((outcome) => outcome.status === 'rejected')?.reason).toEqual(mismatch('Datacenter 4'));
  });

  it('of which the second claimed the datacenter while the first held no worker ID: the first acquires none', async () => {
    const stage = await Stage.open();
    const host = await stage.host();
    stage.etcd.tamper(SECOND.claim.key, Buffer.from(SECOND.claim.value));
    await expect(host.identity.acquire()).rejects.toEqual(mismatch('/second/datacenter/4/'));
    expect(host.authority().ok).toBe(false);
  });

  it('may exist in two separate ID spaces', async () => {
    const etcd = await opened();
    await bindNamespace(etcd.port(), bindingsOf(SECOND_KEYS, { ...BOUND, idSpace: 'staging' }));
    expect(await bindingConflicts(etcd.port(), bindings)).toEqual([]);
  });

  it('do not conflict with another datacenter in the same etcd', async () => {
    const etcd = await opened();
    const keysOf5 = namespaceKeys('/second', 5);
    await bindNamespace(etcd.port(), bindingsOf(keysOf5, { ...BOUND, datacenterId: 5 }));
    expect(await bindingConflicts(etcd.port(), bindings)).toEqual([]);
  });
});

describe('what is bound to a namespace', () => {
  it.each([
    ['its ID space', boundAs({}, { idSpace: 'other' }), ["'id'", "'other'", 'ID_SPACE=id']],
    ['the partition count of its request topic', boundAs({ requestPartitions: 24 }), ['12', '24', 'PARTITIONS=12']],
    ['the ledger of its request topic', boundAs({ ledger: 'id.ledger.2' }), ['id.ledger', 'LEDGER_TOPIC=id.ledger']],
    ['the request topic of its ledger', boundAs({ requests: 'r2' }, OTHERS), ["'id.requests'", 'LEDGER_TOPIC']],
    ['the request topic of its group', boundAs(PAIR), ["'idalloc'", "'id.requests'", 'KAFKA_GROUP_ID']],
  ] as const)('%s rejects another configuration, and does not change', async (_, other, named) => {
    const etcd = await opened();
    const before = etcd.revision;
    await expect(bindNamespace(etcd.port(), other)).rejects.toEqual(mismatch(...named));
    await expect(claimDatacenter(etcd.port(), other)).rejects.toEqual(mismatch(...named));
    expect(await bindingConflicts(etcd.port(), other)).toEqual([expect.stringMatching(named.join('.*'))]);
    // Another ID space would have its own claim, which is not written either.
    expect(etcd.revision).toBe(before);
  });

  it('is written at the next start of a namespace that has no bindings yet', async () => {
    const stage = await Stage.open();
    for (const { key } of [bindings.claim, ...bindings.own]) stage.etcd.tamper(key, undefined);
    await stage.open();
    const stored = [bindings.claim, ...bindings.own].map(({ key }) => stage.etcd.peek(key)?.value.toString());
    expect(stored).toEqual(['/keyspace/datacenter/4/', 'id', '12', 'id.ledger', 'id.requests', 'id.requests']);
  });

  it('is not written by a worker that the descriptor rejects', async () => {
    const stage = await Stage.open();
    for (const { key } of bindings.own) stage.etcd.tamper(key, undefined);
    await expect(stage.open({ pool: { first: 0, last: 9 } })).rejects.toMatchObject({ code: 'NAMESPACE_MISMATCH' });
    expect(bindings.own.map(({ key }) => stage.etcd.peek(key))).toEqual(bindings.own.map(() => undefined));
  });

  it('is decided by the first writer, and a different value is rejected', async () => {
    const etcd = new FakeEtcd(() => 0);
    const others = boundAs({ requestPartitions: 24 });
    const outcomes = await Promise.allSettled([bindings, others].map((one) => bindNamespace(etcd.port(), one)));
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  it('can grow by a second pair of topics without ending the term that serves the first', async () => {
    const stage = await Stage.open();
    const host = await stage.host();
    await host.identity.acquire();
    await bindNamespace(stage.etcd.port(), boundAs(PAIR, OTHERS));
    stage.pass(10_000);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    expect(await boundLedgers(stage.etcd.port(), keys)).toEqual(['id.ledger', 'id.ledger.2']);
  });

  it.each<Fault>(['request lost', 'answer lost', 'late', 'asked twice'])(
    'is written although a write meets "%s"',
    async (fault) => {
      const etcd = new FakeEtcd(() => 0);
      const faults: Fault[] = [fault];
      await bindNamespace(
        etcd.port(async (name) => ({ fault: (name === 'transact' && faults.shift()) || 'pass' })),
        bindings,
      );
      etcd.deliverLate();
      expect(await bindingConflicts(etcd.port(), bindings)).toEqual([]);
      expect(etcd.peek(bindings.claim.key)?.createRevision).toBe(etcd.peek(bindings.claim.key)?.modRevision);
    },
  );

  it('rejects with ETCD_UNAVAILABLE when no write takes effect, and does not retry forever', async () => {
    const etcd = new FakeEtcd(() => 0);
    const deaf = etcd.port(async (name) => ({ fault: name === 'transact' ? 'request lost' : 'pass' }));
    await expect(bindNamespace(deaf, bindings)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
  });
});
