import { decodeAssignment, encodeSubscription, STICKY } from '../../../src/kafka/loops/member-claims.ts';
import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import { dialerOf } from '../../support/fake-kafka/link.ts';
import { addressOf } from '../../support/fake-kafka/view.ts';
import { GROUP, type GroupStage, TOPIC } from './group-stage.ts';

const HEARTBEAT_MS = 3_000;

interface OtherOptions {
  /** The only assigner that it offers; ours by default. */
  readonly protocol?: string;
  /** What it sends to all members as their leader. */
  readonly assignment?: Buffer;
}

/** A member of another kind: it claims nothing and reports no copies. */
export class OtherMember {
  readonly #stage: GroupStage;
  readonly #options: OtherOptions;
  #link: BrokerLink | undefined;
  #memberId = '';
  #left = false;
  held: readonly number[] = [];
  /** Why its last join or heartbeat failed. */
  error: unknown;

  constructor(stage: GroupStage, options: OtherOptions = {}) {
    this.#stage = stage;
    this.#options = options;
  }

  start(): this {
    void this.#run();
    return this;
  }

  async leave(): Promise<void> {
    this.#left = true;
    await this.#link?.call('leaveGroup', { groupId: GROUP, memberId: this.#memberId });
  }

  async #run(): Promise<void> {
    const { kafka, network, runtime, coordinator } = this.#stage;
    const link = await dialerOf(kafka, network).dial(addressOf(coordinator), new AbortController().signal);
    this.#link = link;
    while (!this.#left) {
      try {
        const generation = await this.#join(link);
        for (;;) {
          await runtime.sleep(HEARTBEAT_MS);
          await link.call('heartbeat', { groupId: GROUP, memberId: this.#memberId, generation });
        }
      } catch (error) {
        this.error = error;
        await runtime.sleep(1); // joins again
      }
    }
  }

  async #join(link: BrokerLink): Promise<number> {
    const { protocol = STICKY, assignment = Buffer.alloc(0) } = this.#options;
    const metadata = encodeSubscription({ topics: [TOPIC], userData: Buffer.alloc(0) });
    const joined = await link.call('joinGroup', {
      groupId: GROUP,
      memberId: this.#memberId,
      sessionTimeoutMs: 10_000,
      rebalanceTimeoutMs: 60_000,
      protocolType: 'consumer',
      protocols: [{ name: protocol, metadata }],
    });
    this.#memberId = joined.memberId;
    if (joined.errorCode !== undefined) return this.#join(link);
    const { generation, memberId } = joined;
    const assignments = joined.members.map((member) => ({ memberId: member.memberId, assignment }));
    const synced = await link.call('syncGroup', { groupId: GROUP, memberId, generation, assignments });
    try {
      this.held = decodeAssignment(synced.assignment).assigned.flatMap(({ partitions }) => partitions);
    } catch (error) {
      this.error = error; // its own, which is malformed
    }
    return generation;
  }
}
