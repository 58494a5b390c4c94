import { counted, table } from '../table.ts';

/** Where one partition of the request topic stands. */
export interface PartitionState {
  readonly partition: number;
  /** Of the oldest request that is kept. */
  readonly low: number;
  readonly high: number;
  /** Of the next request that the group would read; undefined when it never read. */
  readonly committed: number | undefined;
  /** Where to begin again; undefined to leave the partition alone. */
  readonly wanted: number | undefined;
  /** Of the first request that is younger than the oldest entry of the ledger; 0 for a ledger that has all. */
  readonly ledgerFrom: number;
}

/** What a group is to read of a partition. */
export interface Due {
  readonly partition: number;
  readonly from: number;
  /** Where the group has to come. */
  readonly to: number;
}

/** As due; `to` is where the group stands now. */
export interface PartitionPlan extends Due {
  /** Of these requests: so many may be older than the ledger. */
  readonly maybeForgotten: number;
  /** Wanted, but no longer in the topic. */
  readonly gone: number;
}

/**
 * What would be read again. The group never goes forward, for that would skip requests; a partition that it has not read
 * so far has nothing to read again.
 */
export function planReplay(states: readonly PartitionState[]): PartitionPlan[] {
  const inOrder = states.toSorted((a, b) => a.partition - b.partition);
  return inOrder.flatMap(({ partition, low, committed, wanted, ledgerFrom }) => {
    if (committed === undefined || wanted === undefined || wanted >= committed) return [];
    const from = Math.min(Math.max(wanted, low), committed);
    const maybeForgotten = Math.max(0, Math.min(ledgerFrom, committed) - from);
    return [{ partition, from, to: committed, maybeForgotten, gone: from - wanted }];
  });
}

export function countOf(plan: readonly PartitionPlan[]): number {
  return plan.reduce((sum, { from, to }) => sum + to - from, 0);
}

const COLUMNS = ['partition', 'from', 'to', 'requests'].map((title) => ({ title, right: true }));

/** The plan for programs. */
export function planJson(plan: readonly PartitionPlan[]): object[] {
  return plan.map(({ maybeForgotten: maybe_forgotten, ...rest }) => ({ ...rest, maybe_forgotten }));
}

/** The plan for people. */
export function planText(plan: readonly PartitionPlan[], groupId: string): string {
  const rows = plan.map(({ partition, from, to }) => [partition, from, to, to - from].map(String));
  const sum = (pick: (one: PartitionPlan) => number) => plan.reduce((total, one) => total + pick(one), 0);
  const [gone, forgotten] = [sum((one) => one.gone), sum((one) => one.maybeForgotten)];
  if (rows.length === 0) return `there is nothing for group '${groupId}' to read again\n`;
  return [
    table(COLUMNS, rows),
    `${counted(countOf(plan), 'request')} would be read again by group '${groupId}'\n`,
    ...(gone === 0 ? [] : [`${gone} more are no longer in the topic\n`]),
    ...(forgotten === 0 ? [] : [`up to ${forgotten} are older than the ledger and get FORGOTTEN\n`]),
    'each gets the batch that it got the first time; bad ones become dead letters again\n',
  ].join('');
}

/** How many requests are still to be read. */
export function leftOf(due: readonly Due[], committed: ReadonlyMap<number, number>): number {
  return due.reduce((sum, { partition, from, to }) => sum + Math.max(0, to - (committed.get(partition) ?? from)), 0);
}
