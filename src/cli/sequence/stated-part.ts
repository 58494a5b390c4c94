import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import type { LedgerStatement } from '../../codec/sequence-entry.ts';
import { MAX_STATEMENTS, restatedAfterMs } from '../../core/sequence.ts';
import { unlessInvalid } from '../../errors.ts';

/** Workers write a marker each hour; a late one, and clocks that differ from the brokers', have an hour each. */
const LATE_MS = 3_600_000;
const MARKED_WITHIN_MS = 2 * 3_600_000;

/** The part of a ledger in which workers that run have stated all their sequences: from this time on, in milliseconds. */
export function statedSinceMs(nowMs: number, retentionMs: number): number {
  return nowMs - MARKED_WITHIN_MS - LATE_MS - restatedAfterMs(retentionMs);
}

/**
 * Shows whether a part of the ledger, which is read from `sinceMs` on, has a statement of every sequence that workers serve. A marker
 * shows that: its writer had read everything before it, and wrote again, in the same append, each statement that was due.
 */
export class StatedPart {
  readonly #markedFromMs: number;
  /** By partition: the last such marker, and the statements that came with it. */
  readonly #last = new Map<number, { readonly offset: number; statements: number }>();
  readonly #whole = new Set<number>();
  readonly #lacking = new Set<number>();

  constructor(sinceMs: number, retentionMs: number) {
    this.#markedFromMs = sinceMs + LATE_MS + restatedAfterMs(retentionMs);
  }

  /** Takes each record without a key, in log order. */
  marker(partition: number, offset: number, timestampMs: number, value: Buffer | null): void {
    if (timestampMs < this.#markedFromMs || value === null || !isAtItsEnd(value, offset)) return;
    this.#settle(partition);
    this.#last.set(partition, { offset, statements: 0 });
  }

  /** Takes each statement. */
  statement(partition: number, { end }: Pick<LedgerStatement, 'end'>): void {
    const last = this.#last.get(partition);
    if (last?.offset === end) last.statements += 1;
  }

  /** Numbers of a sequence were read, but no statement: workers go by another retention. */
  lacks(partition: number): void {
    this.#lacking.add(partition);
  }

  /** Whether what was read of the partition has them all. */
  has(partition: number): boolean {
    this.#settle(partition);
    return this.#whole.has(partition) && !this.#lacking.has(partition);
  }

  /** A full append leaves statements for the next one. */
  #settle(partition: number): void {
    const last = this.#last.get(partition);
    if (last !== undefined && last.statements < MAX_STATEMENTS) this.#whole.add(partition);
  }
}

function isAtItsEnd(value: Buffer, offset: number): boolean {
  const entry = unlessInvalid(() => decodeLedgerEntry(value)); // an audit reports an invalid one
  return entry?.kind === 'marker' && entry.end === offset;
}
