import { afterAll, beforeAll, describe, expect, it, onTestFinished, type TestContext } from 'vitest';
import type { EtcdPort } from '../../src/identity/identity-ports.ts';

/** The shortest life of a lease within which a busy machine writes a key. */
const LIFE_SECONDS = 5;

/** A store under test, with an unused prefix, and a way to let a lease of `seconds` expire. */
export interface ContractSubject {
  readonly port: EtcdPort;
  readonly prefix: string;
  outlive(seconds: number): Promise<void>;
  close(): void | Promise<void>;
}

/** What identity relies on in etcd; the same suite runs against the fake and against a real etcd. */
export function etcdContract(name: string, open: () => ContractSubject | Promise<ContractSubject>): void {
  describe(`the store contract of ${name}`, () => {
    let subject: ContractSubject;
    let port: EtcdPort;
    let keys = 0;
    let leases = BigInt(Date.now()) * 1_000_000n;

    beforeAll(async () => {
      subject = await open();
      port = subject.port;
    });
    afterAll(() => subject.close());

    const newKey = () => `${subject.prefix}key/${++keys}`;
    const newLease = () => ++leases;
    const text = (value: string) => Buffer.from(value);
    const put = (key: string, value: string) => port.transact([], [{ put: key, value: text(value) }]);
    const read = async (key: string) => (await port.get([key])).get(key);

    it('a key that is absent is left out of a read', async () => {
      const [present, absent] = [newKey(), newKey()];
      await put(present, 'x');
      const found = await port.get([absent, present]);
      expect([...found.keys()]).toEqual([present]);
    });

    it('a range shows the keys below a prefix, in order, and no others', async () => {
      const root = `${newKey()}/`;
      for (const leaf of ['b', 'a', 'a/c']) await put(`${root}${leaf}`, leaf);
      await put(`${root.slice(0, -1)}0`, 'a neighbour');
      const { revision, kvs } = await port.range(root);
      expect(kvs.map(({ key }) => key)).toEqual([`${root}a`, `${root}a/c`, `${root}b`]);
      expect(kvs.every((kv) => kv.modRevision <= revision)).toBe(true);
    });

    it('a range shows a page of them, from a key on that need not exist', async () => {
      const root = `${newKey()}/`;
      for (const leaf of ['a', 'b', 'c', 'd']) await put(`${root}${leaf}`, leaf);
      await put(`${root.slice(0, -1)}0`, 'a neighbour');
      const leaves = async (from: string, limit: number) =>
        (await port.range(root, { from: `${root}${from}`, limit })).kvs.map(({ value }) => value.toString());
      expect(await leaves('', 2)).toEqual(['a', 'b']);
      expect(await leaves('b\0', 2)).toEqual(['c', 'd']);
      expect(await leaves('c', 9)).toEqual(['c', 'd']);
      expect(await leaves('d\0', 2)).toEqual([]);
    });

    it('values are bytes, kept as they are', async () => {
      const key = newKey();
      const value = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
      await port.transact([], [{ put: key, value }]);
      expect((await read(key))?.value.equals(value)).toBe(true);
    });

    it('a key keeps its create revision over puts and gets a new one after a deletion', async () => {
      const key = newKey();
      const first = await put(key, '1');
      const second = await put(key, '2');
      expect(second.revision).toBeGreaterThan(first.revision);
      expect(await read(key)).toMatchObject({
        createRevision: first.revision,
        modRevision: second.revision,
        leaseId: 0n,
      });
      await port.transact([], [{ delete: key }]);
      expect(await read(key)).toBeUndefined();
      const third = await put(key, '3');
      expect(await read(key)).toMatchObject({ createRevision: third.revision, modRevision: third.revision });
    });

    it('all puts of one transaction carry its revision', async () => {
      const [a, b] = [newKey(), newKey()];
      const { revision } = await port.transact(
        [],
        [
          { put: a, value: text('a') },
          { put: b, value: text('b') },
        ],
      );
      const found = await port.get([a, b]);
      expect([found.get(a)?.modRevision, found.get(b)?.modRevision]).toEqual([revision, revision]);
    });

    it('a transaction whose comparison fails changes nothing', async () => {
      const [guard, target] = [newKey(), newKey()];
      await put(guard, 'there');
      const { succeeded } = await port.transact(
        [{ key: guard, createRevision: 0n }],
        [{ put: target, value: text('x') }],
      );
      expect(succeeded).toBe(false);
      expect(await read(target)).toBeUndefined();
    });

    it('each kind of comparison distinguishes equal from different', async () => {
      const [key, absent] = [newKey(), newKey()];
      const { revision } = await put(key, 'v');
      const holds = async (compare: Parameters<EtcdPort['transact']>[0][number]) =>
        (await port.transact([compare], [])).succeeded;
      expect(await holds({ key, createRevision: revision })).toBe(true);
      expect(await holds({ key, createRevision: 0n })).toBe(false);
      expect(await holds({ key: absent, createRevision: 0n })).toBe(true);
      expect(await holds({ key, modRevision: revision })).toBe(true);
      expect(await holds({ key, modRevision: revision - 1n })).toBe(false);
      expect(await holds({ key, modRevision: revision + 1n })).toBe(false);
      expect(await holds({ key, value: text('v') })).toBe(true);
      expect(await holds({ key, value: text('w') })).toBe(false);
      expect(await holds({ key: absent, value: text('v') })).toBe(false);
    });

    it('of two swaps that compare one mod revision exactly one succeeds', async () => {
      const key = newKey();
      const { revision } = await put(key, 'old');
      const swap = (value: string) =>
        port.transact([{ key, modRevision: revision }], [{ put: key, value: text(value) }]);
      const answers = await Promise.all([swap('a'), swap('b')]);
      expect(answers.filter(({ succeeded }) => succeeded)).toHaveLength(1);
    });

    it('a repeated grant is harmless, and a key under a lease names it', async () => {
      const [key, lease] = [newKey(), newLease()];
      await port.grantLease(lease, 60);
      await port.grantLease(lease, 60);
      await port.transact([], [{ put: key, value: text('owner'), leaseId: lease }]);
      expect((await read(key))?.leaseId).toBe(lease);
      expect(await port.keepAlive(lease)).toEqual({ ttlSeconds: 60 });
      await port.revokeLease(lease);
    });

    it('a put under a lease that does not exist is refused, with all of its transaction', async () => {
      const [under, beside] = [newKey(), newKey()];
      const operations = [
        { put: beside, value: text('x') },
        { put: under, value: text('x'), leaseId: newLease() },
      ];
      await expect(port.transact([], operations)).rejects.toMatchObject({ code: 'ETCD_REFUSED' });
      expect((await port.get([under, beside])).size).toBe(0);
    });

    it('a revoked lease takes its keys along, and can be revoked again', async () => {
      const [key, lease] = [newKey(), newLease()];
      await port.grantLease(lease, 60);
      await port.transact([], [{ put: key, value: text('owner'), leaseId: lease }]);
      await port.revokeLease(lease);
      await port.revokeLease(lease);
      expect(await read(key)).toBeUndefined();
      expect(await port.keepAlive(lease)).toEqual({ ttlSeconds: 0 });
    });

    it('a lease that is not kept alive expires, with its keys', async () => {
      const [key, lease] = [newKey(), newLease()];
      await port.grantLease(lease, LIFE_SECONDS);
      await port.transact([], [{ put: key, value: text('owner'), leaseId: lease }]);
      await subject.outlive(LIFE_SECONDS);
      expect(await read(key)).toBeUndefined();
      expect(await port.keepAlive(lease)).toEqual({ ttlSeconds: 0 });
    });
  });
}

/** A store that can reach its quota, and get space again. */
export interface LimitedSubject extends Omit<ContractSubject, 'outlive'> {
  fill(): Promise<void>;
  free(): Promise<void>;
}

/** What identity relies on in an etcd that has no space left. */
export function fullEtcdContract(name: string, open: (context: TestContext) => Promise<LimitedSubject>): void {
  describe(`${name} at its quota`, () => {
    it('refuses puts and grants, serves reads, keep-alives, deletions and revocations, and takes puts again once it has space', async (context) => {
      const subject = await open(context);
      onTestFinished(() => subject.close());
      const { port, prefix } = subject;
      const [lease, later] = [4_711n, 4_712n];
      const [key, other, owner] = [`${prefix}key`, `${prefix}other`, `${prefix}owner`];
      const put = { put: key, value: Buffer.from('x') };
      await port.grantLease(lease, 60);
      await port.transact([], [put, { ...put, put: other }, { ...put, put: owner, leaseId: lease }]);
      const { revision } = await port.range(prefix);
      await subject.fill();
      const refused = { code: 'ETCD_REFUSED', message: expect.stringContaining('database space exceeded') };
      await expect(port.transact([], [put])).rejects.toMatchObject(refused);
      await expect(port.transact([{ key, createRevision: 0n }], [put])).rejects.toMatchObject(refused);
      await expect(port.grantLease(later, 60)).rejects.toMatchObject(refused);
      expect(await port.keepAlive(later)).toEqual({ ttlSeconds: 0 });
      expect(await port.keepAlive(lease)).toEqual({ ttlSeconds: 60 });
      expect((await port.transact([{ key, createRevision: 0n }], [])).succeeded).toBe(false);
      expect((await port.get([key])).get(key)?.modRevision).toBe(revision);
      await port.transact([], [{ delete: other }]);
      await port.revokeLease(lease);
      expect((await port.range(prefix)).kvs.map((kv) => kv.key)).toEqual([key]);
      await subject.free();
      await port.grantLease(later, 60);
      await port.transact([], [{ ...put, leaseId: later }]);
      expect((await port.get([key])).get(key)?.leaseId).toBe(later);
    });
  });
}
