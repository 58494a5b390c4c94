import type { Candidate } from './assigner.ts';
import type { Copies, Lags } from './copies.ts';

interface Place {
  readonly candidate: Candidate;
  readonly copies: Copies;
  readonly before: ReadonlySet<number>;
  readonly partitions: Set<number>;
  /** Of its copies, how many are of partitions that the same member owns. */
  readonly ofOwner: Map<Candidate, number>;
}

/**
 * Who keeps copies of which partitions beside their owners: `perPartition` members for each, or as many as there are.
 *
 * - Whoever warms up is one of them, whatever `perPartition` says.
 * - Those whose copies are most complete come first; all that are caught up are equal.
 * - Of equals one that has less than its part, then one that was a standby before, then one that has some copy, then the
 *   one that has fewest of the same owner's, so that many can share what an owner leaves behind, then fewest of all.
 * - A member that says nothing of its copies is none.
 */
export function chooseStandbys(
  candidates: readonly Candidate[],
  owners: readonly Candidate[],
  targets: readonly Candidate[],
  lags: Lags,
  perPartition: number,
): ReadonlyMap<Candidate, ReadonlySet<number>> {
  const places = candidates.flatMap((candidate) => placeOf(candidate) ?? []);
  const others = owners.map((owner) => places.filter(({ candidate }) => candidate !== owner));
  const wanted = others.map(({ length }) => Math.min(perPartition, length));
  const part = wanted.reduce((sum, one) => sum + one, 0) / places.length;
  for (const place of places) {
    owners.forEach((owner, partition) => {
      if (targets[partition] === place.candidate && owner !== place.candidate) add(place, partition, owner);
    });
  }
  for (const { owner, partition } of inTurn(owners)) {
    const able = others[partition] ?? [];
    const free = able.filter(({ partitions }) => !partitions.has(partition));
    const missing = Math.max(0, (wanted[partition] ?? 0) - (able.length - free.length));
    const best = missing < free.length ? inPreference(free, partition, owner, lags, part) : free;
    for (const place of best.slice(0, missing)) add(place, partition, owner);
  }
  return new Map(places.map(({ candidate, partitions }) => [candidate, partitions]));
}

/** Those last whose owners were standbys of most: a newcomer can't take its part from what it owns itself. */
function inTurn(owners: readonly Candidate[]) {
  const before = new Map(owners.map((owner) => [owner, standbysBefore(owner).size]));
  const size = (owner: Candidate) => before.get(owner) ?? 0;
  return owners.map((owner, partition) => ({ owner, partition })).sort((x, y) => size(x.owner) - size(y.owner));
}

function standbysBefore({ claims }: Candidate): ReadonlySet<number> {
  return new Set(claims.flatMap(({ standbys }) => standbys));
}

function placeOf(candidate: Candidate): Place | undefined {
  const { copies } = candidate;
  if (copies === undefined) return undefined;
  return { candidate, copies, before: standbysBefore(candidate), partitions: new Set(), ofOwner: new Map() };
}

function add({ partitions, ofOwner }: Place, partition: number, owner: Candidate): void {
  partitions.add(partition);
  ofOwner.set(owner, (ofOwner.get(owner) ?? 0) + 1);
}

function inPreference(able: readonly Place[], partition: number, owner: Candidate, lags: Lags, part: number): Place[] {
  const rank = ({ candidate, copies, before, partitions, ofOwner }: Place) => [
    lags.isCaughtUp(candidate, partition) ? 0 : lags.of(candidate, partition),
    partitions.size < part ? 0 : 1,
    before.has(partition) ? 0 : 1,
    copies.has(partition) ? 0 : 1,
    ofOwner.get(owner) ?? 0,
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
