import type {
  ConsumerGroupDescribeResponse,
  DescribeGroupsResponse,
  JoinGroupRequest,
  JoinGroupResponse,
  MemberRequest,
  SyncGroupRequest,
  SyncGroupResponse,
} from '../../../src/kafka/wire/group-apis.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import { type Clockwork, KeyedTimers } from './clockwork.ts';
import { GroupMember, type Reply } from './group-member.ts';
import { Roster } from './roster.ts';

export type GroupState = 'Empty' | 'PreparingRebalance' | 'CompletingRebalance' | 'Stable';

export interface GroupSettings {
  /** group.initial.rebalance.delay.ms */
  readonly initialDelayMs: number;
  /** group.min.session.timeout.ms */
  readonly minSessionMs: number;
  readonly maxSessionMs: number;
}

/** How long a member that joins for the first time is kept without another call. */
const NEW_MEMBER_MS = 300_000;
const NOT_THROTTLED = { throttleMs: 0 } as const;
const NOTHING = Buffer.alloc(0);

/** The persisted state of a group, from which another coordinator continues. */
interface Written {
  readonly generation: number;
  readonly protocol: string;
  readonly leaderId: string;
  readonly members: readonly GroupMember[];
}

/**
 * A consumer group of Kafka's classic protocol, as in its coordinator (GroupMetadataManager of 4.x).
 *
 *   Empty, Stable        -> PreparingRebalance   a member joins, leaves or is removed
 *   PreparingRebalance   -> CompletingRebalance  all members have rejoined, or the rebalance timeout is over
 *   CompletingRebalance  -> Stable               the leader has sent the assignment
 *   CompletingRebalance  -> PreparingRebalance   as from Stable; members that wait for an assignment must rejoin
 *   PreparingRebalance   -> Empty                no member is left
 *
 * `Groups` stores the offsets; this class decides who may commit. The persisted state, with the last assignment,
 * survives the coordinator; pending calls do not.
 */
export class Group {
  readonly #settings: GroupSettings;
  readonly #newId: () => string;
  readonly #timers: KeyedTimers;
  readonly #roster = new Roster();
  /** Member IDs that were given out, and not used for joining yet. */
  readonly #pending = new Set<string>();
  readonly #unsynced = new Set<string>();
  #state: GroupState = 'Empty';
  #isInitial = false;
  #hasNewcomer = false;
  #generation = 0;
  #protocol = '';
  /** The client ID of a member of the new protocol, which has converted the group. */
  #foreign: string | undefined;
  #written: Written = { generation: 0, protocol: '', leaderId: '', members: [] };

  constructor(settings: GroupSettings, clock: Clockwork, newId: () => string) {
    this.#settings = settings;
    this.#newId = newId;
    this.#timers = new KeyedTimers(clock);
  }

  get state(): GroupState {
    return this.#state;
  }

  get generation(): number {
    return this.#generation;
  }

  get members(): readonly GroupMember[] {
    return this.#roster.all;
  }

  join(clientId: string, request: JoinGroupRequest, reply: Reply<JoinGroupResponse>): void {
    const errorCode = this.#tryJoin(clientId, request, reply);
    if (errorCode !== undefined) reply.refuse(errorCode);
  }

  sync(request: SyncGroupRequest, reply: Reply<SyncGroupResponse>): void {
    const { memberId, assignments } = request;
    const errorCode = this.#refuses(request);
    const member = this.#roster.get(memberId);
    if (errorCode !== undefined || member === undefined) reply.refuse(errorCode ?? 'UNKNOWN_MEMBER_ID');
    else if (this.#state === 'PreparingRebalance') reply.refuse('REBALANCE_IN_PROGRESS');
    else {
      member.syncing = reply;
      this.#unsynced.delete(memberId);
      if (this.#unsynced.size === 0) this.#timers.cancel('sync');
      if (this.#state === 'Stable') member.answerSync();
      else if (memberId === this.#roster.leaderId) this.#assign(assignments);
    }
  }

  /** The error code of a heartbeat; undefined for success. */
  heartbeat(request: MemberRequest): KafkaErrorCode | undefined {
    const errorCode = this.#refuses(request);
    const member = this.#roster.get(request.memberId);
    if (errorCode !== undefined || member === undefined) return errorCode ?? 'UNKNOWN_MEMBER_ID';
    this.#expectHeartbeat(member);
    return this.#state === 'PreparingRebalance' ? 'REBALANCE_IN_PROGRESS' : undefined;
  }

  /** Members leave by their ID or, if removed by others, by their instance ID alone. */
  leave({ memberId, instanceId }: Omit<MemberRequest, 'generation'>): KafkaErrorCode | undefined {
    if (this.#pending.delete(memberId)) {
      this.#timers.cancel(memberId);
      this.#completeIfAllJoined();
      return undefined;
    }
    const leaving = memberId === '' ? this.#roster.withInstance(instanceId)?.memberId : memberId;
    const errorCode = this.#roster.refuses(leaving ?? '', instanceId);
    if (errorCode === undefined) this.#remove(leaving ?? '');
    return errorCode;
  }

  /** The fault of a commit; undefined if it is allowed. */
  refusesCommit(memberId: string, generation: number): KafkaErrorCode | undefined {
    if (generation < 0 && memberId === '') {
      return this.#state === 'Empty' && this.#foreign === undefined ? undefined : 'UNKNOWN_MEMBER_ID';
    }
    const errorCode = this.#refuses({ memberId, generation });
    if (errorCode !== undefined) return errorCode;
    if (this.#state === 'CompletingRebalance') return 'REBALANCE_IN_PROGRESS';
    const member = this.#roster.get(memberId);
    if (member !== undefined) this.#expectHeartbeat(member);
    return undefined;
  }

  /**
   * A consumer of the new protocol (KIP-848) joins, and the group is converted: its members must rejoin, and then get
   * their assignments from the broker. Here they are not let in, as links refuse such an answer, and members leave
   * then.
   */
  convert(clientId: string): void {
    this.#foreign = clientId;
    if (this.#state === 'Stable' || this.#state === 'CompletingRebalance') this.#prepare();
  }

  /** The consumer leaves, and the group is one of the classic protocol again. */
  revert(): void {
    this.#foreign = undefined;
  }

  /** As ConsumerGroupDescribe does; undefined for a group of the classic protocol. */
  describeModern(groupId: string): ConsumerGroupDescribeResponse['groups'][number] | undefined {
    if (this.#foreign === undefined) return undefined;
    const foreign = { memberId: 'foreign', clientId: this.#foreign, clientHost: '/127.0.0.1', assignment: NOTHING };
    return { groupId, state: 'Stable', members: [{ ...foreign, isClassic: false }] };
  }

  describe(): Omit<DescribeGroupsResponse['groups'][number], 'groupId'> {
    if (this.#foreign !== undefined || (this.#generation === 0 && this.#state === 'Empty'))
      return { state: 'Dead', members: [] };
    const members = this.members.map((member) => {
      const { clientId, assignment } = member;
      return { ...member.name, clientId, clientHost: '/127.0.0.1', assignment };
    });
    return { state: this.#state, protocol: this.#protocol, members };
  }

  /** A new coordinator takes over: it has the persisted state, and no heartbeats yet. */
  moved(): void {
    this.#timers.cancelAll();
    for (const member of this.members) {
      member.refuseJoin('NOT_COORDINATOR_FOR_GROUP');
      member.refuseSync('NOT_COORDINATOR_FOR_GROUP');
    }
    const { generation, protocol, leaderId, members } = this.#written;
    this.#roster.clear();
    this.#pending.clear();
    this.#unsynced.clear();
    [this.#generation, this.#protocol] = [generation, protocol];
    this.#state = members.length === 0 ? 'Empty' : 'Stable';
    for (const written of members) {
      const member = written.copy();
      this.#roster.add(member);
      this.#expectHeartbeat(member);
    }
    this.#roster.leaderId = leaderId;
  }

  /** The fault of a join that is rejected immediately; any other join is answered now or later. */
  #tryJoin(clientId: string, request: JoinGroupRequest, reply: Reply<JoinGroupResponse>): KafkaErrorCode | undefined {
    const { memberId, instanceId, sessionTimeoutMs, protocols } = request;
    const { minSessionMs, maxSessionMs } = this.#settings;
    if (sessionTimeoutMs < minSessionMs || sessionTimeoutMs > maxSessionMs) return 'INVALID_SESSION_TIMEOUT';
    if (!this.#roster.supports(protocols)) return 'INCONSISTENT_GROUP_PROTOCOL';
    if (this.#foreign !== undefined && (memberId !== '' || instanceId !== undefined)) {
      const before = memberId === '' ? this.#roster.withInstance(instanceId)?.memberId : memberId;
      this.#pending.delete(memberId);
      if (before !== undefined && this.#roster.get(before) !== undefined) this.#remove(before);
      return 'FOREIGN_MEMBER';
    }
    if (memberId === '') {
      if (instanceId === undefined) this.#welcome(clientId, request, reply);
      else this.#joinByInstance(clientId, instanceId, request, reply);
      return undefined;
    }
    if (this.#pending.has(memberId)) {
      this.#add(memberId, clientId, request, reply);
      return undefined;
    }
    const member = this.#roster.get(memberId);
    const errorCode = this.#roster.refuses(memberId, instanceId);
    if (errorCode !== undefined || member === undefined) return errorCode ?? 'UNKNOWN_MEMBER_ID';
    this.#joinAgain(member, request, reply);
    return undefined;
  }

  /** Gives out a member ID; nothing else happens until the member joins with it. */
  #welcome(clientId: string, request: JoinGroupRequest, reply: Reply<JoinGroupResponse>): void {
    const memberId = `${clientId}-${this.#newId()}`;
    this.#pending.add(memberId);
    this.#timers.set(memberId, request.sessionTimeoutMs, () => {
      this.#pending.delete(memberId);
      this.#completeIfAllJoined();
    });
    const nothing = { generation: -1, protocol: '', leaderId: '', members: [] };
    reply.give({ ...NOT_THROTTLED, ...nothing, errorCode: 'MEMBER_ID_REQUIRED', memberId });
  }

  /** A member that joins with a known instance ID replaces the previous one, which is fenced. */
  #joinByInstance(
    clientId: string,
    instanceId: string,
    request: JoinGroupRequest,
    reply: Reply<JoinGroupResponse>,
  ): void {
    const memberId = `${instanceId}-${this.#newId()}`;
    const before = this.#roster.withInstance(instanceId);
    if (before === undefined) {
      this.#add(memberId, clientId, request, reply);
      return;
    }
    const leaderBefore = this.#roster.leaderId;
    before.refuseJoin('FENCED_INSTANCE_ID');
    before.refuseSync('FENCED_INSTANCE_ID');
    this.#timers.cancel(before.memberId);
    this.#unsynced.delete(before.memberId);
    const member = new GroupMember(memberId, clientId, request);
    member.assignment = before.assignment;
    member.isNew = false;
    this.#roster.replace(before, member);
    this.#update(member, request, reply);
    if (this.#state !== 'Stable' || this.#roster.selectProtocol() !== this.#protocol) {
      this.#rebalanceOrComplete();
      return;
    }
    this.#write();
    // With the previous leader, so that the member does not consider itself the leader and send an assignment.
    member.answerJoin({ ...this.#joined(member), leaderId: leaderBefore, members: [] });
  }

  #add(memberId: string, clientId: string, request: JoinGroupRequest, reply: Reply<JoinGroupResponse>): void {
    this.#pending.delete(memberId);
    const member = new GroupMember(memberId, clientId, request);
    member.joining = reply;
    this.#roster.add(member);
    if (this.#isInitial) this.#hasNewcomer = true;
    this.#expectHeartbeat(member, NEW_MEMBER_MS);
    this.#rebalanceOrComplete();
  }

  /** A repeated join is answered with the current generation, since the first answer may have been lost. */
  #joinAgain(member: GroupMember, request: JoinGroupRequest, reply: Reply<JoinGroupResponse>): void {
    const isLeader = member.memberId === this.#roster.leaderId;
    const isSettled = this.#state === 'CompletingRebalance' || (this.#state === 'Stable' && !isLeader);
    if (isSettled && member.matches(request.protocols)) {
      reply.give(this.#joined(member));
      return;
    }
    this.#update(member, request, reply);
    this.#rebalanceOrComplete();
  }

  #update(member: GroupMember, request: JoinGroupRequest, reply: Reply<JoinGroupResponse>): void {
    member.refuseJoin('REBALANCE_IN_PROGRESS');
    member.settings = request;
    member.joining = reply;
    this.#expectHeartbeat(member);
  }

  #rebalanceOrComplete(): void {
    if (this.#state === 'PreparingRebalance') this.#completeIfAllJoined();
    else this.#prepare();
  }

  #prepare(): void {
    for (const member of this.members) {
      member.refuseSync('REBALANCE_IN_PROGRESS');
      if (this.#state === 'CompletingRebalance') member.assignment = NOTHING;
    }
    this.#unsynced.clear();
    this.#timers.cancel('sync');
    this.#isInitial = this.#state === 'Empty';
    this.#hasNewcomer = false;
    this.#state = 'PreparingRebalance';
    const { initialDelayMs } = this.#settings;
    const limitMs = this.#roster.rebalanceMs;
    if (this.#isInitial) this.#waitForNewcomers(initialDelayMs, Math.max(0, limitMs - initialDelayMs));
    else {
      this.#timers.set('join', limitMs, () => this.#complete());
      this.#completeIfAllJoined();
    }
  }

  #waitForNewcomers(delayMs: number, leftMs: number): void {
    this.#timers.set('join', delayMs, () => {
      if (!this.#hasNewcomer || leftMs === 0) this.#complete();
      else {
        this.#hasNewcomer = false;
        this.#waitForNewcomers(Math.min(this.#settings.initialDelayMs, leftMs), Math.max(0, leftMs - delayMs));
      }
    });
  }

  #completeIfAllJoined(): void {
    if (this.#state !== 'PreparingRebalance' || this.#isInitial || this.#pending.size > 0) return;
    if (this.members.every(({ joining }) => joining !== undefined)) this.#complete();
  }

  /** Starts the next generation, with the members that have joined; static members may come later. */
  #complete(): void {
    this.#timers.cancel('join');
    for (const member of this.members) {
      if (member.joining === undefined && !member.isStatic) this.#forget(member.memberId);
    }
    const joined = this.members.filter(({ joining }) => joining !== undefined);
    if (joined.length === 0 && this.#roster.size > 0) {
      this.#timers.set('join', this.#roster.rebalanceMs, () => this.#complete());
      return;
    }
    this.#isInitial = false;
    this.#generation += 1;
    this.#state = joined.length === 0 ? 'Empty' : 'CompletingRebalance';
    this.#protocol = this.#roster.selectProtocol();
    if (joined.length === 0) this.#write();
    else if (!joined.some(({ memberId }) => memberId === this.#roster.leaderId)) {
      this.#roster.leaderId = joined[0]?.memberId ?? '';
    }
    for (const member of this.members) {
      member.answerJoin(this.#joined(member));
      member.isNew = false;
      this.#expectHeartbeat(member);
      this.#unsynced.add(member.memberId);
    }
    if (joined.length > 0) this.#timers.set('sync', this.#roster.rebalanceMs, () => this.#giveUpUnsynced());
  }

  #assign(assignments: SyncGroupRequest['assignments']): void {
    const byMember = new Map(assignments.map((one) => [one.memberId, one.assignment]));
    for (const member of this.members) member.assignment = byMember.get(member.memberId) ?? NOTHING;
    this.#state = 'Stable';
    this.#write();
    for (const member of this.members) {
      if (member.syncing !== undefined) this.#expectHeartbeat(member);
      member.answerSync();
    }
  }

  #giveUpUnsynced(): void {
    if (this.#unsynced.size === 0) return;
    for (const memberId of [...this.#unsynced]) this.#forget(memberId);
    this.#prepare();
  }

  #joined(member: GroupMember): JoinGroupResponse {
    const { memberId } = member;
    const { leaderId } = this.#roster;
    const members = this.members.map((one) => ({ ...one.name, metadata: one.metadataFor(this.#protocol) }));
    return {
      ...NOT_THROTTLED,
      generation: this.#generation,
      protocol: this.#protocol,
      leaderId,
      memberId,
      members: memberId === leaderId ? members : [],
    };
  }

  /** Removes a member that is silent for a session, unless it waits for the coordinator. */
  #expectHeartbeat(member: GroupMember, withinMs = member.settings.sessionTimeoutMs): void {
    const { memberId } = member;
    this.#timers.set(memberId, withinMs, () => {
      if (this.#roster.get(memberId) === member && (member.isNew || !member.waits)) this.#remove(memberId);
    });
  }

  #remove(memberId: string): void {
    this.#roster.get(memberId)?.refuseJoin('UNKNOWN_MEMBER_ID');
    this.#forget(memberId);
    if (this.#state === 'PreparingRebalance') this.#completeIfAllJoined();
    else if (this.#state !== 'Empty') this.#prepare();
  }

  #forget(memberId: string): void {
    this.#timers.cancel(memberId);
    this.#roster.remove(memberId);
    this.#unsynced.delete(memberId);
  }

  #refuses({ memberId, instanceId, generation }: Omit<MemberRequest, 'groupId'>): KafkaErrorCode | undefined {
    const isOld = generation !== this.#generation;
    return this.#roster.refuses(memberId, instanceId) ?? (isOld ? 'ILLEGAL_GENERATION' : undefined);
  }

  #write(): void {
    const members = this.members.map((member) => member.copy());
    const { leaderId } = this.#roster;
    this.#written = { generation: this.#generation, protocol: this.#protocol, leaderId, members };
  }
}
