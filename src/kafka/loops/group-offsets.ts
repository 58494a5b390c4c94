import { Mutex } from '../../async/mutex.ts';
import type { MemberRequest } from '../wire/group-apis.ts';
import { KafkaError } from '../wire/kafka-error.ts';
import type { Coordinator } from './coordinator.ts';

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
    return this.#commits.settled;
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
