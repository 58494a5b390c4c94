import type { Committed } from '../../adapters/kafka/consumer-group.ts';
import type { Span } from '../../adapters/kafka/topics/offsets.ts';
import { type DescribedGroup, memberNames } from '../../kafka/loops/described-group.ts';
import { counted } from '../table.ts';
import { type Check, fault, ok, warn } from './checks.ts';

const NAME = 'consumer group';

/** Judges the workers' group, which only workers may join, and its committed offsets, which only they may move on. */
export function judgeGroup(
  groupId: string,
  group: DescribedGroup | undefined,
  spans: readonly Span[],
  committed: ReadonlyMap<number, Committed>,
): Check {
  const members = counted(group?.members.length ?? 0, 'member');
  const detail = `${groupId}: ${group?.state ?? 'none yet'}, ${members}, lag ${lagOf(spans, committed)}`;
  const foreign = memberNames(group?.foreign ?? []);
  if (foreign.length > 0) {
    const fix = "stop it, or set KAFKA_GROUP_ID to a group of the workers' own";
    return fault(NAME, `${detail}; not a worker: ${foreign.join(', ')}`, fix);
  }
  const moved = [...committed].filter(([, { position }]) => position === undefined).map(([partition]) => partition);
  if (moved.length === 0) return ok(NAME, detail);
  const fix = 'find out what moved them; workers read again from what the ledger shows as answered';
  return warn(NAME, `${detail}; no worker committed the offsets of partitions ${moved.join(', ')}`, fix);
}

/** How many requests the group has not committed yet. */
function lagOf(spans: readonly Span[], committed: ReadonlyMap<number, Committed>): number {
  const lag = ({ partition, from, to }: Span) => to - Math.max(from, committed.get(partition)?.offset ?? from);
  return spans.reduce((sum, span) => sum + lag(span), 0);
}
