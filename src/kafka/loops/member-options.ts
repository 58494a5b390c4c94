import type { Runtime } from '../../core/runtime.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaFault } from '../wire/fault.ts';
import type { Share } from './assigner.ts';
import type { GroupCluster } from './coordinator.ts';
import type { Copies } from './copies.ts';
import type { PlanSettings } from './planner.ts';

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
  /** A generation lasts so long at least before this member ends it by `rejoin`. */
  readonly rejoinAfterMs?: number;
  /**
   * The copies that this member has of partitions' state, those included that it owns; asked at each join. A copy that may
   * be one of another log must not be among them. Who has no such function is a member that keeps what it needs by itself:
   * it gets its partitions at once, and no standbys.
   */
  readonly copies?: () => Copies;
  /** How many members keep a copy of each partition beside its owner, where this member leads the group. */
  readonly standbys?: number | 'all';
  /** Entries that a copy may lack to be complete enough for its member to own the partition. */
  readonly acceptableLag?: number;
}

/** What a member has in a generation of the group, all in their order. */
export interface Assigned extends Share {
  readonly generation: number;
  /** Those of its partitions that it did not have before. */
  readonly added: readonly number[];
  /** Those that it has no longer. */
  readonly removed: readonly number[];
}

export interface MemberOptions extends MemberSettings {
  readonly cluster: GroupCluster;
  readonly runtime: Runtime;
  readonly log?: WireLog;
  readonly onAssigned: (assigned: Assigned) => void;
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
const REJOIN_AFTER_MS = 5_000;
const ACCEPTABLE_LAG = 100_000;

type Times = 'sessionTimeoutMs' | 'heartbeatMs' | 'rebalanceTimeoutMs' | 'rejoinAfterMs';

export type Timing = Required<Pick<MemberSettings, Times>>;

export function timingOf(settings: MemberSettings): Timing {
  const sessionTimeoutMs = settings.sessionTimeoutMs ?? SESSION_TIMEOUT_MS;
  return {
    sessionTimeoutMs,
    heartbeatMs: Math.min(settings.heartbeatMs ?? HEARTBEAT_MS, sessionTimeoutMs / 3),
    rebalanceTimeoutMs: settings.rebalanceTimeoutMs ?? REBALANCE_TIMEOUT_MS,
    rejoinAfterMs: settings.rejoinAfterMs ?? REJOIN_AFTER_MS,
  };
}

export function planSettingsOf({ partitions, standbys = 0, acceptableLag = ACCEPTABLE_LAG }: MemberSettings) {
  return { partitions, standbys, acceptableLag } satisfies PlanSettings;
}
