import { setTimeout as sleep } from 'node:timers/promises';
import { CALL_TIMEOUT_MS } from '../../adapters/kafka/brokers.ts';
import {
  type Committed,
  committedOffsets,
  describeGroup,
  hostOf,
  requireCluster,
  setOffsets,
} from '../../adapters/kafka/consumer-group.ts';
import {
  offsetAtTime,
  offsetsAtTime,
  readRecord,
  readSpans,
  type Source,
  type Span,
  type TopicRecord,
  wholePartition,
  wholeTopic,
} from '../../adapters/kafka/topics/spans.ts';
import { HOPS, readRoute } from '../../codec/request-headers.ts';
import { readOf, readReplay, replayRecord } from '../../codec/request-position.ts';
import type { KafkaConfig } from '../../config/config.ts';
import { IdallocError, unlessInvalid } from '../../errors.ts';
import type { LedgerLog } from '../../ledger/ledger-ports.ts';
import type { CliContext } from '../context.ts';
import type { KafkaSession } from '../kafka-session.ts';
import { counted } from '../output.ts';
import {
  type DueOffsets,
  isReplayed,
  namedPartitions,
  type PartitionPlan,
  planReplay,
  type ReplayablePartition,
  remaining,
} from './plan.ts';

/** The offset from which to read a partition again; undefined to leave it unchanged. */
export type WantedOffset = (partition: number, atTime: ReadonlyMap<number, number>) => number | undefined;

const POLL_MS = 500;

/** What a replay reads again, and of what it must make sure before. */
export interface Prospect {
  /** The ID of the Kafka cluster whose offsets these are. */
  readonly clusterId: string;
  readonly plan: readonly PartitionPlan[];
  /** The end of each ledger partition. */
  readonly ledgerEnds: ReadonlyMap<number, number>;
  /** Partitions without a ledger: their requests were forwarded, and are read again in their home partitions. */
  readonly added: readonly number[];
  /** How many partitions the topic has. */
  readonly partitions: number;
  /** Whether the group has read anything. */
  readonly hasRead: boolean;
}

/**
 * Looks up what is answered of each request partition, and plans what is read again.
 *
 * @throws IdallocError REPLAY_REFUSED if a partition that would be read again has lost its tail; as readSpans does.
 */
export async function prospectOf(tools: Tools, wanted: WantedOffset, timeMs: number): Promise<Prospect> {
  const { source, config } = tools;
  const { requests, requestPartitions } = config.topics;
  const { clusterId } = await source.cluster.metadata([], CALL_TIMEOUT_MS);
  const spans = await wholeTopic(source, requests);
  const [offsets, atTime, { starts: ledgerFrom, ends: ledgerEnds }] = await Promise.all([
    committed(source, config, spans),
    offsetsAtTime(source, requests, timeMs),
    ledgerBounds(tools),
  ]);
  const own = spans.slice(0, requestPartitions).map((span) => {
    const { partition, from: low } = span;
    return { span, partition, low, committed: offsets.get(partition), wanted: wanted(partition, atTime) };
  });
  await requireWhole(tools, own.filter(isReplayed));
  const states: ReplayablePartition[] = [];
  for (const { span, ...known } of own) {
    const { partition, committed: at } = known;
    const stated = isReplayed(known) ? await statedBelow(tools, span, at?.offset ?? 0) : 0;
    states.push({ ...known, stated, ledgerFrom: ledgerFrom.get(partition) ?? 0 });
  }
  return {
    clusterId,
    plan: planReplay(states),
    ledgerEnds,
    added: spans.slice(requestPartitions).map(({ partition }) => partition),
    partitions: spans.length,
    hasRead: offsets.size > 0,
  };
}

/**
 * A log that has lost its tail may have new requests below the committed offset. They would be refused, though nobody
 * has answered them, and workers could not see any more that the log was longer: the offset that is set back says
 * nothing of its end.
 */
async function requireWhole(
  { source, config, context }: Tools,
  planned: readonly { readonly span: Span; readonly committed: Committed | undefined }[],
): Promise<void> {
  const read = planned.flatMap(({ span, committed: at }) => {
    const last = at?.position?.last;
    if (last === undefined || last.offset < span.from) return []; // it has expired, as all below has
    return [{ digest: last.digest, span: { ...span, from: last.offset, to: Math.min(span.to, last.offset + 1) } }];
  });
  const found = new Map<number, string>();
  const spans = read.map(({ span }) => span);
  const take = (record: TopicRecord) => found.set(record.partition, readOf(record).digest);
  await readSpans(source, spans, { signal: context.stop, take, skipsDense: true });
  const short = planned.filter(({ span, committed: at }) => (at?.offset ?? 0) > span.to).map(({ span }) => span);
  const other = read.filter(({ span, digest }) => found.get(span.partition) !== digest).map(({ span }) => span);
  const lost = [...new Set([...short, ...other].map(({ partition }) => partition))].toSorted((a, b) => a - b);
  if (lost.length === 0) return;
  const what = `${namedPartitions(lost)} of '${config.topics.requests}' lost requests that were answered, and may have new ones at their offsets`;
  const remedy = 'start the workers, which answer those, and run this once they have caught up';
  throw new IdallocError('REPLAY_REFUSED', `${what}: ${remedy}`);
}

function committed(
  source: Source,
  { groupId, topics }: KafkaConfig,
  of: readonly { readonly partition: number }[],
): Promise<ReadonlyMap<number, Committed>> {
  const partitions = of.map(({ partition }) => partition);
  return committedOffsets(source, groupId, topics.requests, partitions);
}

/** Looks up the end of each ledger partition, and the offset of the first request that is younger than its start. */
async function ledgerBounds({ source, config, context }: Tools) {
  const { ledger, requests } = config.topics;
  const whole = await wholeTopic(source, ledger);
  const trimmed = whole.filter(({ from }) => from > 0);
  const oldest = new Map<number, number>();
  const first: Span[] = trimmed.map((span) => ({ ...span, to: Math.min(span.to, span.from + 1) }));
  const take = ({ partition, timestampMs }: TopicRecord) => oldest.set(partition, timestampMs);
  await readSpans(source, first, { signal: context.stop, take });
  const starts = new Map<number, number>();
  for (const { partition } of trimmed) {
    const timeMs = oldest.get(partition) ?? Number.MAX_SAFE_INTEGER;
    starts.set(partition, (await offsetsAtTime(source, requests, timeMs)).get(partition) ?? 0);
  }
  return { starts, ends: new Map(whole.map(({ partition, to }) => [partition, to])) };
}

/** @throws IdallocError GROUP_ACTIVE while the group has members: they would ignore the new offsets. */
export async function requireEmptyGroup(source: Source, groupId: string): Promise<void> {
  const group = await describeGroup(source, groupId);
  if (group === undefined || group.state === 'Empty') return;
  const hosts = group.members.map(hostOf).join(', ');
  throw new IdallocError(
    'GROUP_ACTIVE',
    `group '${groupId}' has ${counted(group.members.length, 'member')} (${hosts}): stop all workers with SIGTERM, ` +
      'run this, and start them again when it asks for it',
  );
}

/**
 * States what had been answered, and only then sets the group's offsets back: workers that read a request again must
 * find the statement. They read the ledger to its end before they serve a partition.
 *
 * @throws IdallocError GROUP_ACTIVE if the group has members, or had some since the plan was made; CLUSTER_CHANGED;
 * KAFKA_UNAVAILABLE; APPEND_UNANSWERED; OVERTAKEN if other programs always wrote to the ledger first.
 */
export async function setBack(
  source: Source,
  config: KafkaConfig,
  { clusterId, plan, ledgerEnds }: Pick<Prospect, 'clusterId' | 'plan' | 'ledgerEnds'>,
  log: Pick<LedgerLog, 'append'>,
): Promise<void> {
  const { groupId, topics } = config;
  requireCluster(clusterId, await source.cluster.metadata([], CALL_TIMEOUT_MS));
  await requireEmptyGroup(source, groupId);
  // Workers may have run meanwhile: a statement without a replay would replace that of one in progress.
  await requireOffsets(source, config, plan, 'to');
  await stateAnswered(log, plan, ledgerEnds);
  // What was answered since the plan was made would be decided anew: the statement does not cover it.
  await requireOffsets(source, config, plan, 'to');
  const offsets = plan.map(({ partition, from }) => [partition, from] as const);
  await setOffsets(source, groupId, topics.requests, { clusterId, offsets: new Map(offsets) });
  await requireOffsets(source, config, plan, 'from');
}

async function requireOffsets(
  source: Source,
  config: KafkaConfig,
  plan: readonly PartitionPlan[],
  at: 'from' | 'to',
): Promise<void> {
  const now = await committed(source, config, plan);
  const wrong = plan.filter((one) => now.get(one.partition)?.offset !== one[at]);
  if (wrong.length === 0) return;
  const list = wrong
    .map((one) => `${one.partition} is at ${now.get(one.partition)?.offset}, not ${one[at]}`)
    .join('; ');
  throw new IdallocError('GROUP_ACTIVE', `the group's offsets changed meanwhile: ${list}; is a worker running?`);
}

/** The end offsets of the request partitions. */
export async function requestEnds({ source, config }: Omit<Tools, 'context'>): Promise<ReadonlyMap<number, number>> {
  return new Map((await wholeTopic(source, config.topics.requests)).map(({ partition, to }) => [partition, to]));
}

/** Requests that workers have forwarded. */
interface Forwarded {
  readonly count: number;
  readonly due: readonly DueOffsets[];
  /** The offsets, in each partition, of those that are planned to be read again where they were first. */
  readonly copies: ReadonlyMap<number, ReadonlySet<number>>;
}

/**
 * The requests that workers have forwarded since these were the end offsets: how many, and how far each partition must
 * be read to answer them. An offset is committed only after the copy is acknowledged, so no copy of a read request is
 * missing.
 */
export async function forwardedSince(
  { source, config, context }: Tools,
  ends: ReadonlyMap<number, number>,
  plan: readonly PartitionPlan[],
): Promise<Forwarded> {
  const since = (await wholeTopic(source, config.topics.requests)).map((span) => ({
    ...span,
    from: Math.max(span.from, ends.get(span.partition) ?? 0),
  }));
  const due = new Map<number, DueOffsets>();
  const copies = new Map<number, Set<number>>();
  let count = 0;
  await readSpans(source, since, {
    signal: context.stop,
    take: ({ partition, offset, headers }) => {
      if (!Object.hasOwn(headers, HOPS)) return;
      count += 1;
      due.set(partition, { partition, from: ends.get(partition) ?? 0, to: offset + 1 });
      const origin = unlessInvalid(() => readRoute(headers))?.origin; // an invalid one becomes a dead letter
      const isPlanned = (one: PartitionPlan) =>
        one.partition === origin?.partition && one.from <= origin.offset && origin.offset < one.to;
      if (plan.some(isPlanned)) copies.set(partition, (copies.get(partition) ?? new Set()).add(offset));
    },
  });
  return { count, copies, due: [...due.values()].toSorted((one, other) => one.partition - other.partition) };
}

/**
 * Resolves when the group has read what is due. `onLeft` gets the number of requests that are left.
 *
 * @throws IdallocError NO_REPLY without progress for `stallMs`; STOPPING.
 */
export async function caughtUp(
  { source, config, context }: Tools,
  due: readonly DueOffsets[],
  stallMs: number,
  onLeft: (left: number) => void,
): Promise<void> {
  let least = Number.POSITIVE_INFINITY;
  let movedMs = performance.now();
  for (;;) {
    const left = remaining(due, await committed(source, config, due));
    onLeft(left);
    if (left === 0) return;
    if (left < least) {
      least = left;
      movedMs = performance.now();
    }
    if (performance.now() - movedMs > stallMs) {
      const message = `workers made no progress for ${stallMs} ms (--stall-ms); ${left} requests still have to be read again`;
      throw new IdallocError('NO_REPLY', message);
    }
    if (context.stop.aborted)
      throw new IdallocError('STOPPING', `stopped by a signal; ${left} requests still have to be read again`);
    await sleep(POLL_MS);
  }
}

export interface Tools extends Pick<KafkaSession, 'source' | 'config'> {
  readonly context: Pick<CliContext, 'stop'>;
}

/**
 * What the ledger states of a request partition: the offset below which every request had been answered when it was
 * last replayed; 0 for nothing. It is of use only above `to`, the committed offset, where that replay is still in
 * progress: workers go by the last statement, so the next one must not say less.
 *
 * Such a statement is younger than the request at `to`. So the ledger is read from the time of that request on, and not
 * at all where no request waits.
 */
async function statedBelow(
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
  const take = (record: TopicRecord) => {
    below = readReplay(record) ?? below;
  };
  await readSpans(source, [{ ...whole, from }], { signal: context.stop, take });
  return below;
}

/** Markers of workers that are not in the group may come first: one since the plan was made, hardly more. */
const MAX_TRIES = 10;

/**
 * States in the ledger up to where each partition had been answered. Workers then refuse what they read below and do
 * not know. Resolves once every statement is acknowledged at its place; a statement without a replay changes nothing,
 * since nothing below is read.
 *
 * Rejects with APPEND_UNANSWERED if one may be missing, OVERTAKEN if all were void, TOPIC_INVALID without the right.
 */
async function stateAnswered(
  log: Pick<LedgerLog, 'append'>,
  plan: readonly Pick<PartitionPlan, 'partition' | 'below'>[],
  ledgerEnds: Prospect['ledgerEnds'],
): Promise<void> {
  for (const { partition, below } of plan) {
    let at = ledgerEnds.get(partition) ?? 0;
    for (let tries = 1; ; tries += 1) {
      const { baseOffset } = await log.append(partition, [replayRecord(below, at)]);
      if (baseOffset === at) break;
      const message = `others wrote to ledger partition ${partition} first ${tries} times: stop all workers, and try again`;
      if (tries === MAX_TRIES) throw new IdallocError('OVERTAKEN', message);
      at = baseOffset + 1;
    }
  }
}
