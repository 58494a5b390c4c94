import { changesSequence, countsAt, decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { digestEntry, EntryKey, readLedgerKey } from '../../src/codec/ledger-key.ts';
import { isAdoption, readReplay } from '../../src/codec/request-position.ts';
import { afterRecord, hidesDecisions, type SequenceRow } from '../../src/core/sequence-row.ts';
import { IdallocError } from '../../src/errors.ts';
import type { Applied, LedgerCopies, LedgerRecord } from '../../src/ledger/ledger-ports.ts';

interface Stored {
  readonly offset: number;
  readonly appendedAtMs: number;
  readonly end: number;
  requestOffset: number;
}

interface Partition {
  /** By the hash of the key: all entries still in the index, in log order. */
  readonly entries: Map<string, Stored[]>;
  origin: number;
  horizon: number;
  answeredBelow: number;
  anchored: boolean;
  end: number;
  through: number;
  since: number | undefined;
  appendedAtMs: number;
  /** When the last entry before a wipe was appended. */
  floorMs: number | undefined;
  /** The offset of the last adoption; -1 without one. */
  adopted: number;
  judged?: number | undefined;
  last: { readonly offset: number; readonly digest: Buffer } | undefined;
  readonly sequences: Map<string, SequenceRow>;
}

/** Whether an entry's two times agree: that of a renewal, which has the IDs of an older entry, may be wrong. */
function isAgreed(appendedAtMs: number, generatedAtMs = 0): boolean {
  return Math.abs(appendedAtMs - generatedAtMs) <= 5_000;
}

/** The ledger index without a disk; it passes the same tests as the real one. */
export class MemoryIndex implements LedgerCopies {
  readonly #partitions = new Map<number, Partition>();
  readonly #loaded = new Set<number>();
  readonly #hashOf: (key: Buffer) => string;
  /** A hash is the place of its text here. */
  readonly #hashes: string[] = [];

  /**
   * Opens copies of these partitions. Keys with the same hash are not distinguished; by default each key has its own.
   */
  constructor(partitions: readonly number[] = [], hashOf = (key: Buffer): string => key.toString('latin1')) {
    this.#hashOf = hashOf;
    for (const partition of partitions) this.load(partition);
  }

  held(): readonly number[] {
    return [...this.#partitions.keys()].sort((one, other) => one - other);
  }

  load(partition: number): boolean {
    this.#loaded.add(partition);
    if (!this.#partitions.has(partition)) this.wipe(partition, 0);
    return false;
  }

  drop(partition: number): boolean {
    this.#loaded.delete(partition);
    this.#partitions.delete(partition);
    return false;
  }

  /** Writes nothing: what is in memory is all there is. */
  save(_partition: number): boolean {
    return false;
  }

  async sync(): Promise<void> {}

  /** Closes the index as an exiting process leaves it. */
  [Symbol.dispose](): void {
    this.#loaded.clear();
  }

  origin(partition: number): number {
    return this.#of(partition).origin;
  }

  end(partition: number): number {
    return this.#of(partition).end;
  }

  through(partition: number): number {
    return this.#of(partition).through;
  }

  horizon(partition: number): number | undefined {
    const { anchored, horizon } = this.#of(partition);
    return anchored ? horizon : undefined;
  }

  adoptedAt(partition: number): number {
    return this.#of(partition).adopted;
  }

  answeredBelow(partition: number): number {
    return this.#of(partition).answeredBelow;
  }

  since(partition: number): number | undefined {
    return this.#of(partition).since;
  }

  missedBefore(partition: number, timeMs: number): void {
    const at = this.#of(partition);
    if (at.since === undefined || at.since === at.judged) return;
    at.since = Math.min(at.since, timeMs);
    at.judged = at.since;
  }

  last(partition: number): { readonly offset: number; readonly digest: Buffer } | undefined {
    return this.#of(partition).last;
  }

  sequence(partition: number, name: string): SequenceRow | undefined {
    return this.#of(partition).sequences.get(name);
  }

  sequences(partition: number): Iterable<readonly [string, SequenceRow]> {
    return this.#of(partition).sequences;
  }

  placesOf(partition: number, key: Buffer): readonly number[] {
    return this.placesAt(partition, this.hashOf(EntryKey.of(key)));
  }

  hashOf(key: EntryKey): number {
    const text = this.#hashOf(key.toBuffer());
    const known = this.#hashes.indexOf(text);
    return known >= 0 ? known : this.#hashes.push(text) - 1;
  }

  placesAt(partition: number, hash: number): readonly number[] {
    const stored = this.#of(partition).entries.get(this.#hashes[hash] ?? '') ?? [];
    return stored.map(({ offset }) => offset);
  }

  apply(partition: number, records: readonly LedgerRecord[], firsts?: Set<number>): Applied {
    const at = this.#of(partition);
    const fresh = records.filter(({ offset }) => offset >= at.end).map((record) => ({ record, ...readEntry(record) }));
    const hole = fresh.find(({ record }, i) => record.offset !== at.end + i);
    if (hole) throw new IdallocError('LEDGER_TRUNCATED', `the log continues at offset ${hole.record.offset}`);
    let lossAt: number | undefined;
    for (const { record, key, end, requestOffset, through, generatedAtMs, below } of fresh) {
      at.answeredBelow = below ?? at.answeredBelow;
      if (isAdoption(record) && record.offset > at.adopted) {
        Object.assign(at, { through: -1, horizon: -1, answeredBelow: 0, adopted: record.offset });
        for (const one of [...at.entries.values()].flat()) one.requestOffset = -1;
      }
      const isHiding = readSequence(at.sequences, record);
      const { offset, appendedAtMs } = record;
      if (key !== undefined) {
        const hash = this.#hashOf(key);
        const known = at.entries.get(hash) ?? [];
        if (known.length === 0 && end >= at.origin) firsts?.add(offset);
        at.entries.set(hash, known);
        known.push({ offset, appendedAtMs: Math.max(appendedAtMs, generatedAtMs ?? 0), end, requestOffset });
      }
      const timeMs = Math.max(appendedAtMs, generatedAtMs ?? 0);
      if (isHiding) at.horizon = Math.max(at.horizon, through);
      if (at.since === undefined || end > offset || isHiding) at.since = Math.max(at.since ?? at.appendedAtMs, timeMs);
      else if (isAgreed(appendedAtMs, generatedAtMs) && end === offset && at.floorMs !== undefined)
        at.since = Math.min(at.since, Math.max(timeMs, at.floorMs));
      at.appendedAtMs = timeMs;
      if (offset < end || (offset === end && !at.anchored)) {
        at.horizon = Math.max(at.horizon, through);
        at.anchored = true;
      }
      if (offset < end) lossAt = offset;
      at.through = Math.max(at.through, through, requestOffset);
      at.end = offset + 1;
      at.last = { offset, digest: digestEntry(record) };
    }
    return lossAt === undefined ? {} : { lossAt };
  }

  wipe(partition: number, from: number): void {
    if (!this.#loaded.has(partition)) throw notLoaded(partition);
    const through = this.#partitions.get(partition)?.through ?? -1;
    const floorMs = this.#partitions.get(partition)?.appendedAtMs ?? 0;
    this.#partitions.set(partition, {
      entries: new Map(),
      origin: from,
      horizon: through,
      answeredBelow: this.#partitions.get(partition)?.answeredBelow ?? 0,
      anchored: from === 0,
      end: from,
      through,
      since: from === 0 && through === -1 ? 0 : undefined,
      appendedAtMs: floorMs,
      floorMs: from === 0 ? undefined : floorMs,
      adopted: this.#partitions.get(partition)?.adopted ?? -1,
      last: undefined,
      sequences: new Map(),
    });
  }

  disown(partition: number): void {
    Object.assign(this.#of(partition), { through: -1, horizon: -1, answeredBelow: 0, anchored: false, adopted: -1 });
  }

  expire(partition: number, low: number): boolean {
    const at = this.#of(partition);
    if (!at.anchored || low <= at.origin) return false;
    at.origin = Math.min(low, at.end);
    for (const [hash, stored] of at.entries) {
      const kept = stored.filter(({ offset }) => offset >= at.origin);
      for (const { offset, requestOffset } of stored) {
        if (offset < at.origin) at.horizon = Math.max(at.horizon, requestOffset);
      }
      if (kept.length > 0) at.entries.set(hash, kept);
      else at.entries.delete(hash);
    }
    const [oldest] = [...at.entries.values()].flat().sort((a, b) => a.offset - b.offset);
    at.since = Math.max(at.since ?? 0, oldest?.appendedAtMs ?? at.appendedAtMs);
    return false;
  }

  #of(partition: number): Partition {
    const known = this.#partitions.get(partition);
    if (known === undefined || !this.#loaded.has(partition)) throw notLoaded(partition);
    return known;
  }
}

function notLoaded(partition: number): RangeError {
  return new RangeError(`no copy of ledger partition ${partition} is open`);
}

interface Read {
  /** Absent for a marker. */
  readonly key?: Buffer;
  readonly end: number;
  readonly through: number;
  /** -1 for a marker. */
  readonly requestOffset: number;
  /** When the IDs of a batch were allocated. */
  readonly generatedAtMs?: number | undefined;
  /** What a statement of a replay says. */
  readonly below?: number | undefined;
}

/** Applies a record of a sequence, if it counts. Returns whether earlier decisions may be gone. */
function readSequence(
  rows: Map<string, SequenceRow>,
  { key, value, headers, offset, appendedAtMs }: LedgerRecord,
): boolean {
  const entry = value === null ? undefined : decodeLedgerEntry(value, headers);
  if (entry?.kind !== 'numbers' && entry?.kind !== 'statement') return false;
  const read = key === null ? undefined : readLedgerKey(key);
  if (read === undefined || read.kind === 'batch' || !changesSequence(entry, offset)) return false;
  const row = rows.get(read.sequence);
  rows.set(read.sequence, afterRecord(row, entry, { offset, appendedAtMs }));
  return hidesDecisions(row, entry, entry.through);
}

function readEntry({ key, value, headers, offset }: LedgerRecord): Read {
  const entry = value === null ? undefined : decodeLedgerEntry(value, headers);
  const isForRequest = entry?.kind === 'batch' || entry?.kind === 'numbers';
  if (entry === undefined || (isForRequest && key === null)) {
    throw new IdallocError('LEDGER_UNREADABLE', `the entry at offset ${offset} is not an idalloc entry`);
  }
  const { end, through } = entry;
  const isOfSequence = entry.kind === 'numbers' || entry.kind === 'statement';
  if (isOfSequence && readLedgerKey(key ?? Buffer.alloc(0)).kind !== entry.kind)
    throw new IdallocError('LEDGER_UNREADABLE', `the entry at offset ${offset} has another kind of key`);
  const isDecision = isForRequest && countsAt(entry, offset);
  if (!isDecision) return { end, through, requestOffset: -1, below: readReplay({ offset, key, headers }) };
  const generatedAtMs = entry.kind === 'batch' ? entry.batch.generatedAtMs : undefined;
  return { ...(key !== null && { key }), end, through, requestOffset: entry.requestOffset, generatedAtMs };
}
