import type { EndHead } from '../codec/end-head.ts';
import { digestEntry } from '../codec/ledger-digest.ts';
import { EMPTY_MARKER } from '../codec/ledger-entry.ts';
import { readLedgerPosition } from '../codec/ledger-position.ts';
import { unlessInvalid } from '../errors.ts';
import type { LedgerEntries, LedgerRecord } from './ports.ts';

/** How many of the last entries of a log are searched for one that is not at its offset. */
export const SEARCHED_ENTRIES = 2_000;

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
interface Log {
  readonly partition: number;
  readonly end: number;
  readonly entries: LedgerEntries;
}

/** Compares the log with a head. Rejects as `entries` does. */
export async function compareEnd(head: EndHead, log: Log): Promise<EndVerdict> {
  if (head.end <= log.end) {
    const at = head.end - 1;
    const found = (await log.entries.read(log.partition, [at])).get(at);
    if (found === undefined || digestEntry(found).equals(head.digest)) return { kind: 'whole' };
  }
  const from = Math.max(0, log.end - SEARCHED_ENTRIES);
  const offsets = Array.from({ length: log.end - from }, (_, i) => from + i);
  return copyIn([...(await log.entries.read(log.partition, offsets)).values()], head) ?? { kind: 'lost' };
}

/**
 * Where these records have a head's entry, if they are a copy of the log at other offsets. The entry alone is not enough: a producer's
 * retry may have appended it twice. Most entries have their own offset in them, as the end that their writer had read; so in a copy
 * more of them belong to other offsets than to their own.
 */
export function copyIn(records: readonly LedgerRecord[], head: EndHead): EndVerdict | undefined {
  const told = records.filter(({ value }) => value !== null && !value.equals(EMPTY_MARKER));
  const at = head.end - 1;
  const offset = told.findLast((one) => isEntryOf(head, one))?.offset;
  const shift = (offset ?? at) - at;
  if (offset === undefined || shift === 0) return undefined;
  let [own, other] = [0, 0];
  for (const record of told) {
    const end = unlessInvalid(() => readLedgerPosition(record.value as Buffer, record.headers).end);
    if (end === record.offset) own += 1;
    else if (end === record.offset - shift) other += 1;
  }
  return other > own ? { kind: 'copied', shift, offset } : undefined;
}

/** Whether a record is a head's entry, wherever it lies and whenever it was copied there. */
export function isEntryOf(
  { end, time, digest }: EndHead,
  record: Omit<LedgerRecord, 'offset' | 'appendedAtMs'>,
): boolean {
  return digestEntry({ ...record, offset: end - 1, appendedAtMs: time }).equals(digest);
}
