import type { IndexEvents } from '../../src/adapters/index/sqlite-index.ts';
import type { SequenceRow } from '../../src/core/sequence.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Applied, LedgerCopies, LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import { MemoryIndex } from '../support/memory-index.ts';

/** An index in memory whose store fails on request and is then replaced by an empty one, like SqliteIndex. */
export class FragileIndex {
  readonly #empty: () => MemoryIndex;
  #index: MemoryIndex;
  #opened: Opened | undefined;

  /** `hashOf` as a MemoryIndex takes it. */
  constructor(hashOf?: (key: Buffer) => string) {
    this.#empty = () => new MemoryIndex([], hashOf);
    this.#index = this.#empty();
  }

  open(events: IndexEvents): LedgerCopies {
    this.#index[Symbol.dispose]();
    this.#opened = new Opened(this.#index, events, () => {
      this.#index = this.#empty();
      return this.#index;
    });
    return this.#opened;
  }

  /** Makes the next call fail; has an effect once for each time that the index is opened. */
  damage(): void {
    this.#opened?.damage();
  }
}

class Opened implements LedgerCopies {
  #index: MemoryIndex;
  readonly #events: IndexEvents;
  readonly #replace: () => MemoryIndex;
  readonly #loaded = new Set<number>();
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

  answeredBelow(partition: number): number {
    return this.#index.answeredBelow(partition);
  }

  since(partition: number): number | undefined {
    return this.#index.since(partition);
  }

  missedBefore(partition: number, timeMs: number): void {
    this.#index.missedBefore(partition, timeMs);
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#index.last(partition);
  }

  origin(partition: number): number {
    return this.#index.origin(partition);
  }

  sequence(partition: number, name: string): SequenceRow | undefined {
    return this.#index.sequence(partition, name);
  }

  sequences(partition: number): Iterable<readonly [string, SequenceRow]> {
    return this.#index.sequences(partition);
  }

  held(): readonly number[] {
    return this.#index.held();
  }

  load(partition: number): boolean {
    this.#requireSound();
    this.#loaded.add(partition);
    return this.#index.load(partition);
  }

  drop(partition: number): boolean {
    this.#requireSound();
    this.#loaded.delete(partition);
    return this.#index.drop(partition);
  }

  save(partition: number): boolean {
    this.#requireSound();
    return this.#index.save(partition);
  }

  async sync(): Promise<void> {
    this.#requireSound();
  }

  placesOf(partition: number, key: Buffer): readonly number[] {
    this.#requireSound();
    return this.#index.placesOf(partition, key);
  }

  apply(partition: number, records: readonly LedgerRecord[], firsts?: Set<number>): Applied {
    this.#requireSound();
    return this.#index.apply(partition, records, firsts);
  }

  wipe(partition: number, from: number): void {
    this.#requireSound();
    this.#index.wipe(partition, from);
  }

  disown(partition: number): void {
    this.#requireSound();
    this.#index.disown(partition);
  }

  expire(partition: number, low: number): boolean {
    this.#requireSound();
    return this.#index.expire(partition, low);
  }

  #requireSound(): void {
    if (this.#state !== 'damaged') return;
    this.#state = 'replaced';
    this.#index = this.#replace();
    for (const partition of this.#loaded) this.#index.load(partition);
    this.#events.onWiped('the disk is damaged');
    throw new IdallocError('INDEX_RESTORING', 'the ledger index failed and is restored from the log');
  }
}
