import type { Clockwork } from './clockwork.ts';
import { Partition } from './partition.ts';

/** The brokers' defaults of topic configs. */
const DEFAULTS = {
  'cleanup.policy': 'delete',
  'compression.type': 'producer',
  'max.message.bytes': '1048588',
  'message.timestamp.before.max.ms': '9223372036854775807',
  'message.timestamp.type': 'CreateTime',
  'min.cleanable.dirty.ratio': '0.5',
  'min.insync.replicas': '1',
  'retention.bytes': '-1',
  'retention.ms': '604800000',
  'segment.ms': '604800000',
  'unclean.leader.election.enable': 'false',
};

export interface TopicOptions {
  readonly partitions?: number;
  /** Replicas of each partition; by default as many as brokers, up to three. */
  readonly replicas?: number;
  readonly configs?: Readonly<Record<string, string>>;
}

export interface TopicPlace {
  readonly nodes: readonly number[];
  readonly clock: Clockwork;
  readonly live: (node: number) => boolean;
  readonly replicationMs: () => number;
}

/** A topic; the brokers lead its partitions in turn. */
export class Topic {
  readonly name: string;
  readonly options: TopicOptions;
  /** What the topic reports. A change has no effect on its partitions. */
  readonly configs: Map<string, string>;
  readonly partitions: Partition[] = [];
  readonly #create: (number: number) => Partition;

  constructor(name: string, options: TopicOptions, { nodes, clock, live, replicationMs }: TopicPlace) {
    this.name = name;
    this.options = options;
    const configs: typeof DEFAULTS = { ...DEFAULTS, ...options.configs };
    this.configs = new Map(Object.entries(configs));
    const copies = options.replicas ?? Math.min(nodes.length, 3);
    this.#create = (number) => {
      const replicas = Array.from({ length: copies }, (_, i) => nodes[(number + i) % nodes.length] as number);
      const settings = {
        replicas,
        minInSync: Number(configs['min.insync.replicas']),
        stampsTime: configs['message.timestamp.type'] === 'LogAppendTime',
        isCompacted: configs['cleanup.policy'].split(',').includes('compact'),
        oldestMs: Number(configs['message.timestamp.before.max.ms']),
        maxBatchBytes: Number(configs['max.message.bytes']),
        replicationMs,
      };
      return new Partition({ topic: name, number }, settings, clock, live);
    };
    this.grow(options.partitions ?? 1);
  }

  /** Adds partitions, up to this number. */
  grow(partitions: number): void {
    while (this.partitions.length < partitions) this.partitions.push(this.#create(this.partitions.length));
  }
}
