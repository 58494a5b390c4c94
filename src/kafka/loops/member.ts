import { Backoff } from '../../async/retrying.ts';
import type { Runtime, Timer } from '../../async/runtime.ts';
import { atMost } from '../../async/waiting.ts';
import { describeError } from '../../errors.ts';
import type { WireLog } from '../wire/broker.ts';
import { meaningOf } from '../wire/error-codes.ts';
import type { MemberRequest } from '../wire/group-apis.ts';
import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from '../wire/kafka-error.ts';
import { type CommittedOffset, Coordinator, GroupOffsets } from './coordinator.ts';
import { Heartbeats, SessionWatch } from './heartbeats.ts';
import { type Joined, Joiner, LEAVE_MS } from './joiner.ts';
import { NO_GENERATION } from './member-claims.ts';
import type { MemberOptions } from './member-options.ts';
import { type Claims, NOTHING } from './planner.ts';

/**
 * How a member lives with its group.
 *
 * The group decides who serves a partition, but it decides late. A rebalance takes as long as the slowest member needs
 * to join, and for that time an ordinary consumer stops. A worker need not: two owners of a partition are slow, not
 * wrong, because the ledger decides which of them was first. So this member holds on to its partitions throughout a
 * rebalance, until the next assignment takes them away or the membership is lost, and its joins run beside its work.
 *
 * What it must not do is write in the name of a generation that has passed. A commit that arrives late could set an
 * offset back which the next owner has moved on. So offsets are committed one at a time, in the generation in which
 * they were submitted; none is in progress when JoinGroup is sent, and none begins before the next assignment.
 *
 * And it must know when it is out, though nobody tells it. The coordinator can only say so in a response. A member
 * therefore counts its session itself, from the sending of the last heartbeat that was answered, because the
 * coordinator can't have received it earlier; when that time is over it gives its partitions up on its own. Silence
 * during a join is harder, as the coordinator answers a join only when all members have come. Heartbeats continue
 * meanwhile on another connection: a coordinator that was silent there, and answers again, may have lost the join,
 * which is then given up and sent anew.
 */

const BEFORE_REJOIN_MS = 1_000;
const BACKOFF_MS = { minMs: 50, maxMs: 500 };
/** The wait after an error that retries don't fix. */
const PERSISTENT_RETRY_MS = 5_000;

type Phase = 'out' | 'joining' | 'in' | 'closing' | 'ended';

/**
 * One member of the consumer group of one topic.
 *
 *   out      ──start──▶ joining
 *   joining  ──assignment──▶ in                                  onAssigned
 *   in       ──a rebalance is announced, or requested──▶ closing  beforeRejoin
 *   closing  ──no commit is in progress any more──▶ joining
 *   in, closing, joining  ──membership lost──▶ joining           onLost, if it had an assignment
 *   any      ──another process has the instance ID──▶ ended      onLost, onFenced
 *   any      ──leave──▶ ended
 *
 * - A rebalance does not stop the work: partitions are held until the next assignment gives them to another member, or
 *   until the membership is lost: when the coordinator reports it, or when no heartbeat was answered for a session,
 *   counted from the sending of the last answered one.
 * - Offsets are committed in the generation in which they were submitted, one commit at a time. None is in progress
 *   when JoinGroup is sent, and none starts before the next assignment.
 * - Heartbeats continue while the coordinator holds a JoinGroup or SyncGroup, so that its silence is noticed.
 * - The last share is claimed at the next join, with its generation, even after the membership was lost.
 * - `rejoin` ends a generation so that the leader plans again: the coordinator starts a rebalance when a member of a
 *   stable group rejoins with other metadata than before.
 */
export class Member {
  readonly #options: MemberOptions;
  readonly #log: WireLog;
  readonly #coordinator: Coordinator;
  readonly #joiner: Joiner;
  readonly #heartbeats: Heartbeats;
  readonly #session: SessionWatch;
  readonly #rejoining: Rejoining;
  readonly #offsets: GroupOffsets;
  readonly #backoff: Backoff;
  readonly #ending = new AbortController();
  readonly #over = Promise.withResolvers<void>();
  #phase: Phase = 'out';
  #changed = Promise.withResolvers<void>();
  /** The member that heartbeats and commits are sent for. */
  #member: MemberRequest;
  #held: readonly number[] | undefined;
  #claims: Claims = { generation: NO_GENERATION, ...NOTHING };
  #joining: Promise<void> = Promise.resolve();

  constructor(options: MemberOptions) {
    this.#options = options;
    const { cluster, runtime, settings } = options;
    const { groupId, instanceId, topic, sessionTimeoutMs } = settings;
    this.#log = options.log ?? (() => undefined);
    this.#coordinator = new Coordinator(cluster, runtime, groupId);
    this.#rejoining = new Rejoining(runtime, settings.rejoinAfterMs, () => {
      if (this.#phase === 'in') this.#enter('closing');
    });
    this.#joiner = new Joiner({
      settings,
      report: this.#rejoining.watching(options.report),
      onForeign: options.onForeign,
      coordinator: this.#coordinator,
      runtime,
      log: this.#log,
    });
    this.#backoff = new Backoff(BACKOFF_MS, () => runtime.random());
    this.#member = { groupId, generation: NO_GENERATION, memberId: '', instanceId };
    this.#heartbeats = new Heartbeats({
      ...settings,
      coordinator: this.#coordinator,
      runtime,
      member: () => (this.#member.generation < 0 && !this.#joiner.isHeld ? undefined : this.#member),
      onResponse: (member, sentMs, errorCode) => this.#onHeartbeatResponse(member, sentMs, errorCode),
      onSilence: (error) => this.#onHeartbeatSilence(error),
    });
    this.#offsets = new GroupOffsets(this.#coordinator, topic);
    this.#session = new SessionWatch(runtime, sessionTimeoutMs, () =>
      this.#lose('NO_RESPONSE', `no heartbeat was answered for ${sessionTimeoutMs} ms`),
    );
  }

  /** Whether it has an assignment. Stays true while it rejoins. */
  get joined(): boolean {
    return this.#held !== undefined;
  }

  /** The generation of the last assignment; -1 before the first. */
  get generation(): number {
    return this.#claims.generation;
  }

  start(): void {
    if (this.#phase !== 'out') return;
    this.#enter('joining');
    this.#joining = this.#keepJoined();
    void this.#heartbeats.run(this.#ending.signal);
  }

  /**
   * Rejoins without an announced rebalance, because its copies have changed. A generation lasts for a minimum time; all
   * requests until then are combined.
   */
  rejoin(why: string): void {
    if (this.#phase === 'out' || this.#phase === 'ended') return;
    this.#log('debug', { groupId: this.#options.settings.groupId, why }, 'rejoining the group');
    this.#rejoining.request();
  }

  /**
   * Leaves immediately, so that the others need not wait for the session to end, and makes no more callbacks. Resolves
   * within a second, even when the coordinator is silent.
   */
  async leave(): Promise<void> {
    const isOut = this.#phase === 'out' || this.#phase === 'ended';
    this.#end();
    if (isOut) return;
    await atMost(this.#options.runtime, LEAVE_MS, () => this.#leaveGroup());
  }

  /**
   * Commits in the current generation, after the earlier commits have ended. Rejects with REBALANCE_IN_PROGRESS while
   * there is no generation to commit in, else with the coordinator's error or a link error.
   */
  async commit(offsets: ReadonlyMap<number, CommittedOffset>): Promise<void> {
    const { groupId, topic, partitions } = this.#options.settings;
    const member = this.#member;
    // Beyond those that are assigned, a partition goes with the one of the same remainder.
    const foreign = [...offsets.keys()].find((partition) => this.#held?.includes(partition % partitions) !== true);
    const isPresent = () => member === this.#member && this.#isIn();
    if (isPresent() && foreign !== undefined)
      throw new RangeError(`${topic}/${foreign} is not assigned to this member`);
    try {
      await this.#offsets.commit(offsets, () => {
        if (isPresent()) return member;
        throw new KafkaError('REBALANCE_IN_PROGRESS', `group ${groupId} currently has no generation to commit in`);
      });
    } catch (error) {
      if (isPresent()) this.#onError(kafkaErrorCode(error));
      throw error;
    }
  }

  /** The group's committed offsets, undefined where there is none. Sent once; rejects with a KafkaError. */
  fetchCommitted(partitions: readonly number[]): Promise<ReadonlyMap<number, CommittedOffset | undefined>> {
    return this.#offsets.fetch(partitions);
  }

  #isIn(): boolean {
    return this.#phase === 'in' || this.#phase === 'closing';
  }

  #enter(phase: Phase): void {
    if (this.#phase === 'ended') return;
    this.#phase = phase;
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #end(): void {
    this.#enter('ended');
    this.#held = undefined;
    this.#session.end();
    this.#rejoining.end();
    this.#joiner.cancel();
    this.#ending.abort();
    this.#over.resolve();
  }

  async #keepJoined(): Promise<void> {
    while (this.#phase !== 'ended') {
      try {
        if (this.#phase === 'in') await this.#changed.promise;
        else await this.#joinAgain();
      } catch (error) {
        const waitMs = this.#joinFailed(error);
        await this.#options.runtime.sleep(waitMs, this.#ending.signal);
      }
    }
  }

  async #joinAgain(): Promise<void> {
    if (this.#phase === 'closing') await this.#lastCommits();
    await Promise.race([this.#offsets.settled, this.#over.promise]);
    if (this.#phase !== 'joining') return;
    const joined = await this.#joiner.join(this.#member.memberId, this.#claims, (as) => {
      this.#member = as;
    });
    if (this.#phase !== 'joining') return;
    this.#backoff.reset();
    this.#assigned(joined);
  }

  async #lastCommits(): Promise<void> {
    const { beforeRejoin = async () => {}, runtime } = this.#options;
    const last = beforeRejoin().catch((error: unknown) => {
      this.#log('warn', { error: describeError(error) }, 'offsets were not committed before a rebalance');
    });
    await atMost(runtime, BEFORE_REJOIN_MS, () => Promise.race([last, this.#over.promise]));
    if (this.#phase === 'closing') this.#enter('joining');
  }

  #assigned({ generation, share, sentMs }: Joined): void {
    const before = new Set(this.#held);
    const now = new Set(share.partitions);
    this.#member = { ...this.#member, generation };
    this.#held = share.partitions;
    this.#claims = { generation, ...share };
    this.#enter('in');
    this.#session.confirm(sentMs);
    this.#rejoining.joined();
    const added = share.partitions.filter((partition) => !before.has(partition));
    const removed = [...before].filter((partition) => !now.has(partition));
    this.#log('debug', { groupId: this.#options.settings.groupId, ...this.#claims, added, removed }, 'group joined');
    this.#options.onAssigned({ ...this.#claims, added, removed });
  }

  /** Handles a failed join; returns how long to wait before the next attempt. */
  #joinFailed(error: unknown): number {
    const errorCode = kafkaErrorCode(error);
    const { member, refuses } = meaningOf(errorCode);
    if (this.#phase === 'ended') return 0;
    if (member === 'fenced') {
      this.#fence();
      return 0;
    }
    if (member === 'expelled') this.#lose(errorCode, 'the coordinator removed this member from the group');
    if (errorCode === 'FOREIGN_MEMBER') this.#lose(errorCode, 'it has a consumer that is not a worker');
    if (errorCode === 'UNKNOWN_MEMBER_ID' || errorCode === 'FOREIGN_MEMBER')
      this.#member = { ...this.#member, memberId: '' };
    const isUsual = member !== undefined;
    if (!isUsual) {
      const fields = { groupId: this.#options.settings.groupId, errorCode, error: describeError(error) };
      this.#log('warn', fields, 'joining the group failed, retrying');
    }
    const isFirst = this.#backoff.failures === 0;
    const waitMs = this.#backoff.nextMs();
    if (refuses !== undefined) return PERSISTENT_RETRY_MS;
    return isUsual && isFirst ? 0 : waitMs;
  }

  #onHeartbeatResponse(member: MemberRequest, sentMs: number, errorCode: KafkaErrorCode | undefined): void {
    this.#joiner.coordinatorResponded();
    if (member !== this.#member || member.generation < 0) return;
    if (this.joined && (errorCode === undefined || meaningOf(errorCode).member === 'rejoins'))
      this.#session.confirm(sentMs);
    this.#onError(errorCode);
  }

  #onHeartbeatSilence(error: unknown): void {
    this.#joiner.coordinatorSilent();
    const fields = { groupId: this.#options.settings.groupId, error: describeError(error) };
    this.#log('warn', fields, 'the coordinator of the group does not answer');
  }

  /** A heartbeat or a commit was rejected. A join in progress gets the same error as its own response. */
  #onError(errorCode: KafkaErrorCode | undefined): void {
    const { member } = meaningOf(errorCode);
    if (member === 'fenced') this.#fence();
    else if (!this.#isIn()) return;
    else if (member === 'rejoins' && this.#phase === 'in') this.#enter('closing');
    else if (member === 'expelled') this.#lose(errorCode, 'the coordinator removed this member from the group');
  }

  /** Keeps the member ID until the coordinator rejects it: the coordinator may still know this member. */
  #lose(errorCode: KafkaErrorCode | undefined, why: string): void {
    const had = this.#held !== undefined;
    this.#held = undefined;
    this.#session.end();
    this.#member = { ...this.#member, generation: NO_GENERATION };
    if (this.#isIn()) this.#enter('joining');
    if (!had) return;
    const { settings, onLost } = this.#options;
    onLost(
      new KafkaError(errorCode ?? 'UNKNOWN_MEMBER_ID', `the membership in group ${settings.groupId} was lost: ${why}`),
    );
  }

  #fence(): void {
    const { groupId, instanceId } = this.#options.settings;
    const message = `another process has joined group ${groupId} with the instance ID ${instanceId}`;
    this.#lose('FENCED_INSTANCE_ID', message);
    this.#end();
    this.#options.onFenced(new KafkaError('FENCED_INSTANCE_ID', message));
  }

  async #leaveGroup(): Promise<void> {
    const { memberId, instanceId } = this.#member;
    if (memberId === '' && instanceId === undefined) await this.#joining; // it may still get a member ID
    await this.#coordinator.leave(this.#member, LEAVE_MS, this.#log);
  }
}

/**
 * When a member ends a generation on its own. A generation lasts for a minimum time, and all requests in that time are
 * combined. A join that comes anyway fulfils the request, unless it was sent already.
 */
export class Rejoining {
  readonly #runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>;
  readonly #afterMs: number;
  readonly #begin: () => void;
  #isRequested = false;
  #sinceMs = Number.NEGATIVE_INFINITY;
  #timer: Timer | undefined;

  /** `begin` ends the current generation, if there is one. */
  constructor(runtime: Pick<Runtime, 'monotonicMs' | 'schedule'>, afterMs: number, begin: () => void) {
    this.#runtime = runtime;
    this.#afterMs = afterMs;
    this.#begin = begin;
  }

  /** The same report, but reading it fulfils the request: that join reports everything. */
  watching<T>(report: () => T): () => T {
    return () => {
      this.#isRequested = false;
      return report();
    };
  }

  request(): void {
    this.#isRequested = true;
    this.#arm();
  }

  /** A generation has started. */
  joined(): void {
    this.#sinceMs = this.#runtime.monotonicMs();
    this.#arm();
  }

  end(): void {
    this.#isRequested = false;
    this.#timer?.cancel();
  }

  #arm(): void {
    if (!this.#isRequested) return;
    this.#timer?.cancel();
    const waitMs = Math.max(0, this.#sinceMs + this.#afterMs - this.#runtime.monotonicMs());
    this.#timer = this.#runtime.schedule(waitMs, () => {
      if (this.#isRequested) this.#begin();
    });
  }
}
