import { describe, expect, it } from 'vitest';
import { decodePending, encodePending } from '../../src/codec/head-values.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import type { EtcdPort } from '../../src/identity/identity-ports.ts';
import { joined } from '../../src/ledger/heads.ts';
import { MAX_DRAFT } from '../../src/ledger/sequence-rule.ts';
import { FakeEtcd, type Fault } from '../identity/fake-etcd.ts';
import { drafted, headsContract, headsOver, largest, pendingNumbers, STATEMENT } from './heads-contract.ts';

const PREFIX = '/idalloc/test';
const KEYS = ledgerHeadKeys(PREFIX, 3, 'id.ledger', 0);
const CHANGE = drafted([pendingNumbers('a', 1)], { a: { ...STATEMENT, next: 2 } });

headsContract('the fake etcd', () => {
  return { port: new FakeEtcd(() => 0).port(), prefix: PREFIX, close: () => {} };
});

/** Heads over an etcd whose next write meets a fault. */
function faulty() {
  const etcd = new FakeEtcd(() => 0);
  let next: Fault = 'pass';
  const port = etcd.port(async (name) => {
    const fault = name === 'transact' ? next : 'pass';
    if (name === 'transact') next = 'pass';
    return { fault };
  });
  const fail = (fault: Fault) => {
    next = fault;
  };
  return { etcd, port, fail, heads: headsOver(port, PREFIX) };
}

describe('a swap without an answer', () => {
  it.each(['request lost', 'answer lost', 'late'] as const)(
    'rejects, and the head shows what became of it: %s',
    async (fault) => {
      const { fail, heads } = faulty();
      const head = await heads.read(0, ['a']);
      fail(fault);
      await expect(heads.swap(0, head, CHANGE)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
      const after = await heads.read(0, ['a']);
      expect(after.pending).toEqual(fault === 'answer lost' ? CHANGE.pending : []);
    },
  );

  it('that arrives late is in the head, unless another swap came before it', async () => {
    const { etcd, fail, heads } = faulty();
    const head = await heads.read(0, ['a']);
    for (const isFenced of [false, true]) {
      const before = await heads.read(0, ['a']);
      fail('late');
      await expect(heads.swap(0, before, CHANGE)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
      const fence = isFenced ? await heads.swap(0, before, drafted([])) : undefined;
      etcd.deliverLate();
      const after = await heads.read(0, ['a']);
      expect(after.pending).toEqual(isFenced ? [] : CHANGE.pending);
      expect(after.revision > head.revision).toBe(true);
      if (isFenced) expect(after).toEqual(fence);
    }
  });

  it('that was sent twice is refused, and the head shows that it was done', async () => {
    const { fail, heads } = faulty();
    const head = await heads.read(0, ['a']);
    fail('asked twice');
    expect(await heads.swap(0, head, CHANGE)).toBeUndefined();
    expect((await heads.read(0, ['a'])).pending).toEqual(CHANGE.pending);
  });

  it('at the quota of etcd is refused, and the head shows whether it was done', async () => {
    for (const appliesOne of [false, true]) {
      const { etcd, heads } = faulty();
      const head = await heads.read(0, ['a']);
      etcd.fill(appliesOne);
      await expect(heads.swap(0, head, CHANGE)).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
      expect((await heads.read(0, ['a'])).pending).toEqual(appliesOne ? CHANGE.pending : []);
    }
  });
});

describe('a look', () => {
  /** A port before whose n-th read of keys another worker swaps. */
  function crossed(etcd: FakeEtcd, swapsAt: (read: number) => boolean): Pick<EtcdPort, 'get' | 'range' | 'transact'> {
    const port = etcd.port();
    const other = headsOver(port, PREFIX);
    let reads = 0;
    return {
      transact: port.transact,
      range: port.range,
      async get(keys) {
        reads += 1;
        if (swapsAt(reads)) {
          const change = drafted([pendingNumbers(`s${reads}`, reads)], {
            [`s${reads}`]: { ...STATEMENT, next: reads },
          });
          await other.swap(0, await other.read(0, []), change);
        }
        return port.get(keys);
      },
    };
  }

  it('shows heads and pending of one revision, whatever is swapped in between its reads', async () => {
    const names = Array.from({ length: 300 }, (_, i) => `s${i}`);
    for (const at of [1, 2, 3]) {
      const etcd = new FakeEtcd(() => 0);
      await headsOver(etcd.port(), PREFIX).swap(0, await headsOver(etcd.port(), PREFIX).read(0, []), CHANGE);
      const head = await headsOver(
        crossed(etcd, (read) => read === at),
        PREFIX,
      ).read(0, names);
      expect(head).toEqual(await headsOver(etcd.port(), PREFIX).read(0, names));
      expect(head.sequences.get(`s${at}`)?.next).toBe(at);
    }
  });

  it('at a whole partition is begun again when something is swapped in meanwhile', async () => {
    const etcd = new FakeEtcd(() => 0);
    const heads = headsOver(etcd.port(), PREFIX);
    await heads.swap(0, await heads.read(0, []), CHANGE);
    const head = await headsOver(
      crossed(etcd, (read) => read === 2),
      PREFIX,
    ).readAll(0);
    expect(head).toEqual(await heads.readAll(0));
    expect(head.sequences.get('s2')?.next).toBe(2);
    const never = headsOver(
      crossed(etcd, (read) => read % 2 === 0),
      PREFIX,
    );
    await expect(never.readAll(0)).rejects.toMatchObject({ code: 'ETCD_UNAVAILABLE' });
  });

  it('is given up when another worker swaps before each read', async () => {
    const heads = headsOver(
      crossed(new FakeEtcd(() => 0), () => true),
      PREFIX,
    );
    const refused = {
      code: 'ETCD_UNAVAILABLE',
      message: expect.stringContaining('partition 0 changed during each of 10'),
    };
    await expect(heads.read(0, [])).rejects.toMatchObject(refused);
  });

  it('is joined with what was known at the same revision, and replaces what was known at another', async () => {
    const heads = headsOver(new FakeEtcd(() => 0).port(), PREFIX);
    const known = await heads.swap(0, await heads.read(0, ['a']), CHANGE);
    const more = await heads.read(0, ['b']);
    expect([...joined(known, more).names].sort()).toEqual(['a', 'b']);
    expect(joined(known, more).sequences.get('a')?.next).toBe(2);
    await heads.swap(0, more, drafted([]));
    const other = await heads.read(0, ['b']);
    expect(joined(known, other)).toEqual(other);
    expect(joined(undefined, other)).toEqual(other);
  });
});

describe('what is stored', () => {
  it.each([
    ['pending', KEYS.pending, 'not JSON'],
    ['pending', KEYS.pending, '{"namespace":"x","through":-1,"records":[]}'],
    ['the head of a sequence', KEYS.sequence('a'), '{"next":1}'],
  ])('that is damaged names the key: %s', async (_, key, text) => {
    const { etcd, heads } = faulty();
    await heads.swap(0, await heads.read(0, ['a']), CHANGE);
    etcd.tamper(key, Buffer.from(text));
    const refused = { code: 'NAMESPACE_DAMAGED', message: expect.stringContaining(key) };
    await expect(heads.read(0, ['a'])).rejects.toMatchObject(refused);
  });

  it('takes about 250 bytes a record of usual size, and 1,500 at the most', () => {
    const usual = Array.from({ length: MAX_DRAFT }, (_, i) => pendingNumbers('invoices', 4_711 + i, `0d7c1a9e-${i}`));
    const bytesOf = (records: typeof usual) =>
      encodePending({ namespace: CHANGE.namespace, through: 7, records }).length;
    expect(bytesOf(usual) / MAX_DRAFT).toBeLessThan(250);
    const { pending, ...rest } = largest(MAX_DRAFT, MAX_DRAFT);
    const value = encodePending({ ...rest, records: pending });
    expect(value.length / MAX_DRAFT).toBeLessThan(1_500);
    expect(decodePending(value, 'k').records).toEqual(pending);
  });
});
