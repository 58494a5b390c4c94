import type { IndexEvents } from '../../src/adapters/index/sqlite-index.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Applied, FORGOTTEN, IndexedEntry, LedgerIndex, LedgerRecord } from '../../src/pipeline/ports.ts';
import { MemoryIndex } from '../support/memory-index.ts';

/** An index in memory whose store fails when it is told to, and is replaced by an empty one then, as SqliteIndex does. */
export class FragileIndex {
  #index = new MemoryIndex();
  #opened: Opened | undefined;

  open(events: IndexEvents): LedgerIndex & Disposable {
    this.#opened = new Opened(this.#index, events, () => {
      this.#index = new MemoryIndex();
      return this.#index;
    });
    return this.#opened;
  }

  /** Once for each time that it is opened. */
  damage(): void {
    this.#opened?.damage();
  }
}

class Opened implements LedgerIndex {
  #index: MemoryIndex;
  readonly #events: IndexEvents;
  readonly #replace: () => MemoryIndex;
  #state: 'sound' | 'damaged' | 'replaced' = 'sound';

  constructor(index: MemoryIndex, events: IndexEvents, replace: () => MemoryIndex) {
    this.#index = index;
    this.#events = events;
    this.#replace = replace;
  }

  [Symbol.dispose](): void {}

  damage(): void {
    if (this.#state === 'sound') this.#state = 'damaged';
  }

  end(partition: number): number {
    return this.#index.end(partition);
  }

  through(partition: number): number {
    return this.#index.through(partition);
  }

  horizon(partition: number): number | undefined {
    return this.#index.horizon(partition);
  }

  since(partition: number): number | undefined {
    return this.#index.since(partition);
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#index.last(partition);
  }

  lookUp(partition: number, key: Buffer): IndexedEntry | typeof FORGOTTEN | undefined {
    this.#requireSound();
    return this.#index.lookUp(partition, key);
  }

  apply(partition: number, records: readonly LedgerRecord[]): Applied {
    this.#requireSound();
    return this.#index.apply(partition, records);
  }

  firsts(partition: number, records: readonly LedgerRecord[]): ReadonlySet<number> {
    this.#requireSound();
    return this.#index.firsts(partition, records);
  }

  wipe(partition: number, from: number): void {
    this.#requireSound();
    this.#index.wipe(partition, from);
  }

  expire(partition: number, low: number): boolean {
    this.#requireSound();
    return this.#index.expire(partition, low);
  }

  #requireSound(): void {
    if (this.#state !== 'damaged') return;
    this.#state = 'replaced';
    this.#index = this.#replace();
    this.#events.onWiped('the disk is damaged');
    throw new IdallocError('INDEX_RESTORING', 'the ledger index failed and is restored from the log');
  }
}
