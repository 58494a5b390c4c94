import { digestEntry } from '../../src/codec/ledger-digest.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { IdallocError } from '../../src/errors.ts';
import type { IndexedEntry, LedgerIndex, LedgerRecord } from '../../src/pipeline/ports.ts';

interface Partition {
  readonly entries: Map<string, IndexedEntry>;
  end: number;
  through: number;
  last: { readonly offset: number; readonly digest: Buffer } | undefined;
}

/** The ledger index without a disk; held to the same claims as the real one. */
export class MemoryIndex implements LedgerIndex {
  readonly #partitions = new Map<number, Partition>();

  end(partition: number): number {
    return this.#of(partition).end;
  }

  through(partition: number): number {
    return this.#of(partition).through;
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#of(partition).last;
  }

  lookUp(partition: number, key: Buffer): IndexedEntry | undefined {
    return this.#of(partition).entries.get(key.toString('latin1'));
  }

  apply(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number> {
    const at = this.#of(partition);
    const firsts = new Set<number>();
    const fresh = records.filter(({ offset }) => offset >= at.end).map((record) => ({ record, ...readEntry(record) }));
    for (const { record, name, through } of fresh) {
      const { offset, value, appendedAtMs } = record;
      if (name !== undefined && value !== null && !at.entries.has(name)) {
        at.entries.set(name, { offset, value, appendedAtMs });
        firsts.add(offset);
      }
      at.through = Math.max(at.through, through);
      at.end = offset + 1;
      at.last = { offset, digest: digestEntry(record) };
    }
    return firsts;
  }

  wipe(partition: number, from: number): void {
    this.#partitions.set(partition, { entries: new Map(), end: from, through: -1, last: undefined });
  }

  #of(partition: number): Partition {
    const known = this.#partitions.get(partition);
    if (known !== undefined) return known;
    this.wipe(partition, 0);
    return this.#of(partition);
  }
}

function readEntry({ key, value, offset }: LedgerRecord): { name?: string; through: number } {
  const entry = value === null ? undefined : decodeLedgerEntry(value);
  if (entry?.kind === 'marker') return { through: entry.through };
  if (entry === undefined || key === null) {
    throw new IdallocError('LEDGER_UNREADABLE', `the entry at offset ${offset} is none of ours`);
  }
  return { name: key.toString('latin1'), through: entry.requestOffset };
}
