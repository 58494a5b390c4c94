import type { Runtime } from '../async/runtime.ts';
import { every } from '../async/waiting.ts';
import { IdallocError } from '../errors.ts';
import type { Cluster } from '../kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import type { Log } from '../log.ts';

export interface PartitionCountsOptions {
  readonly cluster: Pick<Cluster, 'partitions'>;
  readonly runtime: Pick<Runtime, 'schedule'>;
  readonly log: Log;
  readonly topics: { readonly requests: string; readonly ledger: string };
  /** The partitions of each of the two topics that are served. */
  readonly partitions: number;
  /** Called after each change of `added`. */
  readonly onAdded: () => void;
  /** Called with TOPIC_INVALID. */
  readonly fail: (error: unknown) => void;
}

/** Each look reads the cached metadata, which the cluster renews every 10 s for the topics in use. */
const LOOK_MS = 1_000;
const LOOKUP_TIMEOUT_MS = 5_000;

const COUNTED = ['requests', 'ledger'] as const;
export type CountedTopic = (typeof COUNTED)[number];

/**
 * Compares the partition counts of the request topic and the ledger with what is served, and reports a difference
 * within about 11 s.
 *
 * More partitions endanger nothing: homes are computed with the count that is bound in etcd, by every worker, whenever
 * it started. A request that comes to another partition than its home is forwarded, also from an added one. Fewer
 * partitions mean another topic of this name, without what was decided: the worker ends.
 */
export class PartitionCounts implements Disposable {
  readonly #options: PartitionCountsOptions;
  readonly #added = new Map<CountedTopic, number>();
  readonly #looking: Disposable;
  #disposed = false;

  constructor(options: PartitionCountsOptions) {
    this.#options = options;
    this.#looking = every(options.runtime, LOOK_MS, () => this.#look().catch(options.fail));
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    this.#looking[Symbol.dispose]();
  }

  /** How many partitions each topic has beyond those that are bound. */
  get added(): ReadonlyMap<CountedTopic, number> {
    return this.#added;
  }

  /** What has changed and what to do; undefined for no change. */
  get detail(): string | undefined {
    const { topics, partitions } = this.#options;
    const changes = [...this.#added].map(([topic, added]) => changed(topics[topic], partitions + added, partitions));
    if (changes.length === 0) return undefined;
    const detour = this.#added.has('requests') ? ', and forward the requests of the others to them' : '';
    return `${changes.join(', ')}: workers serve the first ${partitions}${detour}; to end that, create a second pair of topics, see docs/how-to/pair-of-topics.md`;
  }

  async #look(): Promise<void> {
    for (const topic of COUNTED) {
      const count = await this.#count(this.#options.topics[topic]);
      if (count !== undefined && !this.#disposed) this.#compare(topic, count);
    }
  }

  /** Undefined while the brokers don't say: others report that. */
  async #count(topic: string): Promise<number | undefined> {
    try {
      return await this.#options.cluster.partitions(topic, LOOKUP_TIMEOUT_MS);
    } catch (error) {
      if (kafkaErrorCode(error) === undefined) throw error;
      return undefined;
    }
  }

  /** A broker that lags behind reports the count before: what was added stays. */
  #compare(topic: CountedTopic, count: number): void {
    const { topics, partitions, log } = this.#options;
    const name = topics[topic];
    if (count < partitions) {
      const message = `${changed(name, count, partitions)}: it was deleted and created again; ledger and request topic must have the count that they were created with`;
      throw new IdallocError('TOPIC_INVALID', message);
    }
    if (count - partitions <= (this.#added.get(topic) ?? 0)) return;
    this.#added.set(topic, count - partitions);
    this.#options.onAdded();
    const fields = { code: 'TOPIC_INVALID', topic: name, partitions: count, served: partitions };
    log.error({ ...fields, error: this.detail }, 'partitions were added to a topic');
  }
}

function changed(topic: string, count: number, before: number): string {
  return `topic '${topic}' has ${count} partitions instead of ${before}`;
}
