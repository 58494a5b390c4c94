import { describeError } from '../../errors.ts';
import type { JoinAnswer, SyncRequest } from '../wire/port.ts';
import type { Candidate, Claims, Share } from './assigner.ts';
import { encodeStanding } from './copies-format.ts';
import { encodeAssignment } from './group-protocol.ts';
import { decodeJoining, STICKY } from './member-claims.ts';
import { type Plan, type PlanSettings, planGroup, planRoundRobin } from './planner.ts';
import type { SparingLog } from './sparing-log.ts';

/** Instance IDs whose partitions are remembered; the one that was there longest ago is forgotten first. */
const MAX_REMEMBERED = 1_000;

const NOTHING: Share = { partitions: [], standbys: [], warmups: [] };

type Member = JoinAnswer['members'][number];

/**
 * What a member does when the group has chosen it as its leader: deals out the partitions of its topic.
 *
 * A static member that restarts claims nothing, and one that is waited for in vain claims what it had a generation
 * earlier. So the leader remembers what it gave to each instance ID, for members that come back while it leads.
 */
export class Leadership {
  readonly #topic: string;
  readonly #settings: PlanSettings;
  readonly #log: SparingLog;
  readonly #given = new Map<string, Claims>();
  #proposed: ReadonlyMap<string, Claims> = new Map();

  constructor(topic: string, settings: PlanSettings, log: SparingLog) {
    this.#topic = topic;
    this.#settings = settings;
    this.#log = log;
  }

  /** What each member gets. A member that does not subscribe to the topic, or can't be understood, gets nothing. */
  assign({ generation, protocol, members }: JoinAnswer): SyncRequest['assignments'] {
    const candidates = members.flatMap((member) => this.#candidate(member) ?? []);
    const plan =
      protocol === STICKY
        ? planGroup(this.#settings, candidates)
        : planRoundRobin(this.#settings.partitions, candidates);
    this.#proposed = byInstance(generation, members, plan);
    return members.map(({ memberId }) => ({ memberId, assignment: this.#encoded(plan.get(memberId) ?? NOTHING) }));
  }

  /** The coordinator has taken the last assignment. Before that it may never come into force. */
  confirm(): void {
    for (const [instanceId, claims] of this.#proposed) {
      this.#given.delete(instanceId);
      this.#given.set(instanceId, claims);
    }
    for (const instanceId of this.#given.keys()) {
      if (this.#given.size <= MAX_REMEMBERED) break;
      this.#given.delete(instanceId);
    }
  }

  #candidate({ memberId, instanceId, metadata }: Member): Candidate | undefined {
    try {
      const { topics, claims, copies } = decodeJoining(this.#topic, metadata);
      if (!topics.includes(this.#topic)) {
        this.#log.warn({ memberId, topics }, 'a member of the group subscribes to other topics and gets no partitions');
        return undefined;
      }
      const given = instanceId === undefined ? undefined : this.#given.get(instanceId);
      return {
        memberId,
        ...(instanceId === undefined ? {} : { instanceId }),
        claims: given === undefined ? [claims] : [claims, given],
        copies,
      };
    } catch (error) {
      const fields = { memberId, error: describeError(error) };
      this.#log.warn(fields, 'the subscription of a member of the group is malformed; it gets no partitions');
      return undefined;
    }
  }

  #encoded({ partitions, standbys, warmups }: Share): Buffer {
    const assigned = partitions.length === 0 ? [] : [{ topic: this.#topic, partitions }];
    const userData = standbys.length === 0 ? Buffer.alloc(0) : encodeStanding({ standbys, warmups });
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
