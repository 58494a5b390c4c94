import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type IndexBinding, type IndexEvents, SqliteIndex } from '../../src/adapters/index/sqlite-index.ts';
import type { EntryKey } from '../../src/codec/ledger-key.ts';
import type { SequenceRow } from '../../src/core/sequence-row.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Applied, LedgerCopies, LedgerRecord } from '../../src/ledger/ledger-ports.ts';
import { MemoryIndex } from '../support/memory-index.ts';
import type { Rng } from './rng.ts';
import { shortHashOf } from './setting.ts';

/** What outlives the processes of a machine: the index, and the instance ID with which they join the request group. */
export interface Disk extends Disposable {
  /** The stored instance ID; `name` creates it if there is none. */
  instanceId(name: () => string): string;
  /** Opens the index for one process; the process that had it open before is dead. */
  open(binding: IndexBinding, events: IndexEvents): LedgerCopies;
  /** Damages the disk, as the process that has it open will find. */
  damage(): void;
  /** Loses what was not synced; its process is dead. Missing where everything that is written counts as synced. */
  losePower?(): void;
}

/** So few entries of a run that runs are often sealed and expired. The seed is not random: a simulation repeats. */
const OPTIONS = { runEntries: 16, newSeed: () => ({ low: 1, high: 2 }) };
const FILE = 'ledger-index.sqlite';
/** The share of simulations with indexes in files, as in production; indexes in memory are much cheaper. */
const FILES = 0.25;
/** The share of the others in which hashes are short. */
const SHORT_HASHES = 0.25;

/** Chooses the kind of disks of a simulation. */
export function chooseDisks(
  rng: Rng,
  needsFiles: boolean,
): { readonly newDisk: () => Disk; readonly sharesHashes: boolean } {
  if (needsFiles || rng.chance(FILES)) return { newDisk: () => new FileDisk(), sharesHashes: false };
  const sharesHashes = rng.chance(SHORT_HASHES);
  return { newDisk: () => new MemoryDisk(sharesHashes ? shortHashOf : undefined), sharesHashes };
}

/** The production index, in a directory of its own, and in a copy of that after each kill. */
export class FileDisk implements Disk {
  #directory = newDirectory();
  /**
   * The directory as it was at the last sync; SQLite's own, at checkpoints, are left out, so more is lost than on a
   * real disk.
   */
  readonly #synced = newDirectory();
  readonly #name = new Name();
  #opened: LedgerCopies | undefined;

  /** `from`: a snapshot with which it begins. */
  constructor(from?: string) {
    if (from === undefined) return;
    for (const directory of [this.#directory, this.#synced]) this.#copy(from, directory);
  }

  /** A copy of the volume as a crash would leave it, in a directory that the caller removes. */
  snapshot(): string {
    const to = newDirectory();
    this.#copy(this.#directory, to);
    return to;
  }

  instanceId(name: () => string): string {
    return this.#name.of(name);
  }

  open(binding: IndexBinding, events: IndexEvents): LedgerCopies {
    if (this.#opened !== undefined) this.#keepAsKilled();
    const syncFile = async (): Promise<void> => this.#copy(this.#directory, this.#synced);
    const opened = new SqliteIndex(this.#directory, binding, events, { ...OPTIONS, syncFile });
    const close = opened[Symbol.dispose].bind(opened);
    // Called by its process, or here if that was killed.
    const closeOnce = (): void => {
      if (this.#opened !== opened) return;
      this.#opened = undefined;
      close();
    };
    this.#opened = Object.defineProperty(opened, Symbol.dispose, { value: closeOnce });
    return opened;
  }

  /** Goes on with what a killed process had written: closing its index would save the rest. */
  #keepAsKilled(): void {
    const killed = this.#directory;
    this.#directory = newDirectory();
    this.#copy(killed, this.#directory);
    this.#opened?.[Symbol.dispose]();
    rmSync(killed, { recursive: true });
  }

  #copy(from: string, to: string): void {
    rmSync(to, { recursive: true });
    cpSync(from, to, { recursive: true });
  }

  losePower(): void {
    const lost = this.#directory;
    this.#directory = newDirectory();
    this.#copy(this.#synced, this.#directory);
    this.#opened?.[Symbol.dispose](); // saves to what is lost
    rmSync(lost, { recursive: true });
  }

  damage(): void {
    rmSync(join(this.#directory, FILE), { force: true });
  }

  [Symbol.dispose](): void {
    this.#opened?.[Symbol.dispose]();
    for (const directory of [this.#directory, this.#synced]) rmSync(directory, { recursive: true, force: true });
  }
}

/** A simulated disk, with an index in memory that passes the same tests as the real one. */
export class MemoryDisk implements Disk {
  readonly #newIndex: () => FragileIndex;
  /** By cluster: an index of another one is kept aside. */
  readonly #indexes = new Map<string, FragileIndex>();
  #index: FragileIndex | undefined;
  readonly #name = new Name();

  /** `hashOf` as a MemoryIndex takes it. */
  constructor(hashOf?: (key: Buffer) => string) {
    this.#newIndex = () => new FragileIndex(hashOf);
  }

  instanceId(name: () => string): string {
    return this.#name.of(name);
  }

  open({ clusterId }: IndexBinding, events: IndexEvents): LedgerCopies {
    this.#index = this.#indexes.get(clusterId) ?? this.#newIndex();
    this.#indexes.set(clusterId, this.#index);
    return this.#index.open(events);
  }

  damage(): void {
    this.#index?.damage();
  }

  [Symbol.dispose](): void {}
}

function newDirectory(): string {
  return mkdtempSync(join(tmpdir(), 'idalloc-sim-'));
}

class Name {
  #known: string | undefined;

  of(name: () => string): string {
    this.#known ??= name();
    return this.#known;
  }
}

/** An index in memory whose store fails on request and is then replaced by an empty one, like SqliteIndex. */
class FragileIndex {
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

  adoptedAt(partition: number): number {
    return this.#index.adoptedAt(partition);
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

  hashOf(key: EntryKey): number {
    this.#requireSound();
    return this.#index.hashOf(key);
  }

  placesAt(partition: number, hash: number): readonly number[] {
    this.#requireSound();
    return this.#index.placesAt(partition, hash);
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
