import type { Candidate } from './assigner.ts';
import type { Lags } from './copies.ts';

/**
 * The interim owner of each partition, so that no partition waits for a restore or for a broker while another member could
 * serve it. Of the members that reach its brokers, or of all if none does:
 *
 * - The target owner, if it is caught up, or if no member is and it reaches them: then it restores the partition.
 * - Else the current owner, if it is caught up.
 * - Else the member that owns the fewest among those caught up.
 * - Else the member that owns the fewest among those that reach its brokers, which restores the partition.
 */
export function interimOwners(
  candidates: readonly Candidate[],
  targets: readonly Candidate[],
  lags: Lags,
): Candidate[] {
  const present = presentOwners(candidates);
  const choices = targets.map((target, partition): Choice => {
    const reaching = candidates.filter(({ unreached = [] }) => !unreached.includes(partition));
    const able = reaching.length === 0 ? candidates : reaching;
    const caughtUp = able.filter((one) => lags.isCaughtUp(one, partition));
    const first = [target, present.get(partition)].find((one) => one !== undefined && caughtUp.includes(one));
    if (first !== undefined) return { owner: first, others: [] };
    return { owner: undefined, others: caughtUp.length > 0 ? caughtUp : able.includes(target) ? [target] : able };
  });
  const owned = new Map(candidates.map((one) => [one, choices.filter(({ owner }) => owner === one).length]));
  const count = (one: Candidate) => owned.get(one) ?? 0;
  return choices.map(({ owner, others }, partition) => {
    if (owner !== undefined) return owner;
    const [standIn = targets[partition] as Candidate] = others.toSorted((one, other) => count(one) - count(other));
    owned.set(standIn, count(standIn) + 1);
    return standIn;
  });
}

/** Who owns a partition for now, or among whom the one with the fewest is chosen. */
interface Choice {
  readonly owner: Candidate | undefined;
  readonly others: readonly Candidate[];
}

/** The owners by the newest claims; within one generation the first member wins. */
function presentOwners(candidates: readonly Candidate[]): ReadonlyMap<number, Candidate> {
  const claims = candidates.flatMap((candidate) => candidate.claims.map((claim) => ({ candidate, ...claim })));
  const oldestFirst = claims.reverse().sort((one, other) => one.generation - other.generation);
  return new Map(
    oldestFirst.flatMap(({ candidate, partitions }) => partitions.map((partition) => [partition, candidate])),
  );
}
