import type { Runtime } from '../../core/runtime.ts';
import type { Cluster } from '../wire/cluster.ts';
import { type FaultName, faultOf, isLinkFault, KafkaFault } from '../wire/fault.ts';
import type { Lane } from '../wire/lane.ts';
import type { Answer, BrokerLink } from '../wire/port.ts';

/** What of a cluster a group needs. */
export type GroupCluster = Pick<Cluster, 'coordinator' | 'doubtCoordinator' | 'call'>;

/** With less time left nothing is sent: a broker is not suspected because its caller came late. */
const MIN_CALL_MS = 250;
/** Any broker can say who coordinates a group, so this is not waited for as long as a group is. */
const MAX_FIND_MS = 5_000;

/** Answers by which a broker says that it is not the coordinator, or does not know the group yet. */
const COORDINATION_FAULTS: ReadonlySet<FaultName> = new Set([
  'GROUP_LOAD_IN_PROGRESS',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR_FOR_GROUP',
]);

/** Whether nobody has answered who knows the group. */
export function isUnanswered(fault: FaultName | undefined): boolean {
  return isLinkFault(fault) || (fault !== undefined && COORDINATION_FAULTS.has(fault));
}

/** The broker that coordinates one group: looked for again whenever it has not answered, or says that it is another. */
export class Coordinator {
  readonly groupId: string;
  readonly #cluster: GroupCluster;
  readonly #runtime: Runtime;
  #answeredMs = Number.NEGATIVE_INFINITY;

  constructor(cluster: GroupCluster, runtime: Runtime, groupId: string) {
    this.#cluster = cluster;
    this.#runtime = runtime;
    this.groupId = groupId;
  }

  /** One call, sent once at most. The time covers finding the coordinator and connecting to it as well. */
  async call<R extends Answer>(lane: Lane, timeoutMs: number, use: (link: BrokerLink) => Promise<R>): Promise<R> {
    const beganMs = this.#runtime.monotonicMs();
    try {
      const node = await this.#cluster.coordinator(this.groupId, Math.min(timeoutMs, MAX_FIND_MS));
      const leftMs = timeoutMs - (this.#runtime.monotonicMs() - beganMs);
      if (leftMs < MIN_CALL_MS) throw new KafkaFault('UNREACHABLE', 'no time was left to ask the coordinator');
      const answer = await this.#cluster.call(node, lane, leftMs, use);
      this.#answeredMs = this.#runtime.monotonicMs();
      return answer;
    } catch (error) {
      this.heard(faultOf(error));
      throw error;
    }
  }

  /** A fault that the coordinator answered with, or that came in place of its answer. */
  heard(fault: FaultName | undefined): void {
    if (isUnanswered(fault)) this.#cluster.doubtCoordinator(this.groupId);
    else if (fault !== undefined) this.#answeredMs = this.#runtime.monotonicMs();
  }

  /** Rejects unless the coordinator answers, or has answered within the last second. What it answers does not matter. */
  async reach(timeoutMs: number): Promise<void> {
    if (this.#runtime.monotonicMs() - this.#answeredMs < RECENT_MS) return;
    const nobody = { groupId: this.groupId, generation: -1, memberId: '' };
    try {
      await this.call('control', timeoutMs, (link) => link.heartbeat(nobody));
    } catch (error) {
      const fault = faultOf(error);
      if (fault === undefined || isUnanswered(fault)) throw error;
    }
  }
}

const RECENT_MS = 1_000;
