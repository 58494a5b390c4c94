import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LedgerLog, LedgerRecord } from '../../src/pipeline/ports.ts';

/** A ledger topic under test: fresh, with at least two partitions. */
export interface LedgerSubject {
  readonly log: LedgerLog;
  /** What a reader that begins at `from` is given, up to the end that the partition has now. */
  read(partition: number, from: number): Promise<readonly LedgerRecord[]>;
  /** Adds one request to the request topic's partition. */
  ask(partition: number): Promise<void>;
  close(): void | Promise<void>;
}

/** More than a broker puts into one answer to a small fetch. */
const MANY = 500;
/** The largest entry that is ever written. */
const LARGE_BYTES = 64 * 1024;

/** What the pipeline relies on; the same suite runs against the simulated brokers and against real ones. */
export function ledgerContract(name: string, open: () => LedgerSubject | Promise<LedgerSubject>): void {
  describe(`the ledger contract, by ${name}`, () => {
    let subject: LedgerSubject;
    let log: LedgerLog;
    let names = 0;

    beforeAll(async () => {
      subject = await open();
      log = subject.log;
    });
    afterAll(() => subject.close());

    /** Entries that are told apart by their bytes; each has all byte values in it. */
    const drafts = (count: number) =>
      Array.from({ length: count }, () => {
        names += 1;
        const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
        return { key: Buffer.from(`\x01entry ${names}`), value: Buffer.concat([Buffer.from(`${names} `), bytes]) };
      });
    const bytesOf = (entries: readonly { key: Buffer | null; value: Buffer | null }[]) =>
      entries.map(({ key, value }) => [key?.toString('latin1') ?? null, value?.toString('latin1') ?? null]);

    it('an empty partition ends at 0, and nothing is read from it', async () => {
      expect(await log.endOffset(1)).toBe(0);
      expect(await subject.read(1, 0)).toEqual([]);
    });

    it('an append begins where the partition ended, and moves its end by its entries', async () => {
      const before = await log.endOffset(0);
      const { baseOffset } = await log.append(0, drafts(3));
      expect([baseOffset, await log.endOffset(0)]).toEqual([before, before + 3]);
    });

    it('entries are read as they were written, in order, at offsets without holes', async () => {
      const written = drafts(5);
      const { baseOffset } = await log.append(0, written);
      const read = await subject.read(0, baseOffset);
      expect(bytesOf(read)).toEqual(bytesOf(written));
      expect(read.map(({ offset }) => offset)).toEqual(written.map((_, i) => baseOffset + i));
    });

    it('all entries of an append have the time that its answer told', async () => {
      const { baseOffset, appendedAtMs } = await log.append(0, drafts(2));
      const read = await subject.read(0, baseOffset);
      expect(read.map((record) => record.appendedAtMs)).toEqual([appendedAtMs, appendedAtMs]);
    });

    it('an entry without a key comes back without one, and the largest comes back whole', async () => {
      const written = [{ key: null, value: Buffer.alloc(LARGE_BYTES, 'x') }];
      const { baseOffset } = await log.append(0, written);
      expect(bytesOf(await subject.read(0, baseOffset))).toEqual(bytesOf(written));
    });

    it('the same entries appended again are entries again, behind the first', async () => {
      const written = drafts(2);
      const [first, second] = [await log.append(0, written), await log.append(0, written)];
      expect(second.baseOffset).toBe(first.baseOffset + 2);
      expect(bytesOf(await subject.read(0, first.baseOffset))).toEqual(bytesOf([...written, ...written]));
    });

    it('appends sent at once stay whole, each at the offset that its answer told', async () => {
      const all = [drafts(3), drafts(1), drafts(4), drafts(2)];
      const answers = await Promise.all(all.map((written) => log.append(0, written)));
      const lowest = Math.min(...answers.map(({ baseOffset }) => baseOffset));
      const read = await subject.read(0, lowest);
      expect(read).toHaveLength(10);
      for (const [i, { baseOffset }] of answers.entries()) {
        const written = all[i] ?? [];
        const there = read.slice(baseOffset - lowest, baseOffset - lowest + written.length);
        expect(bytesOf(there)).toEqual(bytesOf(written));
      }
    });

    it('a reader may begin anywhere, and at the end is given nothing', async () => {
      const written = drafts(4);
      const { baseOffset } = await log.append(0, written);
      expect(bytesOf(await subject.read(0, baseOffset + 3))).toEqual(bytesOf(written.slice(3)));
      expect(await subject.read(0, baseOffset + 4)).toEqual([]);
      expect((await subject.read(0, 0)).map(({ offset }) => offset)).toEqual(
        Array.from({ length: baseOffset + 4 }, (_, offset) => offset),
      );
    });

    it('many entries are read in order, however they are cut', async () => {
      const written = drafts(MANY);
      const { baseOffset } = await log.append(0, written);
      expect(bytesOf(await subject.read(0, baseOffset))).toEqual(bytesOf(written));
    });

    it('partitions do not touch each other', async () => {
      const [before, written] = [await log.endOffset(0), drafts(1)];
      const { baseOffset } = await log.append(1, written);
      expect([baseOffset, await log.endOffset(0)]).toEqual([0, before]);
      expect(bytesOf(await subject.read(1, 0))).toEqual(bytesOf(written));
    });

    it('the end of the request topic counts its requests', async () => {
      expect([await log.requestEnd(0), await log.requestEnd(1)]).toEqual([0, 0]);
      await subject.ask(1);
      await subject.ask(1);
      expect([await log.requestEnd(0), await log.requestEnd(1)]).toEqual([0, 2]);
    });
  });
}
