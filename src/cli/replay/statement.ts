import { offsetAtTime, type Span, wholePartition } from '../../adapters/kafka/topics/offsets.ts';
import { readRecord, readSpans } from '../../adapters/kafka/topics/spans.ts';
import { readReplay, replayRecord } from '../../codec/request-position.ts';
import type { LedgerLog } from '../../ledger/ports.ts';
import type { CliContext } from '../context.ts';
import type { KafkaSession } from '../kafka-session.ts';
import type { PartitionPlan } from './plan.ts';

export interface Tools extends Pick<KafkaSession, 'source' | 'config'> {
  readonly context: Pick<CliContext, 'stop'>;
}

/**
 * What the ledger states of a request partition: the offset below which every request had been answered when it was last replayed; 0 for
 * nothing. It is of use only above `to`, the committed offset, where that replay is still in progress: workers go by the last statement, so
 * the next one must not say less.
 *
 * Such a statement is younger than the request at `to`. So the ledger is read from the time of that request on, and not at all where no
 * request waits.
 */
export async function statedBelow(
  { source, config, context }: Tools,
  { partition, to: end }: Omit<Span, 'topic'>,
  to: number,
): Promise<number> {
  const { ledger, requests } = config.topics;
  if (to >= end) return 0;
  const next = await readRecord(source, requests, { partition, offset: to }, context.stop);
  const whole = await wholePartition(source, ledger, partition);
  const sinceMs = next === undefined ? 0 : next.timestampMs - config.clockMarginMs;
  const from = Math.max(whole.from, await offsetAtTime(source, ledger, partition, sinceMs));
  let below = 0;
  await readSpans(source, [{ ...whole, from }], {
    signal: context.stop,
    take: (record) => {
      below = readReplay(record) ?? below;
      return false;
    },
  });
  return below;
}

/**
 * States in the ledger up to where each partition had been answered. Workers then refuse what they read below and do not know. Resolves
 * once every statement is acknowledged; a statement without a replay changes nothing, since nothing below is read.
 *
 * Rejects with APPEND_UNANSWERED if one may be missing, TOPIC_INVALID if this login may not write the ledger.
 */
export async function stateAnswered(
  log: Pick<LedgerLog, 'append'>,
  plan: readonly Pick<PartitionPlan, 'partition' | 'below'>[],
): Promise<void> {
  for (const { partition, below } of plan) await log.append(partition, [replayRecord(below)]);
}
