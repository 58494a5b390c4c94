import { setTimeout as pause } from 'node:timers/promises';
import { encodeBatch } from '../../../src/kafka/records/encode.ts';
import type { BrokerResponse } from '../../../src/kafka/wire/api.ts';
import type { Purpose } from '../../../src/kafka/wire/broker.ts';
import { Cluster } from '../../../src/kafka/wire/cluster.ts';
import { kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { BrokerAddress, BrokerLink, Dialer } from '../../../src/kafka/wire/port.ts';
import type { FetchedPartition, FetchResponse } from '../../../src/kafka/wire/record-apis.ts';
import { RUNTIME } from '../../../src/runtime.ts';
import { unique } from '../unique.ts';

/** Brokers under test. */
export interface WireSubject {
  readonly dialer: Dialer;
  readonly seeds: readonly BrokerAddress[];
  /** Replicas of each new topic; 1 by default. */
  readonly replicas?: number;
  close(): Promise<void> | void;
}

export const CALL_MS = 30_000;
const POLL_MS = 20;
const POLLS = 1_500;
let names = 0;

/** What the cases share: topics and groups with unique names, and calls to the right broker. */
export class WireStage {
  readonly subject: WireSubject;
  readonly cluster: Cluster;
  readonly #mark = unique();

  constructor(subject: WireSubject) {
    this.subject = subject;
    this.cluster = new Cluster({ dialer: subject.dialer, seeds: subject.seeds, runtime: RUNTIME });
  }

  async close(): Promise<void> {
    await this.cluster.close();
    await this.subject.close();
  }

  name(of: string): string {
    names += 1;
    return `${of}-${this.#mark}-${names}`;
  }

  /** Creates a topic, and waits until all of its partitions have leaders that know it. */
  async topic(partitions = 1, configs: Readonly<Record<string, string>> = {}): Promise<string> {
    const name = this.name('topic');
    const topics = [{ name, partitions, replicas: this.subject.replicas ?? 1, configs }];
    const { controllerId } = await this.cluster.metadata([], CALL_MS);
    const answer = await this.cluster.call(controllerId, 'control', CALL_MS, (link) =>
      link.call('createTopics', { topics, timeoutMs: CALL_MS }),
    );
    if (answer.topics[0]?.errorCode !== undefined) throw new Error(`${name}: ${answer.topics[0].errorCode}`);
    for (let at = 0; at < partitions; at += 1) {
      await eventually(async () => (await this.end(name, at)) === 0);
    }
    return name;
  }

  /** Calls the leader, on a separate connection for each purpose, which here may have any name. */
  async onLeader<R extends BrokerResponse>(
    topic: string,
    partition: number,
    use: (link: BrokerLink) => Promise<R>,
    purpose = 'control',
  ): Promise<R> {
    return this.cluster.call(await this.cluster.leader(topic, partition, CALL_MS), purpose as Purpose, CALL_MS, use);
  }

  async onCoordinator<R extends BrokerResponse>(
    groupId: string,
    use: (link: BrokerLink) => Promise<R>,
    purpose = 'control',
  ): Promise<R> {
    return this.cluster.call(await this.cluster.coordinator(groupId, CALL_MS), purpose as Purpose, CALL_MS, use);
  }

  /** A group whose coordinator has loaded its groups. */
  async group(): Promise<string> {
    const groupId = this.name('group');
    await eventually(async () => {
      try {
        const { groups } = await this.onCoordinator(groupId, (link) =>
          link.call('describeGroups', { groupIds: [groupId] }),
        );
        return groups.every(({ errorCode }) => errorCode === undefined || errorCode === 'GROUP_ID_NOT_FOUND');
      } catch (error) {
        if (!COORDINATOR_FAULTS.has(String(kafkaErrorCode(error)))) throw error;
        this.cluster.forgetCoordinator(groupId);
        return false;
      }
    });
    return groupId;
  }

  async end(topic: string, partition: number): Promise<number | undefined> {
    const partitions = [{ topic, partition, timestampMs: -1 }];
    try {
      const answer = await this.onLeader(topic, partition, (link) =>
        link.call('listOffsets', { isolation: 'read_uncommitted', partitions }),
      );
      const { errorCode, offset } = only(answer.partitions);
      if (errorCode === undefined) return offset;
    } catch (error) {
      if (!LEADER_FAULTS.has(String(kafkaErrorCode(error)))) throw error;
    }
    this.cluster.markStale(topic);
    return undefined;
  }

  produce(topic: string, partition: number, batch: Buffer, purpose = 'append') {
    const request = { topic, partition, batch, acks: -1, timeoutMs: CALL_MS } as const;
    return this.onLeader(topic, partition, (link) => link.call('produce', request), purpose);
  }

  async fetch(topic: string, partition: number, offset: number, more: Partial<FetchLimits> = {}): Promise<Fetched> {
    const { maxWaitMs, maxBytes, isolation, purpose } = { ...FETCH_LIMITS, ...more };
    const partitions = [{ topic, partition, offset, maxBytes }];
    const answer = await this.onLeader(
      topic,
      partition,
      (link) => link.call('fetch', { maxWaitMs, maxBytes, isolation, partitions }),
      purpose,
    );
    return { ...only(answer.partitions), throttleMs: answer.throttleMs };
  }
}

const COORDINATOR_FAULTS: ReadonlySet<string> = new Set([
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'GROUP_LOAD_IN_PROGRESS',
  'NOT_COORDINATOR_FOR_GROUP',
]);
const LEADER_FAULTS: ReadonlySet<string> = new Set(['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE']);

export type Fetched = FetchedPartition & Pick<FetchResponse, 'throttleMs'>;

interface FetchLimits {
  readonly maxWaitMs: number;
  readonly maxBytes: number;
  readonly isolation: 'read_committed' | 'read_uncommitted';
  readonly purpose: string;
}

const FETCH_LIMITS: FetchLimits = {
  maxWaitMs: 500,
  maxBytes: 1024 * 1024,
  isolation: 'read_uncommitted',
  purpose: 'requests',
};

/** The only item; throws if there is not exactly one. */
export function only<T>(items: readonly T[]): T {
  const [item] = items;
  if (item === undefined || items.length !== 1) throw new Error(`${items.length} items instead of one`);
  return item;
}

/** A batch of records with these values and that timestamp. */
export function batchOf(values: readonly string[], timestampMs = 1_700_000_000_000): Buffer {
  return encodeBatch(
    values.map((value) => ({ key: null, value: Buffer.from(value) })),
    timestampMs,
  );
}

/** The name of the fault of a call, or its answer, so that a failing test shows it. */
export function faultFrom(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    (answer) => answer,
    (error: unknown) => kafkaErrorCode(error) ?? error,
  );
}

export async function eventually(holds: () => Promise<boolean>): Promise<void> {
  for (let polls = 0; polls < POLLS; polls += 1) {
    if (await holds()) return;
    await pause(POLL_MS);
  }
  throw new Error('the condition does not hold in time');
}
