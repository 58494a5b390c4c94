import { expect } from 'vitest';
import type { Followed } from './followed.ts';
import type { KafkaCluster } from './kafka-cluster.ts';
import { Realm, type RealmOptions } from './realm.ts';
import { following, Scene } from './scene.ts';
import { suiteServers } from './servers.ts';

export const PARTITIONS = 3;
const REPLICAS = 3;
/** How a test waits for a state of the cluster. */
export const UNTIL = { timeout: 150_000, interval: 50 };

/** A realm on the three brokers, with a worker. */
export class ClusterScene extends Scene {
  readonly worker = this.start();

  static async on(cluster: KafkaCluster, options: RealmOptions = {}): Promise<ClusterScene> {
    const servers = { ...suiteServers(), brokers: cluster.brokers };
    const realm = await Realm.create(servers, { partitions: PARTITIONS, replicas: REPLICAS, ...options });
    return new ClusterScene(await following(realm, servers));
  }

  /** Leader and in-sync replicas of each partition, by its number. */
  async places(topic: string): Promise<ReadonlyMap<number, { leader: number; isr: readonly number[] }>> {
    const { topics } = await this.realm.admin.fetchTopicMetadata({ topics: [topic] });
    return new Map(topics.flatMap(({ partitions }) => partitions.map((one) => [one.partitionId, one])));
  }

  async allInSync(): Promise<void> {
    const topics = [this.realm.requestTopic, this.realm.ledgerTopic, this.realm.replyTopic, '__consumer_offsets'];
    for (const topic of topics) {
      const inSync = async () => [...(await this.places(topic)).values()].every(({ isr }) => isr.length === REPLICAS);
      await expect.poll(inSync, UNTIL).toBe(true);
    }
  }
}

/**
 * Makes a broker the first choice as the leader of all partitions of these topics, or the last. Resolves when that is
 * so, and all replicas are in sync. The controller moves a leadership at once if the leader is no replica any more, and
 * else only when it next looks for imbalance.
 */
export async function lead(
  realm: Realm,
  { always, never }: { readonly always?: number; readonly never?: number },
  topics: string[],
): Promise<void> {
  const partitionsOf = async () => {
    const metadata = await realm.admin.fetchTopicMetadata({ topics });
    return metadata.topics.flatMap(({ name, partitions }) => partitions.map((one) => ({ topic: name, ...one })));
  };
  const rank = (node: number) => (node === always ? -1 : node === never ? 1 : 0);
  const isRight = (leader: number) => (always === undefined ? leader !== never : leader === always);
  const before = await partitionsOf();
  const place = async (isReplica: (node: number, leader: number) => boolean) => {
    const byTopic = Map.groupBy(before, ({ topic }) => topic);
    const ordered = [...byTopic].map(([topic, partitions]) => ({
      topic,
      partitionAssignment: partitions.map(({ partitionId: partition, replicas, leader }) => {
        const kept = replicas.filter((node) => isReplica(node, leader));
        return { partition, replicas: kept.toSorted((one, other) => rank(one) - rank(other)) };
      }),
    }));
    await realm.admin.alterPartitionReassignments({ topics: ordered });
    const isDone = async () =>
      (await partitionsOf()).every(({ leader, isr, replicas }) => isRight(leader) && isr.length === replicas.length);
    await expect.poll(isDone, UNTIL).toBe(true);
  };
  await place((node, leader) => node !== leader || isRight(leader));
  await place(() => true);
}

/** The time from `sinceMs` to the first decision in one of the partitions, by the brokers' clock, which is ours. */
export async function firstDecision(
  ledger: Followed,
  partitions: ReadonlySet<number>,
  sinceMs: number,
): Promise<number> {
  const timesOf = (seen: Followed['seen']) =>
    seen
      .filter(({ partition, message }) => partitions.has(partition) && message.key !== null)
      .map(({ message }) => Number(message.timestamp))
      .filter((timeMs) => timeMs > sinceMs);
  await ledger.until('a decision after the fault', (seen) => timesOf(seen).length > 0);
  return Math.min(...timesOf(ledger.seen)) - sinceMs;
}
