import type { Admin, Kafka } from 'kafkajs';
import { describeError, IdallocError } from '../../errors.ts';
import { brokerFault } from './broker-fault.ts';

/** How a topic stands: whether it can be written to, and if not, whether that may pass. */
export type Standing =
  /** On probation it was accused before and has not taken a record since. */
  | { readonly kind: 'well'; readonly partitions: number; readonly onProbation: boolean }
  | { readonly kind: 'bad'; readonly reason: string }
  /** An election is due; a topic that stays so is as bad as one that is missing. */
  | { readonly kind: 'leaderless'; readonly sinceMs: number };

/** How long a standing is believed; a missing topic stays so for a moment, so that a burst of requests asks once. */
const MAX_AGE_MS = { well: 60_000, bad: 2_000, leaderless: 200 } as const;
/** How long a topic that was found unfit by writing to it is not tried again. */
const ACCUSED_MAX_AGE_MS = 10_000;
/** Requests may name any number of topics; what is remembered of them is bounded. */
const MAX_REMEMBERED = 1_000;

interface Remembered {
  readonly standing: Standing;
  readonly untilMs: number;
  readonly isAccused: boolean;
}

/** What is known of the topics that replies go to, by asking the brokers about one at a time. */
export class ReplyTopics {
  readonly #kafka: Pick<Kafka, 'admin'>;
  readonly #monotonicMs: () => number;
  readonly #remembered = new Map<string, Remembered>();
  #admin: Promise<Admin> | undefined;

  constructor(kafka: Pick<Kafka, 'admin'>, monotonicMs: () => number) {
    this.#kafka = kafka;
    this.#monotonicMs = monotonicMs;
  }

  /** Rejects with KAFKA_UNAVAILABLE when the brokers do not tell. */
  async standing(topic: string): Promise<Standing> {
    const known = this.#remembered.get(topic);
    if (known !== undefined && this.#monotonicMs() < known.untilMs) return known.standing;
    const standing = await this.#ask(topic, known);
    this.#remember(topic, standing, MAX_AGE_MS[standing.kind], known?.isAccused);
    return standing;
  }

  /** Writing to the topic failed: what was known of it holds no longer, except since when it is in trouble. */
  doubt(topic: string): void {
    const known = this.#remembered.get(topic);
    if (known !== undefined) this.#remember(topic, known.standing, 0, known.isAccused);
  }

  /** Writing to the topic has shown that it can't take records, whatever its metadata say. */
  accuse(topic: string, reason: string): void {
    this.#remember(topic, { kind: 'bad', reason }, ACCUSED_MAX_AGE_MS, true);
  }

  /** The topic has taken records again. */
  acquit(topic: string): void {
    this.#remembered.delete(topic);
  }

  async close(): Promise<void> {
    const admin = await this.#admin?.catch(() => undefined); // one that never connected was told to its users
    await admin?.disconnect();
  }

  async #ask(topic: string, before: Remembered | undefined): Promise<Standing> {
    try {
      const admin = await this.#connected();
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
      const partitions = topics.find(({ name }) => name === topic)?.partitions.length ?? 0;
      if (partitions === 0) return missing(topic);
      return { kind: 'well', partitions, onProbation: before?.isAccused === true };
    } catch (error) {
      const fault = brokerFault(error);
      if (fault === 'UNKNOWN_TOPIC_OR_PARTITION' || fault === 'INVALID_TOPIC_EXCEPTION') return missing(topic);
      if (fault === 'TOPIC_AUTHORIZATION_FAILED') return denied(topic);
      if (fault === 'LEADER_NOT_AVAILABLE') {
        return before?.standing.kind === 'leaderless'
          ? before.standing
          : { kind: 'leaderless', sinceMs: this.#monotonicMs() };
      }
      const message = `can't look up topic ${topic}: ${describeError(error)}`;
      throw new IdallocError('KAFKA_UNAVAILABLE', message, { cause: error });
    }
  }

  async #connected(): Promise<Admin> {
    this.#admin ??= this.#connect();
    try {
      return await this.#admin;
    } catch (error) {
      this.#admin = undefined;
      throw error;
    }
  }

  async #connect(): Promise<Admin> {
    const admin = this.#kafka.admin();
    await admin.connect();
    return admin;
  }

  #remember(topic: string, standing: Standing, maxAgeMs: number, isAccused = false): void {
    this.#remembered.delete(topic); // so that the order is by age
    if (this.#remembered.size >= MAX_REMEMBERED) {
      const [oldest] = this.#remembered.keys();
      if (oldest !== undefined) this.#remembered.delete(oldest);
    }
    this.#remembered.set(topic, { standing, untilMs: this.#monotonicMs() + maxAgeMs, isAccused });
  }
}

const missing = (topic: string): Standing => ({
  kind: 'bad',
  reason: `topic ${topic} does not exist or can't be seen: create it`,
});

const denied = (topic: string): Standing => ({
  kind: 'bad',
  reason: `topic ${topic} may not be described by the worker: allow it`,
});
