import type { Runtime } from '../async/runtime.ts';
import type { PendingNumbers } from '../codec/head-values.ts';
import type { SequenceRow } from '../core/sequence.ts';
import type { Head, LedgerHeads } from './heads.ts';
import type { NewEntry } from './ports.ts';
import type { HeadsView } from './sequence-rule.ts';

/** What was read of the home partition, which may begin in the middle of the log. */
export interface LogReading {
  /** Whether all that the log has was read. */
  readonly isWhole: boolean;
  /** Whether all that the log has was read for the key of these, or its record was found. */
  knows(pending: PendingNumbers): boolean;
  /** The offset behind the last record that was read. */
  readonly end: number;
  row(name: string): SequenceRow | undefined;
  /** The first number under the key of pending numbers, as far as the log was read. */
  firstOf(pending: PendingNumbers): number | undefined;
  /** Whether the key's record may be among those that retention took, that the ledger lost, or that were not read. */
  isForgotten(pending: PendingNumbers): boolean;
}

/** The home partition, as an order reads and writes it. */
export interface OrderLog {
  readonly reading: LogReading;
  /** Reads on to the end. Then `row` is that of the log, if the log has one. */
  readOn(): Promise<void>;
  /** Reads all that the log has, so that the keys of these are known from then on. */
  readWhole(pending: readonly PendingNumbers[]): Promise<void>;
  /**
   * Appends the records in one batch. Resolves when they are in the log, wherever they are. Rejects with
   * APPEND_UNANSWERED if that is unknown.
   */
  append(records: readonly NewEntry[]): Promise<void>;
  /** The end of the home partition's requests, told by a leader that is not deposed. */
  requestEnd(known: number): Promise<number>;
}

export interface OrderOptions {
  readonly heads: LedgerHeads;
  readonly log: OrderLog;
  readonly partition: number;
  readonly sequence: string;
  /** The UUID of the namespace. */
  readonly namespace: string;
  readonly runtime: Pick<Runtime, 'sleep'>;
}

/** What the rule looks at, for one sequence alone. */
export function viewOf(
  { namespace, sequence }: Pick<OrderOptions, 'namespace' | 'sequence'>,
  reading: LogReading,
  head: Head,
): HeadsView {
  return {
    row: (name) => reading.row(name),
    head: { ...head, pending: head.pending.filter((one) => one.sequence === sequence) },
    namespace,
    through: head.through,
    firstOf: (pending) => reading.firstOf(pending),
    isForgotten: (pending) => reading.isForgotten(pending),
  };
}
