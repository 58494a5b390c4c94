import { describe, expect, it } from 'vitest';
import { decodeDescriptor, encodeCeiling, encodeDescriptor } from '../../src/codec/namespace-values.ts';
import { ticks } from '../../src/core/units.ts';
import { claimDatacenter } from '../../src/identity/bindings.ts';
import { openNamespace } from '../../src/identity/namespace.ts';
import { MemoryWitness } from '../support/memory-witness.ts';
import { FakeEtcd, type Fault } from './fake-etcd.ts';
import { bindings, descriptorOf, keys } from './stage.ts';

const newEtcd = () => new FakeEtcd(() => 0);
const open = async (
  etcd: FakeEtcd,
  changes: Parameters<typeof descriptorOf>[0] = {},
  faults: Fault[] = [],
  witness = new MemoryWitness(4),
) => {
  await claimDatacenter(etcd.port(), bindings); // before the faults, which affect later writes
  const port = etcd.port(async (name) => ({ fault: (name === 'transact' && faults.shift()) || 'pass' }));
  const wanted = descriptorOf(changes);
  return await openNamespace({ etcd: port, witness: witness.port(), keys, wanted, bindings, newNonce: () => 'init' });
};
const ceilings = (etcd: FakeEtcd) => etcd.range(`${keys.root}ceilings/`).kvs;

describe('opening a namespace', () => {
  it('creates a ceiling of 0 for each worker ID of the pool, then the descriptor', async () => {
    const etcd = newEtcd();
    const { descriptor, descriptorValue } = await open(etcd, { pool: { first: 3, last: 5 } });
    expect(ceilings(etcd).map(({ key, value }) => [key, value.toString()])).toEqual(
      [3, 4, 5].map((workerId) => [keys.ceiling(workerId), '0 init']),
    );
    const stored = etcd.peek(keys.descriptor);
    expect(stored?.value).toEqual(descriptorValue);
    expect(decodeDescriptor(descriptorValue)).toEqual(descriptor);
    expect(ceilings(etcd).every((kv) => stored && kv.modRevision < stored.modRevision)).toBe(true);
  });

  it('with the largest pool uses only transactions that etcd accepts', async () => {
    const etcd = newEtcd();
    await open(etcd, { pool: { first: 0, last: 1_023 } });
    expect(ceilings(etcd)).toHaveLength(1_024);
  });

  it('by a second worker takes the stored UUID and writes nothing', async () => {
    const etcd = newEtcd();
    const first = await open(etcd);
    const before = etcd.revision;
    const second = await open(etcd, { uuid: 'ffffffff-89ab-4cde-8f01-23456789abcd' });
    expect([second.descriptor.uuid, etcd.revision]).toEqual([first.descriptor.uuid, before]);
  });

  it.each<Fault>(['request lost', 'answer lost', 'late', 'asked twice'])(
    'continues from what it reads when each write meets "%s"',
    async (fault) => {
      const etcd = newEtcd();
      await open(etcd, {}, [fault, fault]);
      const written = ceilings(etcd).map((kv) => kv.modRevision - kv.createRevision);
      expect(written, 'each ceiling is created once').toEqual([0n, 0n, 0n]);
    },
  );

  it('resumes a crashed initialisation', async () => {
    const etcd = newEtcd();
    etcd.tamper(keys.ceiling(1), encodeCeiling({ ticks: ticks(0), nonce: 'crashed' }));
    await open(etcd);
    expect(ceilings(etcd).map(({ value }) => value.toString())).toEqual(['0 init', '0 crashed', '0 init']);
  });

  it('a late write of a slower initialisation changes nothing once the descriptor exists', async () => {
    const etcd = newEtcd();
    await open(etcd, { pool: { first: 0, last: 5 } }, ['late']);
    for (const { key } of ceilings(etcd)) etcd.tamper(key, undefined);
    etcd.deliverLate();
    expect(ceilings(etcd)).toEqual([]);
  });

  it('by two workers with different pools at once succeeds for one, and fails for the other with both values', async () => {
    const etcd = newEtcd();
    const outcomes = await Promise.allSettled([open(etcd), open(etcd, { pool: { first: 0, last: 9 } })]);
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    const refused = outcomes.find((outcome) => outcome.status === 'rejected');
    expect(refused?.reason).toMatchObject({ code: 'NAMESPACE_MISMATCH' });
    expect(refused?.reason.message).toMatch(/pool is 0\.\.(2, configured 0\.\.9|9, configured 0\.\.2)/);
  });

  it.each([
    ['layout', { layoutFingerprint: '0123456789abcdef' }],
    ['epoch_ms', { epochMs: 1 }],
    ['datacenter_id', { datacenterId: 5 }],
    ['pool', { pool: { first: 0, last: 3 } }],
  ] as const)('refuses a namespace whose %s differs, naming it', async (field, change) => {
    const etcd = newEtcd();
    await open(etcd);
    const before = etcd.revision;
    await expect(open(etcd, change)).rejects.toMatchObject({
      code: 'NAMESPACE_MISMATCH',
      message: expect.stringContaining(`${field} is `),
    });
    expect(etcd.revision).toBe(before);
  });

  it('a missing ceiling under a descriptor is damage, never a fresh start', async () => {
    const etcd = newEtcd();
    await open(etcd);
    etcd.tamper(keys.ceiling(2), undefined);
    await expect(open(etcd)).rejects.toMatchObject({
      code: 'NAMESPACE_DAMAGED',
      message: expect.stringContaining(keys.ceiling(2)),
    });
    expect(etcd.peek(keys.ceiling(2))).toBeUndefined();
  });

  it.each([
    ['ceiling', keys.ceiling(1)],
    ['descriptor', keys.descriptor],
  ])('an unreadable %s is damage, and named', async (_what, key) => {
    const etcd = newEtcd();
    await open(etcd);
    etcd.tamper(key, Buffer.from('?'));
    await expect(open(etcd)).rejects.toMatchObject({
      code: 'NAMESPACE_DAMAGED',
      message: expect.stringContaining(key),
    });
  });

  it('a ceiling in use without a descriptor is damage: its layout is unknown', async () => {
    const etcd = newEtcd();
    etcd.tamper(keys.ceiling(1), encodeCeiling({ ticks: ticks(7), nonce: 'used' }));
    await expect(open(etcd)).rejects.toMatchObject({ code: 'NAMESPACE_DAMAGED' });
    expect(etcd.peek(keys.descriptor)).toBeUndefined();
  });

  it('an etcd that accepts no write causes an error, not a loop', async () => {
    const etcd = newEtcd();
    await expect(open(etcd, {}, Array<Fault>(100).fill('request lost'))).rejects.toMatchObject({
      code: 'ETCD_UNAVAILABLE',
    });
    expect(etcd.peek(keys.descriptor)).toBeUndefined();
  });

  it('an etcd that refuses writes is not asked twice', async () => {
    const etcd = newEtcd();
    let writes = 0;
    const { transact } = etcd;
    etcd.transact = (...args) => {
      writes += 1;
      return transact.apply(etcd, args);
    };
    etcd.fill();
    await expect(open(etcd)).rejects.toMatchObject({
      code: 'ETCD_REFUSED',
      message: expect.stringContaining('database space exceeded'),
    });
    expect(writes).toBe(1);
    etcd.free();
    await open(etcd);
  });

  it('an equivalent descriptor in other bytes is kept as it is stored', async () => {
    const etcd = newEtcd();
    await open(etcd);
    const renamed = encodeDescriptor(descriptorOf({ layoutName: 'another name' }));
    etcd.tamper(keys.descriptor, renamed);
    expect((await open(etcd)).descriptorValue).toEqual(renamed);
  });
});
