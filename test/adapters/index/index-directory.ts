import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach } from 'vitest';
import type { HashSeed } from '../../../src/adapters/index/items.ts';
import { type IndexBinding, SqliteIndex } from '../../../src/adapters/index/sqlite-index.ts';
import { type SyncFile, syncData } from '../../../src/adapters/index/store.ts';
import { encodeLedgerEntry } from '../../../src/codec/ledger-entry.ts';
import { encodeLedgerKey } from '../../../src/codec/ledger-key.ts';
import type { IdallocError } from '../../../src/errors.ts';
import type { LedgerIndex, LedgerRecord } from '../../../src/ledger/ledger-ports.ts';

export const BINDING: IndexBinding = { clusterId: 'c1', ledgerTopic: 'id.ledger', partitions: 2 };

/** The size of a run in these tests, so that open, sealed, merged and expired runs all occur. */
export const RUN = 4;

/** Decides which keys share a hash: fixed, so that a test repeats. No two keys of these tests share one under it. */
export const SEED: HashSeed = { low: 1, high: 2 };

/** A directory for the indexes of one test, and the events that they reported. */
export class IndexDirectory {
  readonly path = mkdtempSync(join(tmpdir(), 'idalloc-index-'));
  readonly file = join(this.path, 'ledger-index.sqlite');
  readonly wiped: string[] = [];
  readonly unusable: IdallocError[] = [];
  readonly #opened = new Set<SqliteIndex>();

  /** Syncs the files of indexes that are opened from now on. */
  syncFile: SyncFile = syncData;

  /** An index with nothing loaded. */
  openBare(binding = BINDING, runEntries = RUN, seed = SEED, path = this.path): SqliteIndex {
    const events = {
      onWiped: (cause: string) => this.wiped.push(cause),
      onUnusable: (error: IdallocError) => this.unusable.push(error),
    };
    const { syncFile } = this;
    const index = new SqliteIndex(path, binding, events, { runEntries, newSeed: () => seed, syncFile });
    this.#opened.add(index);
    return index;
  }

  /** The index of a machine of this name, with nothing loaded. */
  openOf(machine: string, binding = BINDING, runEntries = RUN): SqliteIndex {
    return this.openBare(binding, runEntries, SEED, join(this.path, machine));
  }

  /** An index with all partitions loaded, even if the store must be replaced for that. */
  open(binding = BINDING, runEntries = RUN, seed = SEED): SqliteIndex {
    const index = this.openBare(binding, runEntries, seed);
    for (let partition = 0; partition < binding.partitions; partition += 1) {
      try {
        toTheEnd(() => index.load(partition));
      } catch (error) {
        if ((error as IdallocError).code !== 'INDEX_RESTORING') throw error;
        toTheEnd(() => index.load(partition));
      }
    }
    return index;
  }

  close(index: SqliteIndex): void {
    this.#opened.delete(index);
    index[Symbol.dispose]();
  }

  closeAll(): void {
    for (const index of this.#opened) this.close(index);
  }

  /** Changes or queries the file while no index is open. */
  query(sql: string): Record<string, unknown>[] {
    const db = new DatabaseSync(this.file);
    try {
      return db.prepare(sql).all();
    } finally {
      db.close();
    }
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

/** All kinds of indexes that these tests apply to. */
export function allIndexes(holder: { readonly directory: IndexDirectory }): [string, () => LedgerIndex][] {
  return [['on disk', () => holder.directory.open()]];
}

/** Does work that is done in steps to its end; returns the number of steps. */
export function toTheEnd(step: () => boolean): number {
  for (let steps = 1; steps < 10_000; steps += 1) if (!step()) return steps;
  throw new Error('the work was not finished after 10,000 steps');
}

export const at = (offset: number, drafted: Pick<LedgerRecord, 'key' | 'value' | 'headers'>): LedgerRecord => ({
  offset,
  ...drafted,
  appendedAtMs: 1_700_000_000_000 + offset,
});
export const keyOf = (id: string) => encodeLedgerKey(Buffer.from(id));
export const marker = (through: number, end = 0) => ({
  key: null,
  value: encodeLedgerEntry({ kind: 'marker', end, through }),
});
