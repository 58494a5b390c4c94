import { countsAt, type DecidingEntry, decodeLedgerEntry } from '../codec/ledger-entry.ts';
import { type EntryKey, LEDGER_KEY_VERSION } from '../codec/ledger-key.ts';
import { IdallocError } from '../errors.ts';
import type { LedgerEntries, LedgerIndex, LedgerRecord } from './ledger-ports.ts';
import type { LedgerPartition } from './partition.ts';

/** The ledger's decision for a key: the deciding entry and its offset. */
export interface Decided {
  readonly offset: number;
  readonly entry: DecidingEntry;
  readonly appendedAtMs: number;
  /**
   * When the newest entry with this decision was appended: retention counts from here. A later entry whose writer did
   * not know of the decision does not extend it.
   */
  readonly newestMs: number;
  /** The highest request offset in the entries with this decision. */
  readonly through: number;
  /** How many entries the key has. */
  readonly entries: number;
}

/** There was a decision, but it is unknown: the head of the log, where it may have been, is gone. */
export const FORGOTTEN = 'forgotten';

/** A decision, and the offset of the newest entry with it. */
interface FoundDecision extends Decided {
  readonly newest: number;
}

/** What has a key in the ledger. */
export interface Keyed {
  readonly key: EntryKey;
}

/** By the names of keys. Keys without a decision are absent. */
export type Decisions = ReadonlyMap<string, Decided | typeof FORGOTTEN>;

export interface DecidedDeps {
  readonly index: LedgerIndex;
  readonly copy: Pick<LedgerPartition, 'partition' | 'life' | 'refusal' | 'invalidate'>;
  readonly entries: LedgerEntries;
  readonly monotonicMs: () => number;
}

/** Entries that were read before their partition's turn, in one life of its copy. */
export interface ReadAhead {
  readonly life: number;
  readonly readMs: number;
  readonly found: ReadonlyMap<number, LedgerRecord>;
}

const NOWHERE = -1;
const NONE: Decisions = new Map();
/**
 * How long an entry may be used after it was read. Retention may have deleted it since, and then another worker may
 * have decided again.
 */
const READ_AHEAD_MS = 1_000;

interface Places extends Keyed {
  readonly offsets: readonly number[];
}

const UNREAD: ReadAhead = { life: -1, readMs: 0, found: new Map() };

/** No decisions, if the index knows none of the keys; else undefined. `hashes`: as for `readDecided`. */
export function decidedUnread(deps: DecidedDeps, keyed: readonly Keyed[], hashes: number[]): Decisions | undefined {
  return placesOf(deps, keyed, hashes).size === 0 ? NONE : undefined;
}

/**
 * Reads what is needed to decide these keys, as the index shows it now, so that others of the partition need not wait
 * for it in its turn. Nothing if the copy can't be queried, which the turn then reports.
 *
 * Rejects with LEDGER_TRUNCATED when the log contradicts the index, and as the ledger does.
 */
export async function readAhead(deps: DecidedDeps, keyed: readonly Keyed[]): Promise<ReadAhead> {
  const { copy, monotonicMs } = deps;
  if (copy.refusal !== undefined) return UNREAD;
  const [life, readMs] = [copy.life, monotonicMs()];
  return { life, readMs, found: await readEntries(deps, wantedOf(placesOf(deps, keyed), false)) };
}

/**
 * Looks up the decisions for keys of a partition. The index is queried for all keys synchronously, so that an absent
 * key was unknown at the end that the index had then; the entries themselves are read from the ledger, once for equal
 * keys. Of a key with many entries the first one and the last one are enough, if both count: the first decides, and the
 * last is the newest.
 *
 * `hashes` gets the index's hash of each key, in order: what is appended for it need not be hashed again. What was read
 * ahead is read again if the copy was restored since, or a moment has passed; the places are always the index's.
 *
 * Rejects with INDEX_RESTORING when the partition was restored meanwhile, with LEDGER_TRUNCATED when the log
 * contradicts the index, and as the ledger does.
 */
export async function readDecided(
  deps: DecidedDeps,
  keyed: readonly Keyed[],
  hashes: number[] = [],
  ahead?: ReadAhead,
): Promise<Decisions> {
  const { copy, monotonicMs } = deps;
  const { partition, life } = copy;
  const places = placesOf(deps, keyed, hashes);
  if (places.size === 0) return NONE;
  const decisions = new Map<string, Decided | typeof FORGOTTEN>();
  const isUsable = ahead?.life === life && monotonicMs() - ahead.readMs < READ_AHEAD_MS;
  const found = new Map<number, LedgerRecord>(isUsable ? ahead.found : []);
  for (let isWhole = false; places.size > 0; isWhole = true) {
    const unread = wantedOf(places, isWhole).filter((offset) => !found.has(offset));
    for (const [offset, record] of await readEntries(deps, unread)) found.set(offset, record);
    if (copy.refusal !== undefined) throw copy.refusal;
    if (copy.life !== life) {
      throw new IdallocError('INDEX_RESTORING', `ledger partition ${partition} was restored while it was read`);
    }
    for (const [name, { key, offsets }] of places) {
      const first = firstOf(deps, key, offsets, found);
      if (!isWhole && !isCertain(first, offsets)) continue;
      if (first !== undefined) decisions.set(name, first);
      places.delete(name);
    }
  }
  return decisions;
}

/** Of the keys that the index knows, by their names. `hashes` gets the hash of every key. */
function placesOf({ index, copy }: DecidedDeps, keyed: readonly Keyed[], hashes?: number[]): Map<string, Places> {
  const places = new Map<string, Places>();
  for (const { key } of keyed) {
    const hash = index.hashOf(key);
    hashes?.push(hash);
    const offsets = index.placesAt(copy.partition, hash);
    if (offsets.length > 0) places.set(key.name, { key, offsets });
  }
  return places;
}

/** The offsets to read, in rising order: all of each key, or the first and the last one. */
function wantedOf(places: ReadonlyMap<string, Places>, isWhole: boolean): number[] {
  const wanted = [...places.values()].flatMap(({ offsets }) => (isWhole ? offsets : endsOf(offsets)));
  return [...new Set(wanted)].sort((one, other) => one - other);
}

/** The first and the last place of a key. */
function endsOf(offsets: readonly number[]): readonly number[] {
  return [...offsets.slice(0, 1), ...offsets.slice(1).slice(-1)];
}

/**
 * Whether the entries between the first one and the last one of a key, if any, can't change what was found without
 * them.
 */
function isCertain(found: FoundDecision | typeof FORGOTTEN | undefined, offsets: readonly number[]): boolean {
  if (offsets.length <= 2) return true;
  return typeof found === 'object' && found.offset === offsets[0] && found.newest === offsets.at(-1);
}

/**
 * A shorter log must be reported here: the reader waits for entries after the settled ones and would not notice. A copy
 * that was restored meanwhile has other offsets.
 */
async function readEntries(
  { entries, copy }: DecidedDeps,
  offsets: readonly number[],
): Promise<ReadonlyMap<number, LedgerRecord>> {
  if (offsets.length === 0) return new Map();
  const { life } = copy;
  try {
    return await entries.read(copy.partition, offsets);
  } catch (error) {
    const isShorter = error instanceof IdallocError && error.code === 'LEDGER_TRUNCATED';
    if (isShorter && copy.life === life) copy.invalidate(error.message);
    throw error;
  }
}

/**
 * Whether an entry of a key that counts has its decision; the first one in log order that has it decides. The first
 * entry of a key has it. Retention may have removed that one; then it is a later entry whose writer had read everything
 * before it, since it renewed the decision. Numbers, and their renewals, have it by themselves.
 *
 * `before`: the offset of the entry of this key before it, or -1; `origin`: where the log starts.
 */
export function hasDecision(entry: DecidingEntry, before: number, origin: number): boolean {
  return entry.kind === 'numbers' || (entry.end >= origin && entry.end > before);
}

/** The decision in the entries at these offsets. Undefined when all of them have other keys. */
function firstOf(
  deps: DecidedDeps,
  key: EntryKey,
  offsets: readonly number[],
  found: ReadonlyMap<number, LedgerRecord>,
): FoundDecision | typeof FORGOTTEN | undefined {
  const origin = deps.index.origin(deps.copy.partition);
  const adoptedAt = deps.index.adoptedAt(deps.copy.partition);
  let before = NOWHERE;
  let decider: Pick<Decided, 'offset' | 'entry' | 'appendedAtMs'> | undefined;
  let newest = NOWHERE;
  let newestMs = 0;
  let through = -1;
  let entries = 0;
  for (const offset of offsets) {
    const record = offset < origin ? undefined : found.get(offset);
    if (record !== undefined && (record.key === null || !key.equals(record.key))) {
      requireIndexed(deps, record);
      continue;
    }
    if (record !== undefined) {
      const { appendedAtMs } = record;
      const entry = entryOf(deps, record);
      if (hasDecision(entry, before, origin)) {
        decider ??= { offset, entry, appendedAtMs };
        newest = offset;
        newestMs = appendedAtMs;
        // What lies before an adoption covers only what the horizon does.
        const covered = offset < adoptedAt ? (deps.index.horizon(deps.copy.partition) ?? -1) : entry.requestOffset;
        through = Math.max(through, covered);
      }
    }
    entries += 1;
    before = offset;
  }
  if (decider !== undefined) return { ...decider, newest, newestMs, through, entries };
  return before === NOWHERE ? undefined : FORGOTTEN;
}

/**
 * Two keys may share a hash. An entry with another hash means that this is not the log that was indexed, so nothing is
 * known about the key.
 */
function requireIndexed({ index, copy }: DecidedDeps, { offset, key }: LedgerRecord): void {
  if (key !== null && index.placesOf(copy.partition, key).includes(offset)) return;
  throw differs(copy, offset);
}

function differs(copy: DecidedDeps['copy'], offset: number): IdallocError {
  const cause = `the entry at offset ${offset} differs from the one that was indexed`;
  copy.invalidate(cause);
  return new IdallocError('LEDGER_TRUNCATED', `ledger partition ${copy.partition} has lost entries: ${cause}`);
}

function entryOf({ copy }: DecidedDeps, { offset, key, value, headers }: LedgerRecord): DecidingEntry {
  const entry = value === null ? undefined : decodeLedgerEntry(value, headers);
  const kind = key?.[0] === LEDGER_KEY_VERSION ? 'batch' : 'numbers';
  if (entry?.kind === kind) {
    if (countsAt(entry, offset)) return entry as DecidingEntry;
    throw differs(copy, offset);
  }
  const what = entry === undefined ? 'no value' : `a record of the kind '${entry.kind}'`;
  throw new IdallocError(
    'LEDGER_UNREADABLE',
    `ledger partition ${copy.partition} has ${what} under a request's key at offset ${offset}: another program writes to the ledger topic`,
  );
}
