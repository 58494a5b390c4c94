import type { SequenceRow } from '../core/sequence.ts';
import type { Decided } from '../ledger/decided.ts';
import type { Ledger, Settled } from '../ledger/ledger.ts';
import type { DraftedEntry } from '../ledger/ports.ts';
import { pendingRecord, statedRecord } from '../ledger/sequence-records.ts';
import type { SequenceDue } from '../ledger/sequence-rule.ts';
import { firstDecided, type LookUp } from './drafts.ts';
import type { RequestRecord } from './ports.ts';
import type { PartTrace } from './trace.ts';

export interface AppendDeps {
  readonly ledger: Ledger;
  readonly trace: PartTrace;
}

/** What is appended for sequences before anything is drafted. */
export type DueEntries = Extract<SequenceDue, { readonly kind: 'pending' | 'again' }>;

/** Where entries are appended, and for whom. */
export interface AppendPlace extends LookUp {
  readonly partition: number;
  /** What the copy shows of a sequence. */
  readonly row: (name: string) => SequenceRow | undefined;
  /** The highest request offset that the head knows. */
  readonly through: number;
  readonly records: () => readonly RequestRecord[];
}

/** What became of appended entries. */
export interface AppendedDue {
  /** Nobody else's entries came between, so that they count. */
  readonly isInPlace: boolean;
  /** Decisions about numbers, as far as they are known to be the first ones, by the keys of the ledger. */
  readonly decided: readonly { readonly key: Buffer; readonly decided: Decided }[];
}

/** Appends what is due at the end of the copy; call in the partition's turn. Rejects as the ledger's `commit` does. */
export async function appendDue(deps: AppendDeps, place: AppendPlace, due: DueEntries): Promise<AppendedDue> {
  const { partition, view, epoch } = place;
  const entries = entriesFor(place, due);
  const { baseOffset, appendedAtMs, firsts }: Settled = await deps.trace.step('append', place.records, () =>
    deps.ledger.commit(partition, { end: view.end, epoch, entries }),
  );
  const isInPlace = baseOffset === view.end;
  const decided = entries.flatMap(({ key, entry }, i) => {
    const offset = baseOffset + i;
    if (key === null || entry.kind !== 'numbers' || !isInPlace || !firsts.has(offset)) return [];
    return { key, decided: firstDecided(entry, { offset, appendedAtMs }) };
  });
  return { isInPlace, decided };
}

function entriesFor(place: AppendPlace, due: DueEntries): readonly DraftedEntry[] {
  const { view, row } = place;
  if (due.kind === 'pending')
    return due.records.map((record, i) => pendingRecord(record, { ...view, at: view.end + i }, place));
  return [statedRecord(due, row(due.sequence)?.known.next, { ...view, at: view.end })];
}
