import { KafkaLedgerEntries } from '../../adapters/kafka/ledger-entries.ts';
import { type Source, wholePartition } from '../../adapters/kafka/topics/offsets.ts';
import type { EndHead } from '../../codec/end-head.ts';
import type { Config } from '../../config/config.ts';
import { compareEnd, isEntryOf, lastEntries, usualShift } from '../../ledger/end-check.ts';
import type { StoredEnd } from '../../ledger/end-heads.ts';
import { table, timeText } from '../table.ts';

/**
 * What the ledger has of a partition, compared with what etcd remembers of it.
 *
 * - unknown: etcd remembers nothing
 * - damaged: what etcd has was not written by a worker
 * - whole:   the ledger has the last entry that etcd knows, or retention has removed it
 * - shorter: it ends before that entry
 * - other:   it has another entry at that offset
 * - copied:  it has that entry there, but written by something else
 * - shifted: it has that entry at another offset
 */
type PartitionState = 'unknown' | 'damaged' | 'whole' | 'shorter' | 'other' | 'copied' | 'shifted';

/** What --json prints of a partition. */
export interface PartitionView {
  readonly partition: number;
  readonly ledger_start: number;
  readonly ledger_end: number;
  readonly request_end: number;
  readonly etcd_end: number | null;
  readonly state: PartitionState;
  /** How many entries the ledger lacks at its end, at least. */
  readonly missing: number;
  /** By how much the offsets of entries differ from those that they were written for; null if no entry shows it. */
  readonly shift: number | null;
  /** When the last entry that etcd knows was appended. */
  readonly etcd_time: string | null;
}

/** Compares a partition with what etcd has of it. Rejects as the ledger does. */
export async function viewPartition(
  source: Source,
  { topics }: Pick<Config, 'topics'>,
  partition: number,
  { head, damage }: StoredEnd,
): Promise<PartitionView> {
  const { from: start, to: end } = await wholePartition(source, topics.ledger, partition);
  const { to: requestEnd } = await wholePartition(source, topics.requests, partition);
  const log = { partition, end, entries: new KafkaLedgerEntries({ ...source, topic: topics.ledger }) };
  const last = await lastEntries(log);
  return {
    partition,
    ledger_start: start,
    ledger_end: end,
    request_end: requestEnd,
    etcd_end: head?.end ?? null,
    state: damage === undefined ? await stateOf(head, log) : 'damaged',
    missing: Math.max(0, (head?.end ?? 0) - end),
    shift: usualShift(last) ?? null,
    etcd_time: head === undefined ? null : timeText(head.time),
  };
}

async function stateOf(head: EndHead | undefined, log: Parameters<typeof compareEnd>[1]): Promise<PartitionState> {
  if (head === undefined) return 'unknown';
  const { kind } = await compareEnd(head, log);
  if (kind === 'copied') return 'shifted';
  if (kind === 'whole') return 'whole';
  if (head.end > log.end) return 'shorter';
  const at = head.end - 1;
  const found = (await log.entries.read(log.partition, [at])).get(at);
  return found !== undefined && isEntryOf(head, found) ? 'copied' : 'other';
}

const MEANINGS: Readonly<Record<PartitionState, string>> = {
  unknown: 'etcd remembers nothing of it',
  damaged: "what etcd has of it can't be read",
  whole: 'has all that etcd knows of',
  shorter: 'lacks its end',
  other: 'has other entries',
  copied: 'has been copied',
  shifted: 'has been copied to other offsets',
};

export function partitionsText(views: readonly PartitionView[]): string {
  const columns = [
    { title: 'partition', right: true },
    { title: 'ledger', right: true },
    { title: 'etcd', right: true },
    { title: 'missing', right: true },
    { title: 'offsets', right: true },
    { title: 'the ledger' },
  ];
  const offsets = (shift: number | null) =>
    shift === null ? '-' : shift === 0 ? 'equal' : `${shift > 0 ? '+' : ''}${shift}`;
  const rows = views.map((view) => [
    String(view.partition),
    `${view.ledger_start}..${view.ledger_end}`,
    view.etcd_end === null ? '-' : String(view.etcd_end),
    String(view.missing),
    offsets(view.shift),
    MEANINGS[view.state],
  ]);
  return table(columns, rows);
}
