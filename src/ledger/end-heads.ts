import { decodeEndHead, type EndHead, encodeEndHead } from '../codec/head-values.ts';
import { EMPTY_MARKER, readLedgerPosition } from '../codec/ledger-entry.ts';
import { digestEntry } from '../codec/ledger-key.ts';
import { IdallocError, unlessInvalid } from '../errors.ts';
import type { LedgerEntries, LedgerRecord } from './ledger-ports.ts';

/** What etcd has of a partition, and the revision with which that was written; 0n for nothing. */
export interface StoredEnd {
  readonly head: EndHead | undefined;
  readonly revision: bigint;
  /** NAMESPACE_DAMAGED, if no worker wrote it. */
  readonly damage?: IdallocError;
}

/** A head to write if the one before still has this revision. */
export interface EndChange {
  readonly partition: number;
  readonly revision: bigint;
  readonly head: EndHead;
}

/** How far each partition of the ledger had gone, in a store that shares no fate with the log. */
export interface EndHeads {
  /** Rejects with ETCD_UNAVAILABLE or ETCD_REFUSED. */
  read(partitions: readonly number[]): Promise<ReadonlyMap<number, StoredEnd>>;
  /**
   * Writes all of them or none; resolves with their revision, undefined if any has changed meanwhile. Rejects with
   * ETCD_UNAVAILABLE or ETCD_REFUSED, when they may have been written.
   */
  swap(changes: readonly EndChange[]): Promise<bigint | undefined>;
}

/** The operations of etcd that this needs; `identity/identity-ports` explains them. */
interface Etcd {
  get(keys: readonly string[]): Promise<ReadonlyMap<string, { readonly value: Buffer; readonly modRevision: bigint }>>;
  transact(
    compares: readonly { readonly key: string; readonly modRevision: bigint }[],
    operations: readonly { readonly put: string; readonly value: Buffer }[],
  ): Promise<{ succeeded: boolean; revision: bigint }>;
}

/** Heads in one call of etcd, which takes 128 operations. */
export const MAX_ENDS = 100;

const NOTHING: StoredEnd = { head: undefined, revision: 0n };

/** The heads in etcd, each under its own key. */
export class EtcdEndHeads implements EndHeads {
  readonly #etcd: Etcd;
  readonly #keyOf: (partition: number) => string;

  constructor(etcd: Etcd, keyOf: (partition: number) => string) {
    this.#etcd = etcd;
    this.#keyOf = keyOf;
  }

  async read(partitions: readonly number[]): Promise<ReadonlyMap<number, StoredEnd>> {
    const found = new Map<number, StoredEnd>();
    for (let from = 0; from < partitions.length; from += MAX_ENDS) {
      const some = partitions.slice(from, from + MAX_ENDS);
      const stored = await this.#etcd.get(some.map(this.#keyOf));
      for (const partition of some) {
        const key = this.#keyOf(partition);
        const kv = stored.get(key);
        found.set(partition, kv === undefined ? NOTHING : storedIn(key, kv));
      }
    }
    return found;
  }

  async swap(changes: readonly EndChange[]): Promise<bigint | undefined> {
    const { succeeded, revision } = await this.#etcd.transact(
      changes.map(({ partition, revision: modRevision }) => ({ key: this.#keyOf(partition), modRevision })),
      changes.map(({ partition, head }) => ({ put: this.#keyOf(partition), value: encodeEndHead(head) })),
    );
    return succeeded ? revision : undefined;
  }
}

function storedIn(key: string, { value, modRevision: revision }: { value: Buffer; modRevision: bigint }): StoredEnd {
  try {
    return { head: decodeEndHead(key, value), revision };
  } catch (error) {
    if (error instanceof IdallocError) return { head: undefined, revision, damage: error };
    throw error;
  }
}

/** How many of the last entries of a log are searched for one that is not at its offset. */
const SEARCHED_ENTRIES = 2_000;

/**
 * What a log shows of a head.
 *
 * - whole:  it has the entry, or retention has removed it
 * - lost:   it ends before the entry, or has another one at its offset
 * - copied: it has the entries at other offsets, higher by `shift`: something copied them there
 */
export type EndVerdict =
  | { readonly kind: 'whole' | 'lost' }
  | { readonly kind: 'copied'; readonly shift: number; readonly offset: number };

/** The log of a partition, which ends at `end`. */
interface EndOfLog {
  readonly partition: number;
  readonly end: number;
  readonly entries: LedgerEntries;
}

/** Compares the log with a head. Rejects as `entries` does. */
export async function compareEnd(head: EndHead, log: EndOfLog): Promise<EndVerdict> {
  if (head.end <= log.end) {
    const at = head.end - 1;
    const found = (await log.entries.read(log.partition, [at])).get(at);
    if (found === undefined || digestEntry(found).equals(head.digest)) return { kind: 'whole' };
  }
  return copyIn(await lastEntries(log), head) ?? { kind: 'lost' };
}

/** The last entries of a log, as many as are searched. */
export async function lastEntries({ partition, end, entries }: EndOfLog): Promise<readonly LedgerRecord[]> {
  const from = Math.max(0, end - SEARCHED_ENTRIES);
  const offsets = Array.from({ length: end - from }, (_, i) => from + i);
  return [...(await entries.read(partition, offsets)).values()];
}

/**
 * Where these records have a head's entry, if they are a copy of the log at other offsets. The entry alone is not
 * enough: a producer's retry may have appended it twice, and all empty markers are equal. In a copy more appends are as
 * far from their offsets than at them. One append alone may have been late, and have landed again behind a tail that
 * was lost. A marker that states this loss says the head's end, and nothing of its own place.
 */
function copyIn(records: readonly LedgerRecord[], head: EndHead): EndVerdict | undefined {
  const shifts = shiftsIn(records, head.end);
  const appends = (shift: number) => shifts.get(shift) ?? 0;
  for (const record of records.toReversed()) {
    const { offset } = record;
    const shift = offset - (head.end - 1);
    if (appends(shift) > Math.max(1, appends(0)) && isEntryOf(head, record)) return { kind: 'copied', shift, offset };
  }
  return undefined;
}

/**
 * By how much the offsets of most of these entries differ from those that they were written for; undefined if no append
 * begins among them.
 */
export function usualShift(records: readonly LedgerRecord[]): number | undefined {
  const byAppends = [...shiftsIn(records)].sort(
    ([one, ones], [other, others]) => others - ones || Math.abs(one) - Math.abs(other),
  );
  return byAppends[0]?.[0];
}

/**
 * How many appends begin so far from the offset that they were written for: at it, for most of a log that is no copy.
 * The first entry of an append has its own offset in it, as the end that its writer had read, and the others have the
 * same. What says `lostEnd` is not counted.
 */
function shiftsIn(records: readonly LedgerRecord[], lostEnd?: number): ReadonlyMap<number, number> {
  const firsts = new Map<number, number>();
  for (const record of records) {
    const end = isEmpty(record) ? undefined : unlessInvalid(() => positionOf(record).end);
    if (end === undefined || end === 0 || end === lostEnd) continue; // an operator's, which says nothing of the log
    firsts.set(end, Math.min(firsts.get(end) ?? record.offset, record.offset));
  }
  const shifts = new Map<number, number>();
  for (const [end, offset] of firsts) shifts.set(offset - end, (shifts.get(offset - end) ?? 0) + 1);
  return shifts;
}

function positionOf({ value, headers }: LedgerRecord): { readonly end: number } {
  return readLedgerPosition(value as Buffer, headers);
}

function isEmpty({ value }: LedgerRecord): boolean {
  return value === null || value.equals(EMPTY_MARKER);
}

/** Whether a record is a head's entry, wherever it lies and whenever it was copied there. */
export function isEntryOf(
  { end, time, digest }: EndHead,
  record: Omit<LedgerRecord, 'offset' | 'appendedAtMs'>,
): boolean {
  return digestEntry({ ...record, offset: end - 1, appendedAtMs: time }).equals(digest);
}

/** More requests of a partition were decided, up to `known`, than its request topic has. */
export function requestsRecreated(partition: number, known: number, requestEnd: number): IdallocError {
  const message = `the ledger or etcd knows request offset ${known} of partition ${partition}, but the request topic ends at ${requestEnd}, so it was recreated: recreate the ledger topic too and run 'idalloc namespace adopt-cluster', or use another request topic and ledger`;
  return new IdallocError('REQUESTS_RECREATED', message);
}
