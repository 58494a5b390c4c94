import { Mutex } from '../../async/mutex.ts';
import type { Runtime } from '../../async/runtime.ts';
import { describeError } from '../../errors.ts';
import type { BrokerResponse } from '../wire/api.ts';
import type { Purpose, WireLog } from '../wire/broker.ts';
import type { Cluster } from '../wire/cluster.ts';
import { isUncoordinated } from '../wire/error-codes.ts';
import type { MemberRequest } from '../wire/group-apis.ts';
import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { BrokerLink } from '../wire/port.ts';

/** The part of a cluster that a group needs. */
export type GroupCluster = Pick<Cluster, 'callCoordinator' | 'forgetCoordinator'>;

/** An answer of the coordinator counts for this long. */
const RECENT_MS = 1_000;

/** The coordinator of one group, and when it answered last. */
export class Coordinator {
  readonly groupId: string;
  readonly #cluster: GroupCluster;
  readonly #runtime: Runtime;
  #respondedMs = Number.NEGATIVE_INFINITY;

  constructor(cluster: GroupCluster, runtime: Runtime, groupId: string) {
    this.#cluster = cluster;
    this.#runtime = runtime;
    this.groupId = groupId;
  }

  /** Makes one call: see `Cluster.callCoordinator`. */
  async call<R extends BrokerResponse>(
    purpose: Purpose,
    timeoutMs: number,
    use: (link: BrokerLink) => Promise<R>,
  ): Promise<R> {
    try {
      const response = await this.#cluster.callCoordinator(this.groupId, purpose, timeoutMs, use);
      this.#respondedMs = this.#runtime.monotonicMs();
      return response;
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (errorCode !== undefined && !isUncoordinated(errorCode)) this.#respondedMs = this.#runtime.monotonicMs();
      throw error;
    }
  }

  /** Takes note of an error that was returned for a part of a call. */
  noteError(errorCode: KafkaErrorCode): void {
    if (isUncoordinated(errorCode)) this.#cluster.forgetCoordinator(this.groupId);
  }

  /** Rejects unless the coordinator answers, or did so within the last second. An error counts as an answer. */
  async ping(timeoutMs: number): Promise<void> {
    if (this.#runtime.monotonicMs() - this.#respondedMs < RECENT_MS) return;
    const nonMember = { groupId: this.groupId, generation: -1, memberId: '' };
    try {
      await this.call('control', timeoutMs, (link) => link.call('heartbeat', nonMember));
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (errorCode === undefined || isUncoordinated(errorCode)) throw error;
    }
  }

  /** Asks to remove a member from the group, if it has an ID there. Never rejects. */
  async leave({ memberId, instanceId }: MemberRequest, limitMs: number, log: WireLog): Promise<void> {
    if (memberId === '' && instanceId === undefined) return;
    const { groupId } = this;
    const leaving = { groupId, memberId, instanceId };
    try {
      await this.call('control', limitMs, (link) => link.call('leaveGroup', leaving));
    } catch (error) {
      log('debug', { groupId, error: describeError(error) }, 'leaving the group failed');
    }
  }
}

/** A committed offset, and the text that is kept with it. */
export interface CommittedOffset {
  readonly offset: number;
  readonly metadata: string;
}

const COMMIT_MS = 2_000;
const FETCH_MS = 3_000;

/**
 * The committed offsets of one topic in one group. Each call is sent at most once, and rejects with a KafkaError.
 *
 * A commit waits for the broker's followers, which takes seconds when one of them is frozen, and everything after it on
 * its connection waits as well. So commits don't share a connection with heartbeats, but with JoinGroup, which is never
 * sent while a commit is in progress.
 */
export class GroupOffsets {
  readonly #coordinator: Coordinator;
  readonly #topic: string;
  readonly #commits = new Mutex();

  constructor(coordinator: Coordinator, topic: string) {
    this.#coordinator = coordinator;
    this.#topic = topic;
  }

  /** Resolves when all commits so far have succeeded or failed. */
  get settled(): Promise<unknown> {
    return this.#commits.run(() => undefined);
  }

  /**
   * One commit at a time, since a late earlier one could move offsets back. `begin` returns the member to commit as, or
   * throws.
   */
  commit(offsets: ReadonlyMap<number, CommittedOffset>, begin: () => MemberRequest): Promise<void> {
    return this.#commits.run(() => this.#commit(offsets, begin()));
  }

  async fetch(partitions: readonly number[]): Promise<ReadonlyMap<number, CommittedOffset | undefined>> {
    const { groupId } = this.#coordinator;
    const topic = this.#topic;
    const requested = partitions.map((partition) => ({ topic, partition }));
    const response = await this.#coordinator.call('control', FETCH_MS, (link) =>
      link.call('offsetFetch', { groupId, partitions: requested }),
    );
    return new Map(
      partitions.map((partition) => {
        const found = response.partitions.find((one) => one.topic === topic && one.partition === partition);
        if (found === undefined) throw this.#failed('MALFORMED_RESPONSE', partition);
        if (found.errorCode !== undefined) throw this.#failed(found.errorCode, partition);
        return [partition, found.offset < 0 ? undefined : { offset: found.offset, metadata: found.metadata }];
      }),
    );
  }

  async #commit(offsets: ReadonlyMap<number, CommittedOffset>, { generation, memberId }: MemberRequest): Promise<void> {
    if (offsets.size === 0) return;
    const { groupId } = this.#coordinator;
    const topic = this.#topic;
    const partitions = [...offsets].map(([partition, committed]) => ({ topic, partition, ...committed }));
    const response = await this.#coordinator.call('group', COMMIT_MS, (link) =>
      link.call('offsetCommit', { groupId, generation, memberId, partitions }),
    );
    for (const { partition } of partitions) {
      const taken = response.partitions.find((one) => one.topic === topic && one.partition === partition);
      if (taken === undefined) throw this.#failed('MALFORMED_RESPONSE', partition);
      if (taken.errorCode !== undefined) throw this.#failed(taken.errorCode, partition);
    }
  }

  #failed(errorCode: string, partition: number): KafkaError {
    const { groupId } = this.#coordinator;
    this.#coordinator.noteError(errorCode);
    return new KafkaError(
      errorCode,
      `offset of partition ${partition} of ${this.#topic} in group ${groupId}: ${errorCode}`,
    );
  }
}
