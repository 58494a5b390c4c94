import type { Runtime } from '../../core/runtime.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaFault } from '../wire/fault.ts';
import type { GroupCluster } from './coordinator.ts';

/** How a member takes part in the consumer group of one topic. */
export interface MemberSettings {
  readonly groupId: string;
  readonly topic: string;
  /** How many the topic has. */
  readonly partitions: number;
  /** Static membership (KIP-345): who restarts with it within the session takes its partitions back, without a rebalance. */
  readonly instanceId?: string;
  readonly sessionTimeoutMs?: number;
  /** A rebalance is noticed within this time. At most a third of the session. */
  readonly heartbeatMs?: number;
  /** The coordinator waits so long for members to join again. */
  readonly rebalanceTimeoutMs?: number;
  /** Travels in the subscription, to whoever leads the group. */
  readonly userData?: () => Buffer;
}

export interface MemberOptions extends MemberSettings {
  readonly cluster: GroupCluster;
  readonly runtime: Runtime;
  readonly log?: WireLog;
  /** All partitions of this member, those it did not have before, and those it has no longer. */
  readonly onAssigned: (
    partitions: readonly number[],
    added: readonly number[],
    removed: readonly number[],
    generation: number,
  ) => void;
  /** Not a member any more: all partitions may be somebody else's. It joins again by itself. */
  readonly onLost: (cause: KafkaFault) => void;
  /** The last chance to commit before the group is joined again; waited for one second at most. */
  readonly beforeRejoin?: () => Promise<void>;
  /** Another process has the instance ID: this member has ended for good. */
  readonly onFenced: (error: KafkaFault) => void;
}

const SESSION_TIMEOUT_MS = 10_000;
const HEARTBEAT_MS = 500;
const REBALANCE_TIMEOUT_MS = 10_000;

export type Timing = Required<Pick<MemberSettings, 'sessionTimeoutMs' | 'heartbeatMs' | 'rebalanceTimeoutMs'>>;

export function timingOf(settings: MemberSettings): Timing {
  const sessionTimeoutMs = settings.sessionTimeoutMs ?? SESSION_TIMEOUT_MS;
  return {
    sessionTimeoutMs,
    heartbeatMs: Math.min(settings.heartbeatMs ?? HEARTBEAT_MS, sessionTimeoutMs / 3),
    rebalanceTimeoutMs: settings.rebalanceTimeoutMs ?? REBALANCE_TIMEOUT_MS,
  };
}
