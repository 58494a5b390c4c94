import type { CommittedOffset } from '../../../src/kafka/loops/coordinator.ts';
import type {
  OffsetCommitRequest,
  OffsetFetchRequest,
  OffsetFetchResponse,
} from '../../../src/kafka/wire/group-apis.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { Clockwork } from './clockwork.ts';
import { Group, type GroupSettings } from './group.ts';

export interface GroupsOptions extends GroupSettings {
  /** How long a new coordinator takes to load a group. */
  readonly loadMs: () => number;
}

interface Kept {
  readonly group: Group;
  readonly offsets: Map<string, CommittedOffset>;
  node: number;
  /** By the monotonic clock; until then the coordinator answers GROUP_LOAD_IN_PROGRESS. */
  loadingUntilMs: number;
}

/** All groups, each with its coordinator and its committed offsets, which are never lost. */
export class Groups {
  readonly #options: GroupsOptions;
  readonly #clock: Clockwork;
  readonly #clockOf: (node: number) => Clockwork;
  readonly #groups = new Map<string, Kept>();
  /** Called for each commit that was accepted. */
  onCommit: (request: OffsetCommitRequest) => void = () => {};
  #ids = 0;

  constructor(options: GroupsOptions, clock: Clockwork, clockOf: (node: number) => Clockwork) {
    this.#options = options;
    this.#clock = clock;
    this.#clockOf = clockOf;
  }

  get coordinators(): ReadonlyMap<string, number> {
    return new Map([...this.#groups].map(([groupId, { node }]) => [groupId, node]));
  }

  get(groupId: string): Group | undefined {
    return this.#groups.get(groupId)?.group;
  }

  /** A group with its coordinator, created on first use. */
  coordinatorOf(groupId: string, first: number): number {
    return this.#kept(groupId, first).node;
  }

  /** There are none from now on, and no offsets. */
  clear(): void {
    this.#groups.clear();
  }

  isLoading(groupId: string): boolean {
    return this.#clock.monotonicMs() < (this.#groups.get(groupId)?.loadingUntilMs ?? 0);
  }

  /** Another broker, or the same one after a restart, becomes the coordinator. */
  move(groupId: string, node: number): void {
    const kept = this.#groups.get(groupId);
    if (kept === undefined) return;
    kept.node = node;
    kept.loadingUntilMs = this.#clock.monotonicMs() + this.#options.loadMs();
    kept.group.moved();
  }

  commit(request: OffsetCommitRequest): readonly { topic: string; partition: number; errorCode?: KafkaErrorCode }[] {
    const { groupId, memberId, generation, partitions } = request;
    const kept = this.#groups.get(groupId);
    const errorCode = kept === undefined ? 'UNKNOWN_MEMBER_ID' : kept.group.refusesCommit(memberId, generation);
    if (errorCode !== undefined) return partitions.map(({ topic, partition }) => ({ topic, partition, errorCode }));
    for (const { topic, partition, offset, metadata = '' } of partitions)
      kept?.offsets.set(`${topic}/${partition}`, { offset, metadata });
    this.onCommit(request);
    return partitions.map(({ topic, partition }) => ({ topic, partition }));
  }

  fetch({ groupId, partitions }: OffsetFetchRequest): OffsetFetchResponse['partitions'] {
    return partitions.map(({ topic, partition }) => {
      const kept = this.#groups.get(groupId)?.offsets.get(`${topic}/${partition}`);
      return { topic, partition, ...(kept ?? { offset: -1, metadata: '' }) };
    });
  }

  committed(groupId: string, topic: string, partition: number): number | undefined {
    return this.#groups.get(groupId)?.offsets.get(`${topic}/${partition}`)?.offset;
  }

  /** Sets a committed offset from outside, as an operator does; undefined for an expired one. */
  reset(groupId: string, topic: string, partition: number, offset: number | undefined): void {
    const offsets = this.#groups.get(groupId)?.offsets;
    if (offset === undefined) offsets?.delete(`${topic}/${partition}`);
    else offsets?.set(`${topic}/${partition}`, { offset, metadata: '' });
  }

  #kept(groupId: string, first: number): Kept {
    const known = this.#groups.get(groupId);
    if (known !== undefined) return known;
    const clock: Clockwork = {
      monotonicMs: () => this.#clock.monotonicMs(),
      wallMs: () => this.#clock.wallMs(),
      random: () => this.#clock.random(),
      // A frozen coordinator acts when it resumes, or never.
      schedule: (delayMs, run) => this.#clockOf(kept.node).schedule(delayMs, run),
    };
    const group = new Group(this.#options, clock, () => this.#newId());
    const kept: Kept = { group, offsets: new Map(), node: first, loadingUntilMs: 0 };
    this.#groups.set(groupId, kept);
    return kept;
  }

  #newId(): string {
    this.#ids += 1;
    return `member-${this.#ids}`;
  }
}
