import { headOf } from '../support/fake-kafka/batches.ts';
import type { Partition } from '../support/fake-kafka/partition.ts';
import type { PartitionLog } from '../support/fake-kafka/partition-log.ts';
import type { Brokers } from './brokers.ts';
import type { History } from './history.ts';
import { FIRST, partitionsOf } from './pairs.ts';
import { WITNESS } from './setting.ts';
import type { World } from './world.ts';

/** How a new cluster got its records: from a mirror that keeps offsets, from one that does not, or not at all. */
export type Copying = 'same' | 'shifted' | 'none';

/** The most records by which a copy of a partition lags. */
const MOST_LAG = 8;
/** Logs that are copied with other offsets have lost at most so many records at their heads. */
const MOST_SHIFT = 12;
/** The share of copies that lack the offsets that the group committed. */
const WITHOUT_OFFSETS = 0.3;

/** A log of the old cluster, and its copy. */
interface Mirrored {
  readonly what: 'requests' | 'ledger';
  readonly partition: number;
  readonly from: Partition;
  readonly end: number;
  readonly committed: number | undefined;
}

/**
 * Replaces the cluster by another one with another ID, as a failover to a mirror does. What the new one lacks is lost:
 * in the history that is a loss of each partition's tail, or of all of it where offsets differ. Records at other
 * offsets are written anew.
 */
export function replaceCluster(
  { world, brokers, history }: { readonly world: World; readonly brokers: Brokers; readonly history: History },
  copying: Copying,
): void {
  const { rng } = world;
  const { cluster } = brokers;
  const replies = [...cluster.topics.values()].filter(({ name }) => brokers.isOfClients(name));
  const mirrored = partitionsOf(FIRST).flatMap((partition): Mirrored[] =>
    (['requests', 'ledger'] as const).map((what) => {
      const from = brokers.partition(what, partition);
      if (copying === 'shifted') from.log.trim(Math.min(from.highWatermark, from.log.start + rng.below(MOST_SHIFT)));
      const committed = what === 'requests' ? brokers.committed(partition) : undefined;
      return { what, partition, from, end: endOfCopy(from, rng.chance(0.3) ? 0 : rng.below(MOST_LAG)), committed };
    }),
  );
  const added = cluster.topics.get(FIRST.requests)?.partitions.slice(FIRST.partitions) ?? [];
  const witness = cluster.partition(WITNESS, 0);
  const clusterId = `fake-kafka-${history.replacements.length + 2}`;
  cluster.replace(clusterId);
  world.note(
    () =>
      `the cluster is replaced by ${clusterId}, ${copying === 'none' ? 'which is empty' : `a copy with ${copying} offsets`}`,
  );
  history.replacements.push({ order: world.tick(), clusterId, copying });
  // Their readers are elsewhere: what they have read stays read.
  for (const { name, partitions } of replies) {
    for (const { number, log } of partitions) cluster.partition(name, number).copy(log);
  }
  // What was sent to partitions that were added by mistake waits there for the next owner.
  for (const { number, log } of added) cluster.partition(FIRST.requests, number).copy(log);
  if (copying !== 'none') cluster.partition(WITNESS, 0).copy(witness.log);
  const keepsOffsets = copying !== 'none' && !rng.chance(WITHOUT_OFFSETS);
  for (const one of mirrored) mirror(brokers, world, one, { copying, keepsOffsets });
}

function mirror(
  brokers: Brokers,
  world: World,
  { what, partition, from, end, committed }: Mirrored,
  { copying, keepsOffsets }: { readonly copying: Copying; readonly keepsOffsets: boolean },
): void {
  const to = brokers.partition(what, partition);
  const { start } = from.log;
  brokers.lost(what, partition, { from: copying === 'same' ? end : 0, end: from.log.end });
  if (copying === 'same') {
    to.copy(from.log);
    if (end < to.log.end) to.truncate(end);
  }
  if (copying === 'shifted') {
    const nowMs = brokers.nowMs();
    for (const batch of from.log.batches(start, end)) {
      // Retention leaves the batch that contains the start of the log; a mirror reads none of what is below that.
      if (headOf(batch).baseOffset >= start) to.append(batch, nowMs, () => {});
    }
  }
  // Their markers may be in what was lost.
  for (const producerId of to.log.open) {
    const kind = brokers.transactions.get(producerId) ?? 'abort';
    brokers.cluster.endTransaction(to.topic, to.number, kind, producerId);
  }
  world.note(() => `${what} ${partition}: ${start} to ${from.log.end} became ${to.log.start} to ${to.log.end}`);
  if (what === 'ledger' || !keepsOffsets || committed === undefined) return;
  const at = copying === 'same' ? committed : Math.max(0, committed - start);
  brokers.resetOffsets(partition, Math.min(at, to.log.end));
}

/** A copy lags by whole batches. */
function endOfCopy({ log, highWatermark }: Pick<Partition, 'log' | 'highWatermark'>, lag: number): number {
  return baseOf(log, Math.max(log.start, highWatermark - lag));
}

/** The first offset of the batch that contains this one. */
function baseOf(log: PartitionLog, offset: number): number {
  const [batch] = log.batches(offset, offset + 1);
  return batch === undefined ? offset : Math.max(log.start, headOf(batch).baseOffset);
}
