import { encodeSubscription } from '../../../src/kafka/loops/member-claims.ts';
import type { BrokerResponse } from '../../../src/kafka/wire/api.ts';
import type { JoinGroupResponse, MemberRequest, SyncGroupResponse } from '../../../src/kafka/wire/group-apis.ts';
import type { BrokerLink, ResponseOf } from '../../../src/kafka/wire/port.ts';
import { eventually, faultFrom, type WireStage } from './stage.ts';

/** Longer than the steps of a case on a busy machine: a member sends a heartbeat only when the case says so. */
const PATIENCE_MS = 60_000;

export interface MemberOptions {
  readonly instanceId?: string;
  readonly protocols?: readonly string[];
  readonly sessionTimeoutMs?: number;
}

/** A group member at the level of calls; on its own connection, because a join waits. */
export class TestMember {
  readonly groupId: string;
  readonly #stage: WireStage;
  readonly #options: MemberOptions;
  readonly #purpose: string;
  memberId = '';
  generation = -1;
  /** The user data of its subscription. */
  says: string;

  constructor(stage: WireStage, groupId: string, options: MemberOptions = {}) {
    this.#stage = stage;
    this.groupId = groupId;
    this.#options = options;
    this.#purpose = stage.name('member');
    this.says = `of ${this.#purpose}`;
  }

  get id(): MemberRequest {
    const { groupId, generation, memberId } = this;
    const { instanceId } = this.#options;
    return { groupId, generation, memberId, ...(instanceId === undefined ? {} : { instanceId }) };
  }

  /** One call, from which a new member gets its ID. */
  async joinOnce(): Promise<JoinGroupResponse> {
    const { protocols = ['one'], sessionTimeoutMs = PATIENCE_MS } = this.#options;
    // a real broker parses it, and never answers if it can't
    const metadata = encodeSubscription({ topics: ['subscribed'], userData: Buffer.from(this.says) });
    const answer = await this.call((link) =>
      link.call('joinGroup', {
        ...this.id,
        sessionTimeoutMs,
        rebalanceTimeoutMs: PATIENCE_MS,
        protocolType: 'consumer',
        protocols: protocols.map((name) => ({ name, metadata })),
      }),
    );
    this.memberId = answer.memberId;
    if (answer.errorCode === undefined) this.generation = answer.generation;
    return answer;
  }

  async join(): Promise<JoinGroupResponse> {
    const answer = await this.joinOnce();
    return answer.errorCode === 'MEMBER_ID_REQUIRED' ? this.joinOnce() : answer;
  }

  /** As the leader, gives each member its share. */
  sync(shares: Readonly<Record<string, string>> = {}): Promise<SyncGroupResponse> {
    const assignments = Object.entries(shares).map(([memberId, share]) => ({
      memberId,
      assignment: Buffer.from(share),
    }));
    return this.call((link) => link.call('syncGroup', { ...this.id, assignments }));
  }

  /** Alone in its group, with its own share. */
  async settle(share = 'all'): Promise<void> {
    await this.join();
    await this.sync({ [this.memberId]: share });
  }

  heartbeat(): Promise<BrokerResponse> {
    return this.call((link) => link.call('heartbeat', this.id));
  }

  leave(): Promise<BrokerResponse> {
    return this.call((link) => link.call('leaveGroup', this.id));
  }

  commit(topic: string, offsets: Readonly<Record<number, number>>): Promise<ResponseOf<'offsetCommit'>> {
    const { groupId, generation, memberId } = this;
    const partitions = Object.entries(offsets).map(([partition, offset]) => ({
      topic,
      partition: Number(partition),
      offset,
      metadata: `${partition} at ${offset}`,
    }));
    return this.call((link) => link.call('offsetCommit', { groupId, generation, memberId, partitions }));
  }

  /** Resolves when a heartbeat fails with that fault. */
  untilFault(errorCode: string): Promise<void> {
    return eventually(async () => (await faultFrom(this.heartbeat())) === errorCode);
  }

  call<R extends BrokerResponse>(use: (link: BrokerLink) => Promise<R>): Promise<R> {
    return this.#stage.onCoordinator(this.groupId, use, this.#purpose);
  }
}
