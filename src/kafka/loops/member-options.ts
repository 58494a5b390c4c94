import type { Runtime } from '../../async/runtime.ts';
import type { WireLog } from '../wire/broker.ts';
import type { KafkaError } from '../wire/kafka-error.ts';
import type { GroupCluster } from './coordinator.ts';
import type { Report } from './member-claims.ts';
import type { PlanSettings, Share } from './planner.ts';

/** The settings of a member of the consumer group of one topic. The plan's are used if this member leads the group. */
export interface MemberSettings extends PlanSettings {
  readonly groupId: string;
  readonly topic: string;
  /**
   * Static membership (KIP-345): after a restart within the session the member keeps its partitions without a
   * rebalance.
   */
  readonly instanceId: string | undefined;
  /** Where the member runs; undefined if that is not known. */
  readonly zone: string | undefined;
  readonly sessionTimeoutMs: number;
  /** A rebalance is noticed within this time. At most a third of the session. */
  readonly heartbeatMs: number;
  /** How long the coordinator waits for members to rejoin. */
  readonly rebalanceTimeoutMs: number;
  /** The least time that a generation lasts before this member ends it by `rejoin`. */
  readonly rejoinAfterMs: number;
}

const DEFAULTS = {
  instanceId: undefined,
  zone: undefined,
  sessionTimeoutMs: 10_000,
  heartbeatMs: 500,
  rebalanceTimeoutMs: 10_000,
  rejoinAfterMs: 5_000,
  standbys: 0,
  acceptableLag: 100_000,
} as const;

/** The settings with what is not chosen by default. */
export function memberSettings(
  chosen: Partial<MemberSettings> & Pick<MemberSettings, 'groupId' | 'topic' | 'partitions'>,
): MemberSettings {
  const settings = { ...DEFAULTS, ...chosen };
  return Object.freeze({ ...settings, heartbeatMs: Math.min(settings.heartbeatMs, settings.sessionTimeoutMs / 3) });
}

/** A member's assignment in a generation of the group, as sorted lists. */
export interface Assigned extends Share {
  readonly generation: number;
  /** Partitions that it did not own before. */
  readonly added: readonly number[];
  /** Partitions that it no longer owns. */
  readonly removed: readonly number[];
}

export interface MemberOptions {
  readonly settings: MemberSettings;
  readonly cluster: GroupCluster;
  readonly runtime: Runtime;
  readonly log?: WireLog;
  /**
   * The state of this member, called at each join: its copies of partitions, including those that it owns, but none
   * that may be of another log.
   */
  readonly report: () => Report;
  readonly onAssigned: (assigned: Assigned) => void;
  /** The membership was lost: other members may own all partitions now. It rejoins automatically. */
  readonly onLost: (cause: KafkaError) => void;
  /** The last chance to commit before rejoining; awaited for one second at most. */
  readonly beforeRejoin?: () => Promise<void>;
  /**
   * The group has members that are not workers, by these names; none if they are not known. It joins again when they
   * are gone.
   */
  readonly onForeign?: ((names: readonly string[]) => void) | undefined;
  /** Another process has the instance ID: this member has ended permanently. */
  readonly onFenced: (error: KafkaError) => void;
}
