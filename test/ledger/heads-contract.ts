import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Pending, PendingNumbers } from '../../src/codec/head-values.ts';
import { encodeNumbersKey } from '../../src/codec/ledger-key.ts';
import type { Statement } from '../../src/core/sequence-row.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import type { EtcdPort } from '../../src/identity/identity-ports.ts';
import { EtcdHeads, type Head, type HeadChange } from '../../src/ledger/heads.ts';
import { MAX_DRAFT, MAX_PENDING } from '../../src/ledger/sequence-rule.ts';

export const NAMESPACE = '0c9fbb4e-9a31-4b7f-8e55-2a6c5dfb1f10';

export const STATEMENT: Statement = { next: 1, step: 1, max: 1_000, format: '', closed: false, edition: 1 };

/** Numbers that are pending, one for a key. */
export function pendingNumbers(sequence: string, first: number, key = `k${first}`, count = 1): PendingNumbers {
  return {
    kind: 'numbers',
    sequence,
    key: encodeNumbersKey(sequence, Buffer.from(key)),
    edition: 1,
    entry: {
      kind: 'numbers',
      requestHash: Buffer.alloc(16, 1),
      replyTopic: 'id.replies.a',
      requestOffset: first,
      framing: 'SINGLE_OBJECT',
      schemaFingerprint: Buffer.alloc(8, 2),
      first,
      count,
      step: 1,
      format: '',
    },
  };
}

export function pendingOrder(sequence: string, first: number, statement: Statement): Pending {
  return { kind: 'order', sequence, first, statement };
}

/** A change by which these records become pending. */
export function drafted(pending: readonly Pending[], sequences: Readonly<Record<string, Statement>> = {}): HeadChange {
  return { namespace: NAMESPACE, through: 7, pending, sequences: new Map(Object.entries(sequences)) };
}

/** The largest records that there can be: the longest names, request IDs, topics and formats. */
export function largest(count: number, sequences: number): HeadChange {
  const nameOf = (i: number) => String(i % sequences).padStart(64, 'n');
  const format = `{number:16}${'€'.repeat(53)}`;
  const pending = Array.from({ length: count }, (_, i): PendingNumbers => {
    const made = pendingNumbers(nameOf(i), Number.MAX_SAFE_INTEGER - 1, String(i).padStart(256, 'k'));
    const entry = { ...made.entry, replyTopic: 't'.repeat(249), requestOffset: Number.MAX_SAFE_INTEGER, format };
    return { ...made, edition: 1_000_000, entry };
  });
  const max = Number.MAX_SAFE_INTEGER - 1;
  const statement = { next: max, step: 1, max, format, closed: false, edition: 1_000_000 };
  const heads = Array.from({ length: sequences }, (_, i) => [nameOf(i), statement] as const);
  return drafted(pending, Object.fromEntries(heads));
}

/** A store under test, with an unused prefix. */
interface HeadsSubject {
  readonly port: EtcdPort;
  readonly prefix: string;
  close(): void;
}

export function headsOver(etcd: Pick<EtcdPort, 'get' | 'range' | 'transact'>, prefix: string): EtcdHeads {
  return new EtcdHeads({ etcd, keysOf: (partition) => ledgerHeadKeys(prefix, 3, 'id.ledger', partition) });
}

/** What numbers rely on; the same suite runs against the fake and against a real etcd. */
export function headsContract(name: string, open: () => HeadsSubject): void {
  describe(`the heads of sequences in ${name}`, () => {
    let subject: HeadsSubject;
    let heads: EtcdHeads;
    let partition = 0;

    beforeAll(() => {
      subject = open();
      heads = headsOver(subject.port, subject.prefix);
    });
    afterAll(() => subject.close());

    const done = async (head: Head, change: HeadChange): Promise<Head> => {
      const next = await heads.swap(partition, head, change);
      if (next === undefined) throw new Error('the swap was refused');
      return next;
    };

    it('a partition that was never swapped has revision 0, and knows nothing', async () => {
      partition += 1;
      const head = await heads.read(partition, ['a']);
      expect(head).toEqual({
        revision: 0n,
        namespace: '',
        through: -1,
        pending: [],
        sequences: new Map(),
        names: new Set(['a']),
      });
    });

    it('a swap gives the head that is read back, with what was pending byte for byte', async () => {
      partition += 1;
      const records = [pendingNumbers('a', 1), pendingOrder('a/b', -1, { ...STATEMENT, closed: true })];
      const heads1 = { a: { ...STATEMENT, next: 2 }, 'a/b': { ...STATEMENT, closed: true } };
      const next = await done(await heads.read(partition, ['a', 'a/b']), drafted(records, heads1));
      expect(next).toMatchObject({ namespace: NAMESPACE, through: 7, pending: records });
      expect(next.sequences).toEqual(new Map(Object.entries(heads1)));
      expect(await heads.read(partition, ['a', 'a/b'])).toEqual(next);
    });

    it('the heads of what is pending are read as well, without being asked for', async () => {
      partition += 1;
      await done(await heads.read(partition, []), drafted([pendingNumbers('a', 1)], { a: STATEMENT, b: STATEMENT }));
      const head = await heads.read(partition, []);
      expect([...head.names]).toEqual(['a']);
      expect(head.sequences).toEqual(new Map([['a', STATEMENT]]));
    });

    it('of two swaps of one head exactly one succeeds, also of the first ones, and the other changes nothing', async () => {
      partition += 1;
      let head = await heads.read(partition, ['a']);
      for (const first of [1, 2]) {
        const made = ['x', 'y'].map((key) => {
          return drafted([pendingNumbers('a', first, key)], { a: { ...STATEMENT, next: first + 1 } });
        });
        const swaps = await Promise.all(made.map((change) => heads.swap(partition, head, change)));
        const won = swaps.findIndex((next) => next !== undefined);
        expect(swaps.filter((next) => next !== undefined)).toHaveLength(1);
        head = await heads.read(partition, ['a']);
        expect(head).toEqual(swaps[won]);
        expect(head.pending).toEqual(made[won]?.pending);
      }
    });

    it('a swap that writes no head leaves them as they are, and makes older ones fail', async () => {
      partition += 1;
      const before = await done(await heads.read(partition, ['a']), drafted([], { a: STATEMENT }));
      const next = await done(before, drafted([]));
      expect(next.sequences).toEqual(before.sequences);
      expect(await heads.swap(partition, before, drafted([pendingNumbers('a', 1)], { a: STATEMENT }))).toBeUndefined();
      expect(await heads.read(partition, ['a'])).toEqual(next);
    });

    it('partitions have nothing in common', async () => {
      partition += 1;
      await done(await heads.read(partition, []), drafted([pendingNumbers('a', 1)], { a: STATEMENT }));
      expect((await heads.read(partition + 1_000, ['a'])).revision).toBe(0n);
    });

    it('more heads than fit into one read are read together', async () => {
      partition += 1;
      const names = Array.from({ length: 300 }, (_, i) => `s${i}`);
      let head = await heads.read(partition, names);
      for (const name of ['s0', 's126', 's127', 's299']) head = await done(head, drafted([], { [name]: STATEMENT }));
      const again = await heads.read(partition, names);
      expect([again.revision, again.names.size]).toEqual([head.revision, 300]);
      expect([...again.sequences.keys()]).toEqual(['s0', 's126', 's127', 's299']);
    });

    it('all heads of a partition are read in pages, with what is pending', async () => {
      partition += 1;
      expect(await heads.readAll(partition)).toEqual({ ...(await heads.read(partition, [])), names: new Set() });
      const names = Array.from({ length: 1_100 }, (_, i) => `s${String(i).padStart(4, '0')}`);
      let head = await heads.read(partition, []);
      for (let from = 0; from < names.length; from += MAX_DRAFT) {
        const some = names
          .slice(from, from + MAX_DRAFT)
          .map((name, i) => [name, { ...STATEMENT, max: 9_999, next: from + i + 1 }]);
        head = await done(head, drafted([pendingNumbers('s0001', 1)], Object.fromEntries(some)));
      }
      const all = await heads.readAll(partition);
      expect([all.revision, all.pending]).toEqual([head.revision, head.pending]);
      expect([...all.names]).toEqual(names);
      expect([...all.sequences.values()].map(({ next }) => next)).toEqual(names.map((_, i) => i + 1));
    });

    it('the largest draft fits into one swap, with as much pending of stopped sequences as is ever kept', async () => {
      partition += 1;
      const { sequences } = largest(MAX_DRAFT, MAX_DRAFT);
      const { pending } = largest(MAX_PENDING, MAX_PENDING);
      const next = await done(await heads.read(partition, []), { ...drafted(pending), sequences });
      const head = await heads.read(partition, []);
      expect(head.pending).toEqual(pending);
      expect([head.revision, head.sequences.size, head.names.size]).toEqual([next.revision, MAX_DRAFT, MAX_PENDING]);
    });
  });
}
