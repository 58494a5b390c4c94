import type { Candidate } from './assigner.ts';
import type { Lags } from './copies.ts';

/**
 * Who owns each partition for now, so that none waits for its state while somebody has it.
 *
 * - A target owner that is caught up has its partition at once; so has one where nobody is, and restores it.
 * - Else the present owner keeps it, if that one is caught up.
 * - Else it goes, of those who are caught up, to the one that owns least.
 */
export function ownersForNow(candidates: readonly Candidate[], targets: readonly Candidate[], lags: Lags): Candidate[] {
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

/** The newest claims to own. Of those of one generation the first member's counts. */
function presentOwners(candidates: readonly Candidate[]): ReadonlyMap<number, Candidate> {
  const claims = candidates.flatMap((candidate) => candidate.claims.map((claim) => ({ candidate, ...claim })));
  const oldestFirst = claims.reverse().sort((one, other) => one.generation - other.generation);
  return new Map(
    oldestFirst.flatMap(({ candidate, partitions }) => partitions.map((partition) => [partition, candidate])),
  );
}
