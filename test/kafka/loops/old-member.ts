import { assignRoundRobin } from '../../../src/kafka/loops/assigner.ts';
import { decodeAssignment, encodeAssignment, encodeSubscription } from '../../../src/kafka/loops/group-protocol.ts';
import { ROUND_ROBIN } from '../../../src/kafka/loops/member-claims.ts';
import type { BrokerLink, JoinGroupResponse } from '../../../src/kafka/wire/port.ts';
import { dialerOf } from '../../support/fake-kafka/link.ts';
import { addressOf } from '../../support/fake-kafka/view.ts';
import { GROUP, type GroupStage, PARTITIONS, TOPIC } from './group-stage.ts';

const HEARTBEAT_MS = 3_000;

/**
 * A member of an earlier release: a kafkajs consumer, with one assigner and claims without a generation, or one with our
 * assigner that reports no copies. As leaders both assign round-robin.
 */
export class OldMember {
  readonly #stage: GroupStage;
  readonly #protocol: string;
  readonly #assignment: Buffer | undefined;
  #link: BrokerLink | undefined;
  #memberId = '';
  #left = false;
  #generation = 0;
  held: readonly number[] = [];

  /** As the leader it sends these bytes to all members, if set. */
  constructor(stage: GroupStage, assignment?: Buffer, protocol = ROUND_ROBIN) {
    this.#stage = stage;
    this.#protocol = protocol;
    this.#assignment = assignment;
  }

  start(): this {
    void this.#run();
    return this;
  }

  async leave(): Promise<void> {
    this.#left = true;
    await this.#link?.leaveGroup({ groupId: GROUP, memberId: this.#memberId });
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
          await link.heartbeat({ groupId: GROUP, memberId: this.#memberId, generation });
        }
      } catch {
        await runtime.sleep(1); // joins again
      }
    }
  }

  async #join(link: BrokerLink): Promise<number> {
    const owned = this.held.length === 0 ? [] : [{ topic: TOPIC, partitions: this.held }];
    const none = { topics: [TOPIC], userData: Buffer.alloc(0) };
    const ours = { topics: [TOPIC], userData: Buffer.from([1, 0, 0, 0, this.#generation]), owned };
    const protocols = [{ name: ROUND_ROBIN, metadata: encodeSubscription(none) }];
    if (this.#protocol !== ROUND_ROBIN) {
      protocols.unshift({ name: this.#protocol, metadata: encodeSubscription(ours) });
    }
    const joined = await link.joinGroup({
      groupId: GROUP,
      memberId: this.#memberId,
      sessionTimeoutMs: 10_000,
      rebalanceTimeoutMs: 60_000,
      protocolType: 'consumer',
      protocols,
    });
    this.#memberId = joined.memberId;
    if (joined.errorCode !== undefined) return this.#join(link);
    const { generation, memberId } = joined;
    const assignments = this.#assignments(joined);
    const { assignment } = await link.syncGroup({ groupId: GROUP, memberId, generation, assignments });
    if (this.#assignment === undefined) {
      this.held = decodeAssignment(assignment).assigned.flatMap(({ partitions }) => partitions);
    }
    this.#generation = generation;
    return generation;
  }

  #assignments({ members }: JoinGroupResponse) {
    const memberIds = members.map(({ memberId }) => memberId);
    return [...assignRoundRobin(PARTITIONS, memberIds)].map(([memberId, partitions]) => ({
      memberId,
      assignment:
        this.#assignment ?? encodeAssignment({ assigned: [{ topic: TOPIC, partitions }], userData: Buffer.alloc(0) }),
    }));
  }
}
