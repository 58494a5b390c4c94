import { describeError } from '../../errors.ts';
import type { WireLog } from '../wire/broker.ts';
import { encodeAssignment } from '../wire/consumer-protocol.ts';
import type { JoinGroupResponse, SyncGroupRequest } from '../wire/group-apis.ts';
import { type Candidate, type Claims, NOTHING, type Share } from './assigner.ts';
import { encodeStandbys } from './copies-format.ts';
import { decodeJoining } from './member-claims.ts';
import { type Plan, type PlanSettings, planGroup } from './planner.ts';

/** The most instance IDs whose partitions are remembered; the least recent is forgotten first. */
const MAX_REMEMBERED = 1_000;

type LeadershipSettings = PlanSettings & { readonly topic: string };
type Member = JoinGroupResponse['members'][number];

/**
 * The leader's part in a group: assigning the partitions of its topic.
 *
 * A restarted static member claims nothing, and one that missed a generation claims what it had before. So the leader
 * remembers what it assigned to each instance ID, for members that return while it leads.
 */
export class Leadership {
  readonly #settings: LeadershipSettings;
  readonly #log: WireLog;
  readonly #assigned = new Map<string, Claims>();
  #proposed: ReadonlyMap<string, Claims> = new Map();

  constructor(settings: LeadershipSettings, log: WireLog) {
    this.#settings = settings;
    this.#log = log;
  }

  /** Assigns partitions to the members. A member with another topic or a malformed subscription gets none. */
  assign({ generation, members }: JoinGroupResponse): SyncGroupRequest['assignments'] {
    const candidates = members.flatMap((member) => this.#candidate(member) ?? []);
    const plan = planGroup(this.#settings, candidates);
    this.#proposed = byInstance(generation, members, plan);
    return members.map(({ memberId }) => ({ memberId, assignment: this.#encoded(plan.get(memberId) ?? NOTHING) }));
  }

  /** The coordinator has accepted the last assignment. Before that it may never take effect. */
  confirm(): void {
    for (const [instanceId, claims] of this.#proposed) {
      this.#assigned.delete(instanceId);
      this.#assigned.set(instanceId, claims);
    }
    for (const instanceId of this.#assigned.keys()) {
      if (this.#assigned.size <= MAX_REMEMBERED) break;
      this.#assigned.delete(instanceId);
    }
  }

  #candidate({ memberId, instanceId, metadata }: Member): Candidate | undefined {
    try {
      const { topics, claims, copies, unreached } = decodeJoining(this.#settings.topic, metadata);
      if (!topics.includes(this.#settings.topic)) {
        this.#log('warn', { memberId, topics }, 'a group member subscribes to other topics; it gets no partitions', {
          about: memberId,
        });
        return undefined;
      }
      const previous = instanceId === undefined ? undefined : this.#assigned.get(instanceId);
      return {
        memberId,
        instanceId,
        claims: previous === undefined ? [claims] : [claims, previous],
        copies,
        unreached,
      };
    } catch (error) {
      const fields = { memberId, error: describeError(error) };
      this.#log('warn', fields, "a group member's subscription is malformed; it gets no partitions", {
        about: memberId,
      });
      return undefined;
    }
  }

  #encoded({ partitions, standbys, warmups }: Share): Buffer {
    const assigned = partitions.length === 0 ? [] : [{ topic: this.#settings.topic, partitions }];
    const userData = standbys.length === 0 ? Buffer.alloc(0) : encodeStandbys({ standbys, warmups });
    return encodeAssignment({ assigned, userData });
  }
}

function byInstance(generation: number, members: readonly Member[], plan: Plan): ReadonlyMap<string, Claims> {
  return new Map(
    members.flatMap(({ memberId, instanceId }) => {
      const share = plan.get(memberId);
      return instanceId === undefined || share === undefined ? [] : [[instanceId, { generation, ...share }]];
    }),
  );
}
