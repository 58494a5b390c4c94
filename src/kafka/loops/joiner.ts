import type { Runtime } from '../../core/runtime.ts';
import { describeError } from '../../errors.ts';
import { KafkaFault } from '../wire/fault.ts';
import type { Answer, BrokerLink, JoinAnswer, MemberRequest } from '../wire/port.ts';
import type { Claims, Share } from './assigner.ts';
import type { Coordinator } from './coordinator.ts';
import { decodeStanding } from './copies-format.ts';
import { decodeAssignment } from './group-protocol.ts';
import { Leadership } from './leadership.ts';
import { offeredProtocols } from './member-claims.ts';
import { type MemberSettings, planSettingsOf, timingOf } from './member-options.ts';
import type { SparingLog } from './sparing-log.ts';

/** A generation of the group with what this member got in it. */
export interface Joined {
  readonly generation: number;
  readonly share: Share;
  /** When the last call was sent that brought it: the session counts from there. */
  readonly sentMs: number;
}

/** A call that waits for other members is given up so long after the coordinator should have ended the wait. */
const GRACE_MS = 5_000;
const NO_GENERATION = -1;
const NOTHING: Share = { partitions: [], standbys: [], warmups: [] };

/**
 * JoinGroup and SyncGroup, which the coordinator holds until the other members have come. They have a connection of
 * their own. It is closed to give a held call up: what was silent meanwhile may have forgotten it, and never answer.
 */
export class Joiner {
  readonly #settings: MemberSettings;
  readonly #coordinator: Coordinator;
  readonly #runtime: Runtime;
  readonly #log: SparingLog;
  readonly #leadership: Leadership;
  #held: { readonly link: BrokerLink; doubtful: boolean } | undefined;
  #asksForId = false;
  #cancelled = false;

  constructor(settings: MemberSettings, coordinator: Coordinator, runtime: Runtime, log: SparingLog) {
    this.#settings = settings;
    this.#coordinator = coordinator;
    this.#runtime = runtime;
    this.#log = log;
    this.#leadership = new Leadership(settings.topic, planSettingsOf(settings), log);
  }

  /** A call is under way, so that it matters whether the coordinator lives. */
  get isHeld(): boolean {
    return this.#held !== undefined;
  }

  /** The coordinator did not answer another call. */
  doubt(): void {
    if (this.#held !== undefined) this.#held.doubtful = true;
  }

  /** The coordinator, the same broker or another, has answered another call. */
  trust(): void {
    if (this.#held?.doubtful === true) this.#held.link.close();
  }

  /** For good. A call that asks for a member ID gets its answer still: who has been given one has to give it back. */
  cancel(): void {
    this.#cancelled = true;
    if (!this.#asksForId) this.#held?.link.close();
  }

  /**
   * Joins as `memberId`, or as a new member if that is empty. `onJoined` gets the member ID and the generation as soon as
   * they are known. Rejects with a KafkaFault.
   */
  async join(memberId: string, claims: Claims, onJoined: (as: MemberRequest) => void): Promise<Joined> {
    const { sessionTimeoutMs } = timingOf(this.#settings);
    await this.#coordinator.reach(sessionTimeoutMs / 3);
    let joined = await this.#joinGroup(memberId, claims);
    if (joined.fault === 'MEMBER_ID_REQUIRED') {
      onJoined(this.#member(NO_GENERATION, joined.memberId));
      joined = await this.#joinGroup(joined.memberId, claims);
    }
    const { fault, generation } = joined;
    if (fault !== undefined) throw new KafkaFault(fault, `group ${this.#settings.groupId} was not joined: ${fault}`);
    const member = this.#member(generation, joined.memberId);
    onJoined(member);
    // Only the leader is given the members. A static member that led before it restarted is not, while the group is stable.
    const assignments = this.#leadership.assign(joined);
    const sentMs = this.#runtime.monotonicMs();
    const { assignment } = await this.#wait((link) => link.syncGroup({ ...member, assignments }));
    this.#leadership.confirm();
    return { generation, share: this.#shareOf(assignment), sentMs };
  }

  async #joinGroup(memberId: string, claims: Claims): Promise<JoinAnswer> {
    const { groupId, topic, instanceId, copies } = this.#settings;
    const { sessionTimeoutMs, rebalanceTimeoutMs } = timingOf(this.#settings);
    const request = {
      groupId,
      memberId,
      sessionTimeoutMs,
      rebalanceTimeoutMs,
      protocolType: 'consumer',
      protocols: offeredProtocols(topic, claims, copies?.()),
    };
    this.#asksForId = memberId === '' && instanceId === undefined;
    try {
      return await this.#wait((link) =>
        link.joinGroup(instanceId === undefined ? request : { ...request, instanceId }),
      );
    } finally {
      this.#asksForId = false;
    }
  }

  #shareOf(assignment: Buffer): Share {
    try {
      const { assigned, userData } = decodeAssignment(assignment);
      const ours = assigned.filter(({ topic }) => topic === this.#settings.topic);
      const partitions = [...new Set(ours.flatMap((one) => one.partitions))].sort((one, other) => one - other);
      return { partitions, ...this.#standingOf(userData, partitions) };
    } catch (error) {
      const fields = { groupId: this.#settings.groupId, error: describeError(error) };
      this.#log.warn(fields, 'the assignment by the leader of the group is malformed; no partition is served');
      return NOTHING;
    }
  }

  /** A leader of an earlier release says nothing, and one of a later release what can't be understood: no copies are kept. */
  #standingOf(userData: Buffer | null, owned: readonly number[]): Pick<Share, 'standbys' | 'warmups'> {
    const standing = userData === null ? undefined : decodeStanding(userData);
    const isFree = (partition: number) => partition < this.#settings.partitions && !owned.includes(partition);
    const standbys = standing?.standbys.filter(isFree) ?? [];
    return { standbys, warmups: standing?.warmups.filter((partition) => standbys.includes(partition)) ?? [] };
  }

  #member(generation: number, memberId: string): MemberRequest {
    const { groupId, instanceId } = this.#settings;
    const member = { groupId, generation, memberId };
    return instanceId === undefined ? member : { ...member, instanceId };
  }

  async #wait<R extends Answer>(use: (link: BrokerLink) => Promise<R>): Promise<R> {
    const { rebalanceTimeoutMs } = timingOf(this.#settings);
    try {
      return await this.#coordinator.call('group', rebalanceTimeoutMs + GRACE_MS, (link) => {
        if (this.#cancelled) throw new KafkaFault('CLOSED', 'the member has left the group');
        this.#held = { link, doubtful: false };
        return use(link);
      });
    } finally {
      this.#held = undefined;
    }
  }
}
