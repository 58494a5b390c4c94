import { setTimeout as sleep } from 'node:timers/promises';
import type { Admin, Kafka } from 'kafkajs';
import { offsetsAtTime, readSpans, type Span, wholeTopic } from '../adapters/kafka/topic-spans.ts';
import type { KafkaConfig } from '../config.ts';
import { describeError, IdallocError } from '../errors.ts';
import { leftOf, type PartitionPlan, type PartitionState } from './replay-plan.ts';
import { counted } from './table.ts';

/** From where a partition is to be read again; undefined to leave it alone. */
export type Wanted = (partition: number, atTime: ReadonlyMap<number, number>) => number | undefined;

interface Tools {
  readonly kafka: Kafka;
  readonly admin: Admin;
  readonly config: KafkaConfig;
  readonly signal: AbortSignal;
}

const SET_TIMEOUT_MS = 60_000;
const POLL_MS = 500;

/** Where each request partition stands. */
export async function partitionStates(tools: Tools, wanted: Wanted, timeMs: number): Promise<PartitionState[]> {
  const { admin, config } = tools;
  const { requests } = config.topics;
  const spans = await wholeTopic(admin, requests);
  const [committed, atTime, ledgerFrom] = await Promise.all([
    committedOffsets(admin, config),
    offsetsAtTime(admin, requests, timeMs),
    ledgerStarts(tools),
  ]);
  return spans.map(({ partition, from: low, to: high }) => ({
    partition,
    low,
    high,
    committed: committed.get(partition),
    wanted: wanted(partition, atTime),
    ledgerFrom: ledgerFrom.get(partition) ?? 0,
  }));
}

async function committedOffsets(admin: Admin, { groupId, topics }: KafkaConfig): Promise<ReadonlyMap<number, number>> {
  const [found] = await admin.fetchOffsets({ groupId, topics: [topics.requests] });
  const offsets = (found?.partitions ?? []).map(({ partition, offset }) => [partition, Number(offset)] as const);
  return new Map(offsets.filter(([, offset]) => offset >= 0));
}

/** By ledger partition: the offset of the first request that was sent when the ledger's oldest entry was there already. */
async function ledgerStarts({ kafka, admin, config, signal }: Tools): Promise<ReadonlyMap<number, number>> {
  const { ledger, requests } = config.topics;
  const trimmed = (await wholeTopic(admin, ledger)).filter(({ from }) => from > 0);
  const oldest = new Map<number, number>();
  const first: Span[] = trimmed.map((span) => ({ ...span, to: Math.min(span.to, span.from + 1) }));
  await readSpans(kafka, first, {
    groupId: config.groupId,
    signal,
    take: (records) => {
      for (const { partition, timestampMs } of records) oldest.set(partition, timestampMs);
      return false;
    },
  });
  const starts = new Map<number, number>();
  for (const { partition } of trimmed) {
    const timeMs = oldest.get(partition) ?? Number.MAX_SAFE_INTEGER;
    starts.set(partition, (await offsetsAtTime(admin, requests, timeMs)).get(partition) ?? 0);
  }
  return starts;
}

/** @throws IdallocError GROUP_ACTIVE while anybody is a member: a worker would go on from where it is. */
export async function requireEmptyGroup(admin: Admin, groupId: string): Promise<void> {
  const { groups } = await admin.describeGroups([groupId]);
  const group = groups.find((one) => one.groupId === groupId);
  if (group === undefined || group.state === 'Empty' || group.state === 'Dead') return;
  const hosts = group.members.map(({ clientHost }) => clientHost.replace(/^\//, '')).join(', ');
  throw new IdallocError(
    'GROUP_ACTIVE',
    `group '${groupId}' has ${counted(group.members.length, 'member')} (${hosts}): stop all workers (SIGTERM lets them finish ` +
      'what is in hand), run this, and start them again when it says so',
  );
}

/**
 * Sets the group back, and looks whether it is.
 *
 * @throws IdallocError GROUP_ACTIVE, KAFKA_UNAVAILABLE.
 */
export async function setBack(admin: Admin, config: KafkaConfig, plan: readonly PartitionPlan[]): Promise<void> {
  const { groupId, topics } = config;
  await requireEmptyGroup(admin, groupId);
  const partitions = plan.map(({ partition, from }) => ({ partition, offset: String(from) }));
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error('no answer')), SET_TIMEOUT_MS);
  try {
    await Promise.race([admin.setOffsets({ groupId, topic: topics.requests, partitions }), late.promise]);
  } catch (error) {
    throw new IdallocError('KAFKA_UNAVAILABLE', `the group could not be set back: ${describeError(error)}`, {
      cause: error,
    });
  } finally {
    clearTimeout(timer);
  }
  const now = await committedOffsets(admin, config);
  const wrong = plan.filter(({ partition, from }) => now.get(partition) !== from);
  if (wrong.length === 0) return;
  const list = wrong.map(({ partition, from }) => `${partition} is at ${now.get(partition)}, not ${from}`).join('; ');
  throw new IdallocError('GROUP_ACTIVE', `the group is not where it was set to: ${list}; is a worker running?`);
}

/**
 * Resolves when the group stands again where it stood. `onLeft` is told how many requests are to come.
 *
 * @throws IdallocError NO_REPLY when it does not move for `stallMs`, STOPPING.
 */
export async function caughtUp(
  { admin, config, signal }: Omit<Tools, 'kafka'>,
  plan: readonly PartitionPlan[],
  stallMs: number,
  onLeft: (left: number) => void,
): Promise<void> {
  let least = Number.POSITIVE_INFINITY;
  let movedMs = performance.now();
  for (;;) {
    const left = leftOf(plan, await committedOffsets(admin, config));
    onLeft(left);
    if (left === 0) return;
    if (left < least) {
      least = left;
      movedMs = performance.now();
    }
    if (performance.now() - movedMs > stallMs) {
      const message = `no worker read on for ${stallMs} ms; ${left} requests are still to be read again`;
      throw new IdallocError('NO_REPLY', message);
    }
    if (signal.aborted)
      throw new IdallocError('STOPPING', `stopped by a signal; ${left} requests are to be read again`);
    await sleep(POLL_MS);
  }
}
