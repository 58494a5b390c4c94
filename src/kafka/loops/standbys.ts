import type { Candidate } from './assigner.ts';
import type { Copies, Lags } from './copies.ts';

interface Place {
  readonly candidate: Candidate;
  readonly copies: Copies;
  readonly before: ReadonlySet<number>;
  readonly partitions: Set<number>;
}

/**
 * Who keeps copies of which partitions beside their owners: `count` members for each, or as many as there are.
 *
 * - Whoever warms up is one of them, whatever `count` says.
 * - Those whose copies are most complete come first; all that are caught up are equal.
 * - Of equals one that has less than its part, then one that was a standby before, then one that has some copy, then the
 *   one that has least.
 * - A member that says nothing of its copies is none.
 */
export function chooseStandbys(
  candidates: readonly Candidate[],
  owners: readonly Candidate[],
  targets: readonly Candidate[],
  lags: Lags,
  count: number,
): ReadonlyMap<Candidate, ReadonlySet<number>> {
  const places = candidates.flatMap((candidate) => placeOf(candidate) ?? []);
  const others = owners.map((owner) => places.filter(({ candidate }) => candidate !== owner));
  const wanted = others.map(({ length }) => Math.min(count, length));
  const part = wanted.reduce((sum, one) => sum + one, 0) / places.length;
  for (const { candidate, partitions } of places) {
    targets.forEach((target, partition) => {
      if (target === candidate && owners[partition] !== candidate) partitions.add(partition);
    });
  }
  others.forEach((able, partition) => {
    const isWarm = able.some(({ partitions }) => partitions.has(partition));
    const best = inPreference(able, partition, lags, part).filter(({ partitions }) => !partitions.has(partition));
    for (const { partitions } of best.slice(0, Math.max(0, (wanted[partition] ?? 0) - Number(isWarm)))) {
      partitions.add(partition);
    }
  });
  return new Map(places.map(({ candidate, partitions }) => [candidate, partitions]));
}

function placeOf(candidate: Candidate): Place | undefined {
  const { copies, claims } = candidate;
  if (copies === undefined) return undefined;
  const before = new Set(claims.flatMap(({ standbys }) => standbys));
  return { candidate, copies, before, partitions: new Set() };
}

function inPreference(able: readonly Place[], partition: number, lags: Lags, part: number): Place[] {
  const rank = ({ candidate, copies, before, partitions }: Place) => [
    lags.isCaughtUp(candidate, partition) ? 0 : lags.of(candidate, partition),
    partitions.size < part ? 0 : 1,
    before.has(partition) ? 0 : 1,
    copies.has(partition) ? 0 : 1,
    partitions.size,
  ];
  return able
    .map((place) => ({ place, rank: rank(place) }))
    .sort((one, other) => compareAll(one.rank, other.rank))
    .map(({ place }) => place);
}

/** By the first numbers that differ. */
function compareAll(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((value, i) => value !== other[i]);
  return at < 0 ? 0 : (one[at] ?? 0) - (other[at] ?? 0);
}
