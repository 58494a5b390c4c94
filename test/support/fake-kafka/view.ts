import type { MetadataResponse, TopicMetadata } from '../../../src/kafka/wire/topic-apis.ts';
import type { Leadership, Partition } from './partition.ts';
import type { Topic } from './topic.ts';

/** The cluster as one broker sees it, which may be outdated. */
export interface View {
  /** Rises with each change. */
  readonly version: number;
  readonly nodes: readonly number[];
  readonly topics: ReadonlyMap<string, TopicView>;
  readonly coordinators: ReadonlyMap<string, number>;
}

interface TopicView {
  readonly topic: Topic;
  readonly leaders: readonly Leadership[];
}

export function viewOf(
  version: number,
  nodes: readonly number[],
  topics: Iterable<Topic>,
  coordinators: ReadonlyMap<string, number>,
): View {
  const views = [...topics].map((topic): [string, TopicView] => {
    return [topic.name, { topic, leaders: topic.partitions.map(({ leadership }) => leadership) }];
  });
  return { version, nodes, topics: new Map(views), coordinators: new Map(coordinators) };
}

/** A partition with its leader in this view; undefined if it does not exist in this view. */
export function partitionIn(
  view: View,
  topic: string,
  number: number,
): { readonly partition: Partition; readonly believed: Leadership } | undefined {
  const known = view.topics.get(topic);
  const [partition, believed] = [known?.topic.partitions[number], known?.leaders[number]];
  return partition === undefined || believed === undefined ? undefined : { partition, believed };
}

export function describeTopic(view: View, name: string): TopicMetadata {
  const known = view.topics.get(name);
  if (known === undefined) return { name, errorCode: 'UNKNOWN_TOPIC_OR_PARTITION', partitions: [] };
  const partitions = known.topic.partitions.slice(0, known.leaders.length).map(({ number, settings }, i) => {
    const { leader = -1, inSync = [] } = known.leaders[i] ?? {};
    return { partition: number, leader, replicas: settings.replicas, inSync };
  });
  return { name, partitions };
}

export function addressOf(node: number): MetadataResponse['brokers'][number] {
  return { nodeId: node, host: `broker-${node}`, port: 9092 };
}
