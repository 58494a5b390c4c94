import { counted, table } from '../table.ts';

/** The state of one partition of the request topic. */
export interface ReplayablePartition {
  readonly partition: number;
  /** Offset of the oldest request that is kept. */
  readonly low: number;
  readonly high: number;
  /** Offset that the group would read next; undefined if it never committed. */
  readonly committed: number | undefined;
  /** That offset is not from a worker: requests below it may be unanswered. */
  readonly isMoved?: boolean;
  /** Offset to read again from; undefined to leave the partition unchanged. */
  readonly wanted: number | undefined;
  /** Offset of the first request that is younger than the oldest ledger entry; 0 if the ledger is complete. */
  readonly ledgerFrom: number;
}

/** The offsets that a group has to read of a partition. */
export interface Due {
  readonly partition: number;
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** `to` is the offset that the group has committed. */
export interface PartitionPlan extends Due {
  /** How many of these requests may be older than the ledger. */
  readonly maybeForgotten: number;
  /** How many requests are no longer in the topic. */
  readonly gone: number;
}

/**
 * Plans what is read again. Offsets never move forward, since that would skip requests; a partition that the group has not
 * read that far is left out.
 */
export function planReplay(states: readonly ReplayablePartition[]): PartitionPlan[] {
  const inOrder = states.toSorted((a, b) => a.partition - b.partition);
  return inOrder.flatMap(({ partition, low, committed, wanted, ledgerFrom }) => {
    if (committed === undefined || wanted === undefined || wanted >= committed) return [];
    const from = Math.min(Math.max(wanted, low), committed);
    const maybeForgotten = Math.max(0, Math.min(ledgerFrom, committed) - from);
    return [{ partition, from, to: committed, maybeForgotten, gone: from - wanted }];
  });
}

export function requestsIn(plan: readonly PartitionPlan[]): number {
  return plan.reduce((sum, { from, to }) => sum + to - from, 0);
}

const COLUMNS = ['partition', 'from', 'to', 'requests'].map((title) => ({ title, right: true }));

/** The plan for --json. */
export function planJson(plan: readonly PartitionPlan[]): object[] {
  return plan.map(({ maybeForgotten: maybe_forgotten, ...rest }) => ({ ...rest, maybe_forgotten }));
}

/** The plan as text. */
export function planText(plan: readonly PartitionPlan[], groupId: string): string {
  const rows = plan.map(({ partition, from, to }) => [partition, from, to, to - from].map(String));
  const sum = (pick: (one: PartitionPlan) => number) => plan.reduce((total, one) => total + pick(one), 0);
  const [gone, forgotten] = [sum((one) => one.gone), sum((one) => one.maybeForgotten)];
  if (rows.length === 0) return `there is nothing for group '${groupId}' to read again\n`;
  return [
    table(COLUMNS, rows),
    `${counted(requestsIn(plan), 'request')} would be read again by group '${groupId}'\n`,
    ...(gone === 0 ? [] : [`${gone} more are no longer in the topic\n`]),
    ...(forgotten === 0 ? [] : [`up to ${forgotten} are older than the ledger and get FORGOTTEN\n`]),
    'each gets its first batch again; invalid ones become dead letters again\n',
  ].join('');
}

/** How many requests are left to read. */
export function remaining(due: readonly Due[], committed: ReadonlyMap<number, { readonly offset: number }>): number {
  const left = ({ partition, from, to }: Due) => Math.max(0, to - (committed.get(partition)?.offset ?? from));
  return due.reduce((sum, one) => sum + left(one), 0);
}
