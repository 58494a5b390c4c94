import type { Runtime } from '../../async/runtime.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaError } from '../wire/kafka-error.ts';
import type { Share } from './assigner.ts';
import type { GroupCluster } from './coordinator.ts';
import type { CopyReport } from './copies.ts';
import type { PlanSettings } from './planner.ts';

/** The settings of a member of the consumer group of one topic. */
export interface MemberSettings {
  readonly groupId: string;
  readonly topic: string;
  /** The number of partitions of the topic. */
  readonly partitions: number;
  /** Static membership (KIP-345): after a restart within the session the member keeps its partitions without a rebalance. */
  readonly instanceId?: string | undefined;
  readonly sessionTimeoutMs?: number;
  /** A rebalance is noticed within this time. At most a third of the session. */
  readonly heartbeatMs?: number;
  /** How long the coordinator waits for members to rejoin. */
  readonly rebalanceTimeoutMs?: number;
  /** The least time that a generation lasts before this member ends it by `rejoin`. */
  readonly rejoinAfterMs?: number;
  /**
   * The copies of partitions that this member has, including those that it owns; called at each join. A copy that may be
   * of another log must not be included.
   */
  readonly copies: () => CopyReport;
  /** Partitions that this member can't serve now, since it does not reach a broker that leads them; called at each join. */
  readonly unreached?: () => readonly number[];
  /** How many members besides the owner keep a copy of each partition; used if this member leads the group. */
  readonly standbys?: number | 'all';
  /** How many entries a copy may lack for its member to own the partition. */
  readonly acceptableLag?: number;
}

/** A member's assignment in a generation of the group, as sorted lists. */
export interface Assigned extends Share {
  readonly generation: number;
  /** Partitions that it did not own before. */
  readonly added: readonly number[];
  /** Partitions that it no longer owns. */
  readonly removed: readonly number[];
}

export interface MemberOptions extends MemberSettings {
  readonly cluster: GroupCluster;
  readonly runtime: Runtime;
  readonly log?: WireLog;
  readonly onAssigned: (assigned: Assigned) => void;
  /** The membership was lost: other members may own all partitions now. It rejoins automatically. */
  readonly onLost: (cause: KafkaError) => void;
  /** The last chance to commit before rejoining; awaited for one second at most. */
  readonly beforeRejoin?: () => Promise<void>;
  /** Another process has the instance ID: this member has ended permanently. */
  readonly onFenced: (error: KafkaError) => void;
}

const SESSION_TIMEOUT_MS = 10_000;
const HEARTBEAT_MS = 500;
const REBALANCE_TIMEOUT_MS = 10_000;
const REJOIN_AFTER_MS = 5_000;
const ACCEPTABLE_LAG = 100_000;

type Times = 'sessionTimeoutMs' | 'heartbeatMs' | 'rebalanceTimeoutMs' | 'rejoinAfterMs';

export type Timing = Required<Pick<MemberSettings, Times>>;

export function memberTimingOf(settings: MemberSettings): Timing {
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
