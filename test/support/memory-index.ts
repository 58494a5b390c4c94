import { digestEntry } from '../../src/codec/ledger-digest.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { IdallocError } from '../../src/errors.ts';
import { FORGOTTEN, type IndexedEntry, type LedgerIndex, type LedgerRecord } from '../../src/pipeline/ports.ts';

interface Partition {
  readonly entries: Map<string, IndexedEntry | typeof FORGOTTEN>;
  readonly origin: number;
  horizon: number | undefined;
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

  horizon(partition: number): number | undefined {
    return this.#of(partition).horizon;
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#of(partition).last;
  }

  lookUp(partition: number, key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    return this.#of(partition).entries.get(key.toString('latin1'));
  }

  apply(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number> {
    const at = this.#of(partition);
    const firsts = new Set<number>();
    const fresh = records.filter(({ offset }) => offset >= at.end).map((record) => ({ record, ...readEntry(record) }));
    for (const { record, name, end, through, asOf } of fresh) {
      const { offset, value, appendedAtMs } = record;
      if (name !== undefined && value !== null && !at.entries.has(name)) {
        const known = end >= at.origin;
        at.entries.set(name, known ? { offset, value, appendedAtMs } : FORGOTTEN);
        if (known) firsts.add(offset);
      }
      if (offset === end) at.horizon ??= asOf;
      at.through = Math.max(at.through, through);
      at.end = offset + 1;
      at.last = { offset, digest: digestEntry(record) };
    }
    return firsts;
  }

  wipe(partition: number, from: number): void {
    const horizon = from === 0 ? -1 : undefined;
    this.#partitions.set(partition, {
      entries: new Map(),
      origin: from,
      horizon,
      end: from,
      through: -1,
      last: undefined,
    });
  }

  #of(partition: number): Partition {
    const known = this.#partitions.get(partition);
    if (known !== undefined) return known;
    this.wipe(partition, 0);
    return this.#of(partition);
  }
}

interface Read {
  readonly name?: string;
  readonly end: number;
  /** The request offsets that it tells of: its own, and those of its writer's index. */
  readonly through: number;
  readonly asOf: number;
}

function readEntry({ key, value, offset }: LedgerRecord): Read {
  const entry = value === null ? undefined : decodeLedgerEntry(value);
  if (entry === undefined || (entry.kind === 'batch' && key === null)) {
    throw new IdallocError('LEDGER_UNREADABLE', `the entry at offset ${offset} is none of ours`);
  }
  const { end, through: asOf } = entry;
  if (entry.kind === 'marker') return { end, asOf, through: asOf };
  return { name: key?.toString('latin1') ?? '', end, asOf, through: Math.max(asOf, entry.requestOffset) };
}
