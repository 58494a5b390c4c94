import type { Candidate } from './assigner.ts';
import type { Lags } from './copies.ts';

/**
 * The interim owner of each partition, so that no partition waits for a restore while a member has its state.
 *
 * - The target owner, if it is caught up, or if no member is: then it restores the partition.
 * - Else the current owner, if it is caught up.
 * - Else the member that owns the fewest among those caught up.
 */
export function interimOwners(
  candidates: readonly Candidate[],
  targets: readonly Candidate[],
  lags: Lags,
): Candidate[] {
  const present = presentOwners(candidates);
  const owners = targets.map((target, partition) => {
    const first = [target, present.get(partition)];
    return first.find((one) => one !== undefined && lags.isCaughtUp(one, partition));
  });
  const owned = new Map(candidates.map((one) => [one, owners.filter((owner) => owner === one).length]));
  const count = (one: Candidate) => owned.get(one) ?? 0;
  return targets.map((target, partition) => {
    const owner = owners[partition];
    if (owner !== undefined) return owner;
    const caughtUp = candidates.filter((one) => lags.isCaughtUp(one, partition));
    const [standIn = target] = caughtUp.sort((one, other) => count(one) - count(other));
    owned.set(standIn, count(standIn) + 1);
    return standIn;
  });
}

/** The owners by the newest claims; within one generation the first member wins. */
function presentOwners(candidates: readonly Candidate[]): ReadonlyMap<number, Candidate> {
  const claims = candidates.flatMap((candidate) => candidate.claims.map((claim) => ({ candidate, ...claim })));
  const oldestFirst = claims.reverse().sort((one, other) => one.generation - other.generation);
  return new Map(
    oldestFirst.flatMap(({ candidate, partitions }) => partitions.map((partition) => [partition, candidate])),
  );
}
