import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { type IndexBinding, SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import { encodeLedgerEntry, encodeLedgerKey } from '../../src/codec/ledger-entry.ts';
import type { IdallocError } from '../../src/errors.ts';
import type { LedgerIndex, LedgerRecord } from '../../src/pipeline/ports.ts';
import { MemoryIndex } from './memory-index.ts';

export const BINDING: IndexBinding = { clusterId: 'c1', ledgerTopic: 'id.ledger', partitions: 2 };

/** Entries that make a run on disk here, so that what is recent, sealed and expired all occurs. */
export const RUN = 4;

/** A directory for the indexes of one test, and what they told. */
export class IndexDirectory {
  readonly path = mkdtempSync(join(tmpdir(), 'idalloc-index-'));
  readonly file = join(this.path, 'ledger-index.sqlite');
  readonly wiped: string[] = [];
  readonly unusable: IdallocError[] = [];
  readonly #opened = new Set<SqliteIndex>();

  open(binding = BINDING, runEntries = RUN): SqliteIndex {
    const events = {
      onWiped: (cause: string) => this.wiped.push(cause),
      onUnusable: (error: IdallocError) => this.unusable.push(error),
    };
    const index = new SqliteIndex(this.path, binding, events, runEntries);
    this.#opened.add(index);
    return index;
  }

  close(index: SqliteIndex): void {
    this.#opened.delete(index);
    index[Symbol.dispose]();
  }

  closeAll(): void {
    for (const index of this.#opened) this.close(index);
  }

  remove(): void {
    this.closeAll();
    rmSync(this.path, { recursive: true, force: true });
  }
}

/** A fresh directory for each test of a file. */
export function perTest(): { readonly directory: IndexDirectory } {
  const holder = {} as { directory: IndexDirectory };
  beforeEach(() => {
    holder.directory = new IndexDirectory();
  });
  afterEach(() => holder.directory.remove());
  return holder;
}

/** The index as it ships and the one that other tests use, for claims that hold for both. */
export function bothIndexes(holder: { readonly directory: IndexDirectory }): [string, () => LedgerIndex][] {
  return [
    ['on disk', () => holder.directory.open()],
    ['in memory', () => new MemoryIndex()],
  ];
}

export const at = (offset: number, drafted: { key: Buffer | null; value: Buffer | null }): LedgerRecord => ({
  offset,
  ...drafted,
  appendedAtMs: 1_700_000_000_000 + offset,
});
export const keyOf = (id: string) => encodeLedgerKey(Buffer.from(id));
export const marker = (through: number) => ({
  key: null,
  value: encodeLedgerEntry({ kind: 'marker', end: 0, through }),
});
