import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeBatches } from '../../../src/kafka/records/decode.ts';
import type { AbortedTransaction } from '../../../src/kafka/records/transactions.ts';
import { batchOf, FLAG, markerOf, plain } from '../../support/record-bytes.ts';

const nextTurn = async (): Promise<void> => {};

/** The log of a partition with several producers, as a broker writes it. */
class Log {
  readonly batches: { readonly base: number; readonly bytes: Buffer }[] = [];
  readonly aborted: (AbortedTransaction & { readonly lastOffset: number })[] = [];
  readonly #open = new Map<bigint, number>();
  #end = 0;

  /** False for a producer that is only idempotent. */
  write(producerId: bigint, values: readonly string[], inTransaction = true): this {
    if (inTransaction && !this.#open.has(producerId)) this.#open.set(producerId, this.#end);
    const fields = { producerId, attributes: inTransaction ? FLAG.transactional : 0 };
    return this.#append(batchOf(values.map(plain), { ...fields, baseOffset: BigInt(this.#end) }), values.length);
  }

  end(producerId: bigint, kind: 'abort' | 'commit'): this {
    const firstOffset = this.#open.get(producerId);
    this.#open.delete(producerId);
    if (kind === 'abort' && firstOffset !== undefined) {
      this.aborted.push({ producerId, firstOffset, lastOffset: this.#end });
    }
    return this.#append(markerOf(kind, { producerId, baseOffset: BigInt(this.#end) }), 1);
  }

  #append(bytes: Buffer, records: number): this {
    this.batches.push({ base: this.#end, bytes });
    this.#end += records;
    return this;
  }

  /** What a broker returns for an offset: the batches from the one that holds it on, with the aborted transactions. */
  async read(from = 0, isolation: 'read_committed' | 'read_uncommitted' = 'read_committed') {
    const first = this.batches.findLastIndex(({ base }) => base <= from);
    const records = Buffer.concat(this.batches.slice(first).map(({ bytes }) => bytes));
    const aborted = this.aborted.filter(({ lastOffset }) => lastOffset >= from);
    const { records: found, next } = await decodeBatches({ records, aborted }, from, isolation, nextTurn);
    return { values: found.map(({ value }) => String(value)), offsets: found.map(({ offset }) => offset), next };
  }
}

const [A, B, IDEMPOTENT] = [1n, 2n, 3n];

describe('read committed', () => {
  it('skips the records of an aborted transaction, and continues after its marker', async () => {
    const log = new Log().write(A, ['a', 'b']).end(A, 'abort');
    expect(await log.read()).toEqual({ values: [], offsets: [], next: 3 });
  });

  it('returns the records of a committed transaction, but no marker', async () => {
    const log = new Log().write(A, ['a', 'b']).end(A, 'commit').write(IDEMPOTENT, ['c'], false);
    expect(await log.read()).toEqual({ values: ['a', 'b', 'c'], offsets: [0, 1, 3], next: 4 });
  });

  it('distinguishes interleaved transactions of several producers', async () => {
    const log = new Log()
      .write(A, ['a1'])
      .write(B, ['b1'])
      .write(IDEMPOTENT, ['i1'], false)
      .write(A, ['a2'])
      .end(A, 'abort')
      .write(B, ['b2'])
      .end(B, 'commit');
    expect((await log.read()).values).toEqual(['b1', 'i1', 'b2']);
  });

  it('distinguishes the transactions of one producer', async () => {
    const log = new Log();
    for (const [i, kind] of (['abort', 'commit', 'abort', 'abort', 'commit'] as const).entries()) {
      log.write(A, [`${kind} ${i}`]).end(A, kind);
    }
    expect((await log.read()).values).toEqual(['commit 1', 'commit 4']);
  });

  it('follows the order of offsets, in whatever order the broker lists the transactions', async () => {
    const log = new Log()
      .write(A, ['a'])
      .end(A, 'abort')
      .write(A, ['b'])
      .end(A, 'commit')
      .write(B, ['c'])
      .end(B, 'abort');
    log.aborted.reverse();
    expect((await log.read()).values).toEqual(['b']);
  });

  it('recognises a transaction that began before the requested offset', async () => {
    const log = new Log().write(A, ['a', 'b', 'c']).write(A, ['d']).end(A, 'abort').write(A, ['e']).end(A, 'commit');
    for (const from of [1, 3, 4, 5]) expect((await log.read(from)).values).toEqual(['e']);
  });

  it("doesn't count records of an idempotent producer to a transaction with the same producer ID", async () => {
    const log = new Log().write(A, ['a']).write(A, ['b'], false).end(A, 'abort');
    expect((await log.read()).values).toEqual(['b']);
  });

  it('creates no record for an unreadable batch of an aborted transaction', async () => {
    const log = new Log().write(A, ['a']);
    const fields = { producerId: A, attributes: FLAG.transactional | 7, baseOffset: 1n };
    log.batches.push({ base: 1, bytes: batchOf([plain('b')], fields) });
    const aborted = [{ producerId: A, firstOffset: 0 }];
    const records = Buffer.concat(log.batches.map(({ bytes }) => bytes));
    expect(await decodeBatches({ records, aborted }, 0, 'read_committed', nextTurn)).toEqual({ records: [], next: 2 });
  });

  it('returns exactly the records that are committed or need no commit, from any offset', async () => {
    const step = fc.oneof(
      fc.record({ producer: fc.constantFrom(A, B), kind: fc.constantFrom('write', 'abort', 'commit') }),
      fc.constant({ producer: IDEMPOTENT, kind: 'alone' }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), fc.nat(40), async (steps, from) => {
        const log = new Log();
        const valid: { offset: number; value: string }[] = [];
        const pending = new Map<bigint, { offset: number; value: string }[]>();
        let end = 0;
        for (const [i, { producer, kind }] of steps.entries()) {
          if (kind === 'abort' || kind === 'commit') {
            if (!pending.has(producer)) continue;
            if (kind === 'commit') valid.push(...(pending.get(producer) ?? []));
            pending.delete(producer);
            log.end(producer, kind);
            end += 1;
            continue;
          }
          const written = ['x', 'y'].slice(0, 1 + (i % 2)).map((one, j) => ({ offset: end + j, value: `${one}${i}` }));
          const values = written.map(({ value }) => value);
          log.write(producer, values, kind === 'write');
          if (kind === 'write') pending.set(producer, [...(pending.get(producer) ?? []), ...written]);
          else valid.push(...written);
          end += written.length;
        }
        for (const producer of pending.keys()) log.end(producer, 'abort');
        end += pending.size;
        if (from >= end) return;
        const expected = valid.filter(({ offset }) => offset >= from).sort((a, b) => a.offset - b.offset);
        expect(await log.read(from)).toEqual({
          values: expected.map(({ value }) => value),
          offsets: expected.map(({ offset }) => offset),
          next: end,
        });
      }),
      { numRuns: 500 },
    );
  });
});

describe('read uncommitted', () => {
  it('returns the records of aborted transactions too, but no marker', async () => {
    const log = new Log().write(A, ['a']).end(A, 'abort').write(B, ['b']);
    expect(await log.read(0, 'read_uncommitted')).toEqual({ values: ['a', 'b'], offsets: [0, 2], next: 3 });
  });
});
