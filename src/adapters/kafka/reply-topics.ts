import type { Runtime } from '../../async/runtime.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { Cluster } from '../../kafka/wire/cluster.ts';
import { meaningOf } from '../../kafka/wire/error-codes.ts';
import type { KafkaErrorCode } from '../../kafka/wire/kafka-error.ts';
import type { TopicMetadata } from '../../kafka/wire/topic-apis.ts';

/** Whether a topic can be written to, and if not, whether that may be temporary. */
export type TopicStatus =
  /** On probation: it was marked unwritable before and has not accepted a record since. */
  | { readonly kind: 'writable'; readonly partitions: number; readonly onProbation: boolean }
  | { readonly kind: 'unwritable'; readonly reason: string; readonly isMissing?: true }
  /** Temporary, during a leader election; a topic that stays leaderless counts as unwritable. */
  | { readonly kind: 'leaderless'; readonly sinceMs: number };

const LOOKUP_TIMEOUT_MS = 10_000;
/** How long a status is cached; that of a missing topic for a moment, so that a burst of requests causes one lookup. */
const MAX_AGE_MS = { writable: 60_000, unwritable: 2_000, leaderless: 200 } as const;
/**
 * A topic that lacks a requested partition is looked up again after this, and no sooner: whoever names it may name any.
 */
const GROWTH_AGE_MS = 2_000;
/** How long a topic is not retried after a write to it failed. */
const UNWRITABLE_MAX_AGE_MS = 10_000;
/** Requests may name any topics, so the cache is bounded; those that exist are no more than the brokers keep. */
const MAX_REMEMBERED = { existing: 10_000, missing: 1_000 } as const;

type ByName = ReadonlyMap<string, TopicMetadata>;

interface Remembered {
  readonly status: TopicStatus;
  readonly sinceMs: number;
  readonly untilMs: number;
  readonly isUnwritable: boolean;
}

/** The cached status of the reply topics. Those that are asked for in one turn are looked up in one call. */
export class ReplyTopics {
  readonly #cluster: Pick<Cluster, 'metadataForUse'>;
  readonly #runtime: Pick<Runtime, 'monotonicMs'>;
  /** Oldest first. Missing topics are apart: whoever names many of them must not push out those of others. */
  readonly #remembered = { existing: new Map<string, Remembered>(), missing: new Map<string, Remembered>() };
  readonly #pending = new Map<string, Promise<TopicStatus>>();
  /** The topics to look up together at the end of this turn, and the answer to come. */
  #gathering: { readonly topics: Set<string>; readonly found: Promise<ByName> } | undefined;

  constructor(cluster: Pick<Cluster, 'metadataForUse'>, runtime: Pick<Runtime, 'monotonicMs'>) {
    this.#cluster = cluster;
    this.#runtime = runtime;
  }

  /**
   * The status, which may be cached. If it has no partition `partition`, partitions may have been added since: it is
   * looked up again, unless that was a moment ago. Rejects with KAFKA_UNAVAILABLE when the brokers do not answer.
   */
  async status(topic: string, partition = 0): Promise<TopicStatus> {
    const known = this.#known(topic);
    if (known !== undefined && this.#isCurrent(known, partition)) return known.status;
    const before = this.#pending.get(topic);
    if (before !== undefined) return await before;
    const lookup = this.#lookUp(topic).finally(() => this.#pending.delete(topic));
    this.#pending.set(topic, lookup);
    return await lookup;
  }

  /** Whether the topic is there to be described. Rejects as `status` does. */
  async exists(topic: string): Promise<boolean> {
    const status = await this.status(topic);
    return status.kind !== 'unwritable' || status.isMissing !== true;
  }

  /** Whether the topic was there when it was last looked up. */
  isKnown(topic: string): boolean {
    return this.#remembered.existing.has(topic);
  }

  /**
   * A write to the topic failed: its cached status has expired, except for how long it has been leaderless or
   * unwritable.
   */
  invalidate(topic: string): void {
    const known = this.#known(topic);
    if (known !== undefined) this.#remember(topic, known.status, 0, known.isUnwritable);
  }

  /** Writes have shown that the topic can't accept records, whatever its metadata say. */
  markUnwritable(topic: string, reason: string): void {
    this.#remember(topic, { kind: 'unwritable', reason }, UNWRITABLE_MAX_AGE_MS, true);
  }

  /** The topic has accepted records again. */
  clear(topic: string): void {
    for (const cache of Object.values(this.#remembered)) cache.delete(topic);
  }

  #known(topic: string): Remembered | undefined {
    return this.#remembered.existing.get(topic) ?? this.#remembered.missing.get(topic);
  }

  #isCurrent({ status, sinceMs, untilMs }: Remembered, partition: number): boolean {
    const nowMs = this.#runtime.monotonicMs();
    if (nowMs >= untilMs) return false;
    return status.kind !== 'writable' || partition < status.partitions || nowMs < sinceMs + GROWTH_AGE_MS;
  }

  async #lookUp(topic: string): Promise<TopicStatus> {
    const found = await this.#describe(topic);
    const known = this.#known(topic);
    const isUnwritable = known?.isUnwritable === true;
    const status = this.#judge(topic, found, known);
    this.#remember(topic, status, MAX_AGE_MS[status.kind], isUnwritable);
    return status;
  }

  /** The number of its partitions, or its error in the metadata. */
  async #describe(topic: string): Promise<number | KafkaErrorCode> {
    try {
      const found = (await this.#metadata(topic)).get(topic);
      if (found === undefined) return 'UNKNOWN_TOPIC_OR_PARTITION';
      if (found.errorCode !== undefined) return found.errorCode;
      return found.partitions.some(({ leader }) => leader === -1) ? 'LEADER_NOT_AVAILABLE' : found.partitions.length;
    } catch (error) {
      const message = `topic ${topic} could not be looked up: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }

  #metadata(topic: string): Promise<ByName> {
    const gathering = this.#gathering ?? this.#gather();
    this.#gathering = gathering;
    gathering.topics.add(topic);
    return gathering.found;
  }

  #gather() {
    const topics = new Set<string>();
    const found = Promise.resolve().then(async () => {
      this.#gathering = undefined;
      const response = await this.#cluster.metadataForUse([...topics], LOOKUP_TIMEOUT_MS);
      return new Map(response.topics.map((topic) => [topic.name, topic]));
    });
    return { topics, found };
  }

  #judge(topic: string, found: number | KafkaErrorCode, known: Remembered | undefined): TopicStatus {
    if (found === 0) return missing(topic);
    if (typeof found === 'number') {
      return { kind: 'writable', partitions: found, onProbation: known?.isUnwritable === true };
    }
    const { isAbsent, isDenied } = meaningOf(found);
    if (isDenied) return denied(topic);
    if (isAbsent) return missing(topic);
    if (known?.status.kind === 'leaderless') return known.status;
    return { kind: 'leaderless', sinceMs: this.#runtime.monotonicMs() };
  }

  #remember(topic: string, status: TopicStatus, maxAgeMs: number, isUnwritable: boolean): void {
    this.clear(topic); // so that the order is by age
    const sinceMs = this.#runtime.monotonicMs();
    const kind = status.kind === 'unwritable' && status.isMissing === true ? 'missing' : 'existing';
    const cache = this.#remembered[kind];
    const [oldest] = cache.size < MAX_REMEMBERED[kind] ? [] : cache;
    if (oldest !== undefined) {
      // Else, of topics that are named in turn, a few more than there is room for would push out all others.
      if (status.kind === 'writable' && sinceMs < oldest[1].untilMs) return;
      cache.delete(oldest[0]);
    }
    cache.set(topic, { status, sinceMs, untilMs: sinceMs + maxAgeMs, isUnwritable });
  }
}

const missing = (topic: string): TopicStatus => ({
  kind: 'unwritable',
  reason: `topic ${topic} does not exist or can't be seen: create it with 'idalloc topics init --reply-topic ${topic}'`,
  isMissing: true,
});

const denied = (topic: string): TopicStatus => ({
  kind: 'unwritable',
  reason: `the worker may not describe topic ${topic}: allow Describe on it`,
  isMissing: true,
});
