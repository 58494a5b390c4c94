import type { Runtime } from '../../async/runtime.ts';
import { describeError } from '../../errors.ts';
import type { BrokerResponse } from '../wire/api.ts';
import type { WireLog } from '../wire/broker.ts';
import type { JoinGroupResponse, MemberRequest, SyncGroupRequest } from '../wire/group-apis.ts';
import { KafkaError, kafkaErrorCode } from '../wire/kafka-error.ts';
import type { BrokerLink } from '../wire/port.ts';
import type { Coordinator } from './coordinator.ts';
import { describeBy, memberNames } from './described-group.ts';
import {
  decodeAssignment,
  decodeJoining,
  decodeStandbys,
  encodeAssignment,
  encodeJoining,
  encodeStandbys,
  NO_GENERATION,
  type Report,
  STICKY,
} from './member-claims.ts';
import type { MemberOptions, MemberSettings } from './member-options.ts';
import {
  type Candidate,
  type Claims,
  NOTHING,
  type Plan,
  type PlanSettings,
  planGroup,
  type Share,
} from './planner.ts';

/** A generation of the group, with this member's share in it. */
export interface Joined {
  readonly generation: number;
  readonly share: Share;
  /** When the last call of the join was sent: the session counts from then. */
  readonly sentMs: number;
}

export interface JoinerOptions {
  readonly settings: MemberSettings;
  readonly report: () => Report;
  readonly onForeign: MemberOptions['onForeign'];
  readonly coordinator: Coordinator;
  readonly runtime: Runtime;
  readonly log: WireLog;
}

/** A call that waits for other members fails this long after the coordinator should have ended the wait. */
const GRACE_MS = 5_000;
export const LEAVE_MS = 1_000;
const DESCRIBE_MS = 2_000;

/**
 * JoinGroup and SyncGroup, which the coordinator holds until the other members have joined. They have their own
 * connection, which is closed to give up a held call: a coordinator that was silent may have lost the call and never
 * answer.
 */
export class Joiner {
  readonly #options: JoinerOptions;
  readonly #settings: MemberSettings;
  readonly #leadership: Leadership;
  #held: { readonly link: BrokerLink; mayBeLost: boolean } | undefined;
  #requestsId = false;
  #cancelled = false;

  constructor(options: JoinerOptions) {
    this.#options = options;
    this.#settings = options.settings;
    this.#leadership = new Leadership(options.settings, options.log);
  }

  /** Whether the coordinator holds a call, so that its silence matters. */
  get isHeld(): boolean {
    return this.#held !== undefined;
  }

  /** The coordinator did not answer another call. */
  coordinatorSilent(): void {
    if (this.#held !== undefined) this.#held.mayBeLost = true;
  }

  /** The coordinator, on the same broker or another, answered another call. */
  coordinatorResponded(): void {
    if (this.#held?.mayBeLost === true) this.#held.link.close();
  }

  /**
   * Cancels permanently. A call that requests a member ID still gets its response, since a granted ID must be returned.
   */
  cancel(): void {
    this.#cancelled = true;
    if (!this.#requestsId) this.#held?.link.close();
  }

  /**
   * Joins as `memberId`, or as a new member if that is empty. `onJoined` receives the member ID and the generation as
   * soon as they are known. Rejects with a KafkaError; with FOREIGN_MEMBER after it has left, since a group that
   * is empty again is a classic one.
   */
  async join(memberId: string, claims: Claims, onJoined: (as: MemberRequest) => void): Promise<Joined> {
    let as = this.#member(NO_GENERATION, memberId);
    try {
      return await this.#join(memberId, claims, (joined) => {
        as = joined;
        onJoined(joined);
      });
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (errorCode === 'FOREIGN_MEMBER' || errorCode === 'INCONSISTENT_GROUP_PROTOCOL') await this.#nameForeign();
      if (errorCode === 'FOREIGN_MEMBER') await this.#options.coordinator.leave(as, LEAVE_MS, this.#options.log);
      throw error;
    }
  }

  async #join(memberId: string, claims: Claims, onJoined: (as: MemberRequest) => void): Promise<Joined> {
    await this.#options.coordinator.ping(this.#settings.sessionTimeoutMs / 3);
    let joined = await this.#joinGroup(memberId, claims);
    if (joined.errorCode === 'MEMBER_ID_REQUIRED') {
      onJoined(this.#member(NO_GENERATION, joined.memberId));
      joined = await this.#joinGroup(joined.memberId, claims);
    }
    const { errorCode, generation } = joined;
    if (errorCode !== undefined)
      throw new KafkaError(errorCode, `joining group ${this.#settings.groupId} failed: ${errorCode}`);
    const member = this.#member(generation, joined.memberId);
    onJoined(member);
    // Only the leader receives the members, but not a restarted static member that led before, while the group is
    // stable.
    const assignments = this.#leadership.assign(joined);
    const sentMs = this.#options.runtime.monotonicMs();
    const { assignment } = await this.#wait((link) => link.call('syncGroup', { ...member, assignments }));
    this.#leadership.confirm();
    return { generation, share: this.#shareOf(assignment), sentMs };
  }

  /** Tells who the foreign members are, if the coordinator says that. */
  async #nameForeign(): Promise<void> {
    const { coordinator, onForeign, log } = this.#options;
    const { groupId } = coordinator;
    try {
      const { group } = await coordinator.call('control', DESCRIBE_MS, async (link) => ({
        throttleMs: 0,
        group: await describeBy(link, groupId),
      }));
      onForeign?.(memberNames(group?.foreign ?? []));
    } catch (error) {
      log('debug', { groupId, error: describeError(error) }, 'the foreign members of the group are not known');
    }
  }

  async #joinGroup(memberId: string, claims: Claims): Promise<JoinGroupResponse> {
    const { groupId, topic, instanceId, zone, sessionTimeoutMs, rebalanceTimeoutMs } = this.#settings;
    const request = {
      groupId,
      memberId,
      instanceId,
      sessionTimeoutMs,
      rebalanceTimeoutMs,
      protocolType: 'consumer',
      protocols: [{ name: STICKY, metadata: encodeJoining(topic, claims, this.#options.report(), zone) }],
    };
    this.#requestsId = memberId === '' && instanceId === undefined;
    try {
      return await this.#wait((link) => link.call('joinGroup', request));
    } finally {
      this.#requestsId = false;
    }
  }

  /**
   * Only an assigner of workers adds data to an assignment: one without it was made by a broker, for a group that was
   * converted.
   */
  #shareOf(assignment: Buffer): Share {
    try {
      const { assigned, userData } = decodeAssignment(assignment);
      if (assigned.length > 0 && userData === null)
        throw new KafkaError('FOREIGN_MEMBER', `no worker made the assignment in group ${this.#settings.groupId}`);
      const ours = assigned.filter(({ topic }) => topic === this.#settings.topic);
      const partitions = [...new Set(ours.flatMap((one) => one.partitions))].sort((one, other) => one - other);
      return { partitions, ...this.#standbysOf(userData, partitions) };
    } catch (error) {
      if (error instanceof KafkaError) throw error;
      const fields = { groupId: this.#settings.groupId, error: describeError(error) };
      this.#options.log('warn', fields, "the group leader's assignment is malformed; no partition is served");
      return NOTHING;
    }
  }

  /** A leader of a later release may send standbys in an unknown format: then no copies are kept. */
  #standbysOf(userData: Buffer | null, owned: readonly number[]): Pick<Share, 'standbys' | 'warmups'> {
    const copying = userData === null ? undefined : decodeStandbys(userData);
    const isFree = (partition: number) => partition < this.#settings.partitions && !owned.includes(partition);
    const standbys = copying?.standbys.filter(isFree) ?? [];
    return { standbys, warmups: copying?.warmups.filter((partition) => standbys.includes(partition)) ?? [] };
  }

  #member(generation: number, memberId: string): MemberRequest {
    const { groupId, instanceId } = this.#settings;
    return { groupId, generation, memberId, instanceId };
  }

  async #wait<R extends BrokerResponse>(use: (link: BrokerLink) => Promise<R>): Promise<R> {
    try {
      return await this.#options.coordinator.call('group', this.#settings.rebalanceTimeoutMs + GRACE_MS, (link) => {
        if (this.#cancelled) throw new KafkaError('CLOSED', 'the member has left the group');
        this.#held = { link, mayBeLost: false };
        return use(link);
      });
    } finally {
      this.#held = undefined;
    }
  }
}

/** The most instance IDs whose partitions are remembered; the least recent is forgotten first. */
const MAX_REMEMBERED = 1_000;

type LeadershipSettings = PlanSettings & { readonly topic: string };
type JoinedMember = JoinGroupResponse['members'][number];

/**
 * The leader's part in a group: assigning the partitions of its topic.
 *
 * A restarted static member claims nothing, and one that missed a generation claims what it had before. So the leader
 * remembers what it assigned to each instance ID, for members that return while it leads.
 */
export class Leadership {
  readonly #settings: LeadershipSettings;
  readonly #log: WireLog;
  readonly #assigned = new Map<string, Claims>();
  #proposed: ReadonlyMap<string, Claims> = new Map();

  constructor(settings: LeadershipSettings, log: WireLog) {
    this.#settings = settings;
    this.#log = log;
  }

  /** Assigns partitions to the members. A member with another topic or a malformed subscription gets none. */
  assign({ generation, members }: JoinGroupResponse): SyncGroupRequest['assignments'] {
    const candidates = members.flatMap((member) => this.#candidate(member) ?? []);
    const plan = planGroup(this.#settings, candidates);
    this.#proposed = byInstance(generation, members, plan);
    return members.map(({ memberId }) => ({ memberId, assignment: this.#encoded(plan.get(memberId) ?? NOTHING) }));
  }

  /** The coordinator has accepted the last assignment. Before that it may never take effect. */
  confirm(): void {
    for (const [instanceId, claims] of this.#proposed) {
      this.#assigned.delete(instanceId);
      this.#assigned.set(instanceId, claims);
    }
    for (const instanceId of this.#assigned.keys()) {
      if (this.#assigned.size <= MAX_REMEMBERED) break;
      this.#assigned.delete(instanceId);
    }
  }

  #candidate({ memberId, instanceId, metadata }: JoinedMember): Candidate | undefined {
    try {
      const { topics, claims, copies, unreached, zone } = decodeJoining(this.#settings.topic, metadata);
      if (!topics.includes(this.#settings.topic)) {
        this.#log('warn', { memberId, topics }, 'a group member subscribes to other topics; it gets no partitions', {
          about: memberId,
        });
        return undefined;
      }
      const previous = instanceId === undefined ? undefined : this.#assigned.get(instanceId);
      return {
        memberId,
        instanceId,
        claims: previous === undefined ? [claims] : [claims, previous],
        copies,
        unreached,
        zone,
      };
    } catch (error) {
      const fields = { memberId, error: describeError(error) };
      this.#log('warn', fields, "a group member's subscription is malformed; it gets no partitions", {
        about: memberId,
      });
      return undefined;
    }
  }

  #encoded({ partitions, standbys, warmups }: Share): Buffer {
    const assigned = partitions.length === 0 ? [] : [{ topic: this.#settings.topic, partitions }];
    const userData = standbys.length === 0 ? Buffer.alloc(0) : encodeStandbys({ standbys, warmups });
    return encodeAssignment({ assigned, userData });
  }
}

function byInstance(generation: number, members: readonly JoinedMember[], plan: Plan): ReadonlyMap<string, Claims> {
  return new Map(
    members.flatMap(({ memberId, instanceId }) => {
      const share = plan.get(memberId);
      return instanceId === undefined || share === undefined ? [] : [[instanceId, { generation, ...share }]];
    }),
  );
}
