import { assignRoundRobin, assignSticky, type Candidate, inOrder, type Share } from './assigner.ts';
import { Lags } from './copies.ts';
import { chooseStandbys } from './standbys.ts';
import { ownersForNow } from './warm-ups.ts';

export interface PlanSettings {
  /** How many the topic has. */
  readonly partitions: number;
  /** Members that keep a copy of a partition's state beside its owner. */
  readonly standbys: number | 'all';
  /** Entries that a copy may lack for a member to own the partition at once. */
  readonly acceptableLag: number;
}

/** The share of each member by its member ID. */
export type Plan = ReadonlyMap<string, Share>;

/**
 * Who owns each partition, and who keeps copies of its state.
 *
 * The target is balanced and sticky. A partition whose target owner has no complete copy stays with somebody who has one,
 * and the target owner warms up as a standby (KIP-441). It keeps that promise in later plans, and gets the partition in
 * the first one that finds its copy complete. The same members give the same plan, in whatever order they come.
 */
export function planGroup({ partitions, standbys, acceptableLag }: PlanSettings, members: readonly Candidate[]): Plan {
  const candidates = inOrder(members);
  const lags = new Lags(candidates, acceptableLag);
  const targets = assignSticky(partitions, candidates, lags);
  const owners = ownersForNow(candidates, targets, lags);
  const count = standbys === 'all' ? Number.POSITIVE_INFINITY : standbys;
  const copying = chooseStandbys(candidates, owners, targets, lags, count);
  const all = Array.from(targets.keys());
  return new Map(
    candidates.map((candidate) => {
      const standbysOf = [...(copying.get(candidate) ?? [])].sort((one, other) => one - other);
      const share = {
        partitions: all.filter((partition) => owners[partition] === candidate),
        standbys: standbysOf,
        warmups: standbysOf.filter((partition) => targets[partition] === candidate),
      };
      return [candidate.memberId, share];
    }),
  );
}

/** For a group with a member of an earlier release, which knows of no copies. */
export function planRoundRobin(partitions: number, members: readonly Candidate[]): Plan {
  const dealt = assignRoundRobin(
    partitions,
    members.map(({ memberId }) => memberId),
  );
  return new Map([...dealt].map(([memberId, owned]) => [memberId, { partitions: owned, standbys: [], warmups: [] }]));
}
