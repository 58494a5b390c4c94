import { throttledLog } from '../../../src/async/throttle.ts';
import { Member } from '../../../src/kafka/loops/member.ts';
import {
  type Assigned,
  type MemberOptions,
  type MemberSettings,
  memberSettings,
} from '../../../src/kafka/loops/member-options.ts';
import type { CopyReport } from '../../../src/kafka/loops/planner.ts';
import { Cluster } from '../../../src/kafka/wire/cluster.ts';
import type { ApiName, Dialer } from '../../../src/kafka/wire/port.ts';
import { Cluster as FakeKafka } from '../../support/fake-kafka/cluster.ts';
import type { GroupsOptions } from '../../support/fake-kafka/groups.ts';
import { dialerOf } from '../../support/fake-kafka/link.ts';
import { type Host, Network } from '../../support/fake-kafka/network.ts';
import { addressOf } from '../../support/fake-kafka/view.ts';
import { VirtualRuntime } from '../../support/virtual-runtime.ts';

export const GROUP = 'workers';
export const TOPIC = 'id.requests';
export const PARTITIONS = 12;
const DELAY_MS = 1;

/** What a test chooses of a member; by default its copies are of empty logs, so that each member has them all. */
export type StagedOptions = Partial<MemberOptions & MemberSettings> & { readonly copies?: () => CopyReport };

export interface StageOptions {
  readonly nodes?: number;
  /** How long a broker is silent until another one coordinates its groups. */
  readonly fenceAfterMs?: number;
  readonly groups?: Partial<GroupsOptions>;
}

/** One group on simulated brokers, with members that each have their own connections. */
export class GroupStage {
  readonly runtime = new VirtualRuntime();
  readonly network = new Network({ clock: this.runtime, delayMs: () => DELAY_MS });
  readonly kafka: FakeKafka;

  constructor({ nodes = 1, groups = {}, fenceAfterMs = 9_000 }: StageOptions = {}) {
    this.kafka = new FakeKafka({ clock: this.runtime, nodes, groups, fenceAfterMs });
    this.kafka.createTopic(TOPIC, { partitions: PARTITIONS });
    this.kafka.coordinatorOf(GROUP);
  }

  get nowMs(): number {
    return this.runtime.monotonicMs();
  }

  get coordinator(): number {
    return this.kafka.coordinatorOf(GROUP) ?? 0;
  }

  /** The current members, as the coordinator knows them. */
  get group() {
    const group = this.kafka.groups.get(GROUP);
    if (group === undefined) throw new Error('there is no group');
    return group;
  }

  /** The owners of each partition: one member in the normal case. */
  owners(...members: readonly StagedMember[]): readonly number[] {
    const counts = new Array<number>(PARTITIONS).fill(0);
    for (const partition of members.flatMap(({ held }) => held)) counts[partition] = (counts[partition] ?? 0) + 1;
    return counts;
  }

  committed(partition: number): number | undefined {
    return this.kafka.groups.committed(GROUP, TOPIC, partition);
  }

  /** A member that has not started. */
  member(name: string, options: StagedOptions = {}): StagedMember {
    return new StagedMember(this, name, options);
  }

  /** Members that have started and share the partitions. */
  async members(count: number, options: (name: string) => StagedOptions = () => ({})) {
    const members: StagedMember[] = [];
    for (const name of ['a', 'b', 'c', 'd'].slice(0, count)) members.push(this.member(name, options(name)).start());
    await this.settled(...members);
    return members as [StagedMember, StagedMember, StagedMember, StagedMember];
  }

  pass(ms: number): Promise<void> {
    return this.runtime.pass(ms);
  }

  /** Lets time pass until the condition holds; fails after a minute. */
  async until(isSo: () => boolean, what: string): Promise<void> {
    const lateMs = this.nowMs + 60_000;
    while (!isSo()) {
      if (this.nowMs > lateMs) throw new Error(`${what} did not happen within a minute`);
      await this.pass(STEP_MS);
    }
  }

  /** Lets time pass until those members share all partitions and none is joining. */
  settled(...members: readonly StagedMember[]): Promise<void> {
    return this.until(
      () =>
        this.group.state === 'Stable' &&
        this.group.describe().members.length === members.length &&
        members.every(({ member }) => member.generation === this.group.generation && member.joined) &&
        members.reduce((sum, { held }) => sum + held.length, 0) === PARTITIONS,
      'a stable group',
    );
  }
}

const STEP_MS = 5;

/** A call of a member, from when it was made until it ended. */
export interface Call {
  readonly call: ApiName;
  readonly request: unknown;
  readonly sentMs: number;
  endedMs: number | undefined;
  /** The fault that it ended with. */
  errorCode: string | undefined;
}

export interface StagedAssigned extends Assigned {
  readonly atMs: number;
}

export class StagedMember {
  readonly stage: GroupStage;
  readonly member: Member;
  readonly cluster: Cluster;
  readonly calls: Call[] = [];
  /** How often it has dialled. */
  dials = 0;
  readonly assigned: StagedAssigned[] = [];
  readonly lost: { readonly atMs: number; readonly errorCode: string }[] = [];
  readonly fenced: string[] = [];
  readonly warnings: string[] = [];
  held: readonly number[] = [];
  isReachable = true;
  #isAlive = true;

  constructor(stage: GroupStage, name: string, options: StagedOptions) {
    const { copies = () => new Map() } = options;
    this.stage = stage;
    const { runtime, kafka, network } = stage;
    const host: Host = {
      name,
      deliver: (run) => {
        if (this.#isAlive) run();
      },
      reaches: () => this.isReachable && this.#isAlive,
    };
    this.cluster = new Cluster({
      dialer: this.#watched(dialerOf(kafka, network, host)),
      seeds: [...kafka.brokers.keys()].map(addressOf),
      runtime,
    });
    this.member = new Member({
      cluster: this.cluster,
      runtime,
      log: throttledLog(runtime, (level, _fields, message) => {
        if (level === 'warn') this.warnings.push(message);
      }),
      settings: memberSettings({ groupId: GROUP, topic: TOPIC, partitions: PARTITIONS, ...options }),
      report: () => ({ copies: copies(), unreached: [] }),
      onAssigned: (assigned) => this.onAssigned(assigned),
      onLost: ({ errorCode }) => {
        this.held = [];
        this.lost.push({ atMs: stage.nowMs, errorCode: errorCode });
      },
      onFenced: ({ errorCode }) => this.fenced.push(errorCode),
      ...options,
    });
  }

  get last(): StagedAssigned {
    const last = this.assigned.at(-1);
    if (last === undefined) throw new Error('nothing was assigned');
    return last;
  }

  onAssigned(assigned: Assigned): void {
    this.held = assigned.partitions;
    this.assigned.push({ atMs: this.stage.nowMs, ...assigned });
  }

  start(): this {
    this.member.start();
    return this;
  }

  async leave(): Promise<void> {
    await this.stage.runtime.until(this.member.leave());
    this.held = [];
    await this.cluster.close();
  }

  /** The process ends without leaving the group. */
  crash(): void {
    this.#isAlive = false;
    this.held = [];
    void this.member.leave();
    void this.cluster.close();
  }

  called(call: ApiName): readonly Call[] {
    return this.calls.filter((one) => one.call === call);
  }

  /** The outcome of a commit: ok, or the name of the fault. */
  commit(offsets: Readonly<Record<number, number>>): Promise<string> {
    const entries = Object.entries(offsets).map(
      ([partition, offset]) => [Number(partition), { offset, metadata: '' }] as const,
    );
    return this.member.commit(new Map(entries)).then(
      () => 'ok',
      (error: unknown) => String((error as { errorCode?: string }).errorCode ?? error),
    );
  }

  #watched(dialer: Dialer): Dialer {
    return {
      dial: async (address, signal) => {
        this.dials += 1;
        const link = await dialer.dial(address, signal);
        return {
          ended: link.ended,
          close: () => link.close(),
          call: (api, request) => {
            const recorded: Call = {
              call: api,
              request,
              sentMs: this.stage.nowMs,
              endedMs: undefined,
              errorCode: undefined,
            };
            this.calls.push(recorded);
            const answer = link.call(api, request);
            const end = (error?: { errorCode?: string }) => {
              recorded.endedMs = this.stage.nowMs;
              recorded.errorCode = error?.errorCode;
            };
            answer.then(() => end(), end);
            return answer;
          },
        };
      },
    };
  }
}
