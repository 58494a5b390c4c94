import { formatNumber } from '../../codec/sequence-format.ts';
import { type Definition, type Statement, statedOf } from '../../core/sequence-row.ts';
import type { Head } from '../../ledger/heads.ts';
import { viewOf } from '../../ledger/sequence-order.ts';
import { definitionNow, dueNow, type HeadsView, isStopped } from '../../ledger/sequence-rule.ts';
import { counted, table, timeText } from '../output.ts';
import type { PartitionReading } from './sequence-log.ts';
import type { SequenceSession } from './sequence-session.ts';

/** How the ledger and etcd stand to each other. */
type Accord = 'agree' | 'pending' | 'lost' | 'unstated' | 'behind' | 'stopped';

/** What --json prints of a sequence. */
export interface SequenceView extends Definition {
  readonly sequence: string;
  readonly partition: number;
  /** The number that the next request gets. */
  readonly next: number;
  /** The next number that the ledger shows; null if it shows nothing of the sequence. */
  readonly ledger_next: number | null;
  /** The next number that etcd holds; null if it holds nothing. */
  readonly etcd_next: number | null;
  /** When the ledger last said what the sequence is; null if it does not. */
  readonly stated_at: string | null;
  /** Decisions that etcd holds and the ledger does not show. */
  readonly pending: number;
  readonly accord: Accord;
  /** What that means; null if both agree. */
  readonly note: string | null;
}

/** What both say of the sequences of a partition. */
interface BothMemories {
  readonly reading: PartitionReading;
  readonly namespace: string;
  readonly head: Head;
}

/** What both memories say of a sequence; undefined if neither knows it. */
export function viewSequence(sequence: string, { reading, namespace, head }: BothMemories): SequenceView | undefined {
  const view = viewOf({ namespace, sequence }, reading, head);
  const definition = definitionNow(view, sequence);
  if (definition === undefined) return undefined;
  const row = reading.row(sequence);
  const stated = statedOf(row);
  const held = head.sequences.get(sequence);
  const next = Math.max(row?.known.next ?? 0, held?.next ?? 0);
  return {
    sequence,
    partition: reading.partition,
    next,
    ...definition,
    edition: Math.max(stated?.edition ?? 0, held?.edition ?? 0),
    ledger_next: row?.known.next ?? null,
    etcd_next: held?.next ?? null,
    stated_at: row === undefined || stated === undefined ? null : timeText(row.stated.appendedAtMs),
    ...accordOf(view, sequence),
  };
}

export interface ViewedSequences {
  /** The sequences are sorted by name. */
  readonly views: readonly SequenceView[];
  /** Since when the ledger was read, in milliseconds; undefined if all of it was. */
  readonly sinceMs: number | undefined;
}

/** Views all sequences that the ledger shows or etcd holds. */
export async function viewSequences(session: SequenceSession, isAll: boolean): Promise<ViewedSequences> {
  const { log, heads, namespace } = session;
  if (isAll) await log.readAll();
  const sinceMs = isAll ? undefined : await log.readStated();
  const views: SequenceView[] = [];
  for (const partition of log.partitions) {
    const held = await heads.readAll(partition);
    const { rows, isWhole } = log.reading(partition);
    const names = new Set([...held.names, ...rows.keys()]);
    if (names.size === 0) continue;
    const head = await heads.read(partition, names);
    // A sequence that etcd knows and this part of the ledger does not may be in what was not read.
    const isMissing = [...head.sequences.keys()].some((name) => statedOf(rows.get(name)) === undefined);
    if (isMissing && !isWhole) await log.readWhole(partition);
    else await log.readOn(partition);
    const both = { reading: log.reading(partition), namespace, head };
    views.push(...[...names].flatMap((name) => viewSequence(name, both) ?? []));
  }
  return { views: views.toSorted((one, other) => (one.sequence < other.sequence ? -1 : 1)), sinceMs };
}

type Accordance = Pick<SequenceView, 'pending' | 'accord' | 'note'>;

const said = (accord: Accord, note: string | null, pending = 0): Accordance => ({ pending, accord, note });

function accordOf(view: HeadsView, sequence: string): Accordance {
  const { head } = view;
  if (isStopped(view, sequence)) {
    const note = 'the ledger contradicts etcd: stop the workers and run idalloc namespace rebuild';
    return said('stopped', note, head.pending.length);
  }
  const [row, held] = [view.row(sequence), head.sequences.get(sequence)];
  const due = dueNow(view, [sequence]);
  switch (due.kind) {
    case 'draft':
      return said('agree', null);
    case 'pending': {
      const { length } = due.records;
      const decisions = counted(length, 'decision');
      const note = `etcd holds ${decisions} that the ledger does not show yet: a worker appends them`;
      return said('pending', note, length);
    }
    case 'loss': {
      const shown =
        row === undefined ? 'nothing of it' : `numbers below ${row.gap > 0 ? 'a gap' : row.known.next} only`;
      // What is pending is given already, and is appended behind the statement.
      const next = Math.max(due.next, held?.next ?? 0);
      const note = `the ledger lost its tail, and shows ${shown}; a worker or the next order states that, and the next new number is ${next}`;
      return said('lost', note);
    }
    case 'again':
      return said('unstated', `the ledger lacks edition ${held?.edition}: the next request or order states it`);
    case 'repair': {
      const lacks = held === undefined ? 'etcd does not hold it' : `etcd holds only numbers below ${held.next}`;
      return said('behind', `${lacks}: the next request or order writes there what the ledger shows`);
    }
  }
}

/** A line for each, and below what it means that the ledger and etcd don't agree. */
export function sequencesText(views: readonly SequenceView[]): string {
  const numbers = ['>partition', '>next', '>in etcd', '>step', '>largest', '>edition'];
  const columns = ['sequence', ...numbers, 'written as', 'state'];
  const rows = views.map((one) => [
    one.sequence,
    String(one.partition),
    String(one.next),
    String(one.etcd_next ?? '–'),
    String(one.step),
    String(one.max),
    String(one.edition),
    formatNumber(one.format, one.next),
    [one.closed ? 'closed' : 'open', ...(one.accord === 'agree' ? [] : [one.accord])].join(', '),
  ]);
  const notes = views.flatMap(({ sequence, note }) => (note === null ? [] : [`${sequence}: ${note}\n`]));
  return [table(columns, rows), ...notes].join('');
}

/** Numbers that a restart leaves out. */
export interface OmittedNumbers {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

/**
 * The numbers that a sequence would have given out from `next` on, and that its new definition begins behind; null for
 * none.
 */
export function leftOut({ next: at, step, max }: Omit<Statement, 'edition'>, next: number): OmittedNumbers | null {
  const last = Math.min(at - 1, max);
  if (last < next) return null;
  const count = Math.floor((last - next) / step) + 1;
  return { from: next, to: next + (count - 1) * step, count };
}

/** `verb` is such as 'left out'. */
export function leftOutText(verb: string, name: string, out: OmittedNumbers | null): string {
  if (out === null) return `${verb} no number of ${name}`;
  const { from, to, count } = out;
  return `${verb} ${counted(count, 'number')} of ${name}: ${from === to ? from : `${from} to ${to}`}`;
}
