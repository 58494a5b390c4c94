import { assignSticky, type Candidate, inOrder, type Share } from './assigner.ts';
import { Lags } from './copies.ts';
import { chooseStandbys } from './standbys.ts';
import { interimOwners } from './warm-ups.ts';

export interface PlanSettings {
  /** The number of partitions of the topic. */
  readonly partitions: number;
  /** Members besides the owner that keep a copy of each partition. */
  readonly standbys: number | 'all';
  /** Entries that a copy may lack for its member to own the partition immediately. */
  readonly acceptableLag: number;
}

/** Shares by member ID. */
export type Plan = ReadonlyMap<string, Share>;

/**
 * Plans the owner and the standbys of each partition.
 *
 * The target is balanced and sticky. A partition whose target owner has no complete copy stays with a member that has one,
 * while the target owner warms up as a standby (KIP-441). Later plans keep that promise: it gets the partition in the
 * first plan that finds its copy complete. The same members give the same plan, in any order.
 */
export function planGroup({ partitions, standbys, acceptableLag }: PlanSettings, members: readonly Candidate[]): Plan {
  const candidates = inOrder(members);
  const lags = new Lags(candidates, acceptableLag);
  const targets = assignSticky(partitions, candidates, lags);
  const owners = interimOwners(candidates, targets, lags);
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
