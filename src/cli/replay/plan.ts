import type { Committed } from '../../adapters/kafka/consumer-group.ts';
import { IdallocError } from '../../errors.ts';
import type { UndecidedRequests } from '../audit/audit-run.ts';
import { counted, table } from '../output.ts';

/** The state of one partition of the request topic. */
export interface ReplayablePartition {
  readonly partition: number;
  /** Offset of the oldest request that is kept. */
  readonly low: number;
  /** Where the group reads on; undefined if it never committed. */
  readonly committed: Committed | undefined;
  /** What the ledger states as answered by an earlier replay, if that may be more; else 0. */
  readonly stated: number;
  /** Offset to read again from; undefined to leave the partition unchanged. */
  readonly wanted: number | undefined;
  /** Offset of the first request that is younger than the oldest ledger entry; 0 if the ledger is complete. */
  readonly ledgerFrom: number;
}

/** The offsets that a group has to read of a partition. */
export interface DueOffsets {
  readonly partition: number;
  readonly from: number;
  /** Exclusive. */
  readonly to: number;
}

/** `to` is the offset that the group has committed. */
export interface PartitionPlan extends DueOffsets {
  /** Every request below this offset was answered: one without a decision was refused, and is refused again. */
  readonly below: number;
  /**
   * Requests below this offset are answered, except large ones and those for numbers; undefined if no worker committed
   * the offset.
   */
  readonly small: number | undefined;
  /** How many of these requests may be older than the ledger. */
  readonly maybeForgotten: number;
  /** How many requests are no longer in the topic. */
  readonly gone: number;
}

/** Where a partition is read again, if it is: offsets never move forward, since that would skip requests. */
export function isReplayed({ committed, wanted }: Pick<ReplayablePartition, 'committed' | 'wanted'>): boolean {
  return committed !== undefined && wanted !== undefined && wanted < committed.offset;
}

/** Plans what is read again. */
export function planReplay(states: readonly ReplayablePartition[]): PartitionPlan[] {
  const inOrder = states.toSorted((a, b) => a.partition - b.partition);
  return inOrder.filter(isReplayed).map(({ partition, low, committed, stated, wanted = 0, ledgerFrom }) => {
    const { offset: to = 0, position } = committed ?? {};
    const from = Math.min(Math.max(wanted, low), to);
    const maybeForgotten = Math.max(0, Math.min(ledgerFrom, to) - from);
    return {
      partition,
      from,
      to,
      below: Math.max(to, stated),
      small: position?.small,
      maybeForgotten,
      gone: from - wanted,
    };
  });
}

/**
 * Everything that is read again must have been answered, exactly: the ledger has no record of a refusal, so what it
 * does not know would be refused though nobody had read it.
 *
 * @throws IdallocError REPLAY_REFUSED.
 */
export function requireAnswered(plan: readonly PartitionPlan[], decideRefused: boolean): void {
  const moved = plan.filter(({ small }) => small === undefined);
  if (moved.length > 0) {
    const what = `no worker committed the offset of ${named(moved)}, so nobody knows what is answered`;
    const remedy = 'start the workers, which begin at what the ledger shows, and run this once they have caught up';
    throw new IdallocError('REPLAY_REFUSED', `${what}: ${remedy}`);
  }
  const waiting = plan.filter(({ small = 0, below }) => small > below);
  if (decideRefused || waiting.length === 0) return;
  const what = `large requests or requests for numbers of ${named(waiting)} still wait behind answered ones`;
  const remedy = 'start the workers until they are answered, or decide everything with --decide-refused';
  throw new IdallocError('REPLAY_REFUSED', `${what}: ${remedy}`);
}

function named(plan: readonly PartitionPlan[]): string {
  return namedPartitions(plan.map(({ partition }) => partition));
}

export function namedPartitions(partitions: readonly number[]): string {
  return `${partitions.length === 1 ? 'partition' : 'partitions'} ${partitions.join(', ')}`;
}

export function requestsIn(plan: readonly PartitionPlan[]): number {
  return plan.reduce((sum, { from, to }) => sum + to - from, 0);
}

const COLUMNS = ['>partition', '>from', '>to', '>requests'];

/**
 * The requests whose decision a new statement changes. Those of an earlier replay that is still in progress are among
 * them, though they are not read again for this one: `--decide-refused` decides them as well.
 */
export function concernedBy(plan: readonly PartitionPlan[]): DueOffsets[] {
  return plan.map(({ partition, from, below: to }) => ({ partition, from, to }));
}

/** The plan for --json. */
export function planJson(plan: readonly PartitionPlan[]): object[] {
  return plan.map(({ partition, from, to, below: answered_below, maybeForgotten: maybe_forgotten, gone }) => {
    return { partition, from, to, answered_below, maybe_forgotten, gone };
  });
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
    'each gets its batch or its numbers again; invalid ones become dead letters again\n',
  ].join('');
}

/** How many requests these are. */
export function sumOf(undecided: readonly UndecidedRequests[]): number {
  return undecided.reduce((sum, { requests }) => sum + requests, 0);
}

/** The requests without a decision, for --json. */
export function undecidedJson(undecided: readonly UndecidedRequests[]): object[] {
  return undecided.map(({ sequence, replyTopic: reply_topic, requests, wanted }) => {
    return { ...(sequence !== undefined && { sequence }), reply_topic, requests, wanted };
  });
}

const UNDECIDED_COLUMNS = ['>wanted', 'of', '>by requests', 'reply topic'];

/**
 * The requests without a decision as text: what `--decide-refused` may take, of each sequence and by each reply topic,
 * which may have a quota.
 */
export function undecidedText(undecided: readonly UndecidedRequests[], decideRefused: boolean): string {
  const sum = sumOf(undecided);
  if (sum === 0) return 'all of them have a decision\n';
  const rows = undecided.map(({ sequence = 'IDs', replyTopic, requests, wanted }) => {
    return [String(wanted), sequence, String(requests), replyTopic];
  });
  const what = `${counted(sum, 'request has', 'requests have')} no decision: refused, or older than the ledger`;
  const then = decideRefused
    ? 'what is refused now as well gets nothing; the others take'
    : 'they are refused again, and get nothing without --decide-refused';
  return `${what}\n${then}:\n${table(UNDECIDED_COLUMNS, rows)}`;
}

/** How many requests are left to read. */
export function remaining(
  due: readonly DueOffsets[],
  committed: ReadonlyMap<number, { readonly offset: number }>,
): number {
  const left = ({ partition, from, to }: DueOffsets) => Math.max(0, to - (committed.get(partition)?.offset ?? from));
  return due.reduce((sum, one) => sum + left(one), 0);
}
