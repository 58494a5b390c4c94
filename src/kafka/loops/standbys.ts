import type { Candidate } from './assigner.ts';
import type { Lags } from './copies.ts';

interface Place {
  readonly candidate: Candidate;
  readonly before: ReadonlySet<number>;
  readonly partitions: Set<number>;
  /** How many of its copies are of partitions of the same owner. */
  readonly ofOwner: Map<Candidate, number>;
}

/**
 * Chooses the standbys of each partition: `perPartition` members, or as many as there are.
 *
 * - Members that warm up are always among them, whatever `perPartition` is.
 * - Then members keep what they were standbys of before, up to their share. Without this first pass, the order in which
 *   partitions are dealt could give one away that its standby keeps, and back again in the next plan.
 * - Members with the most complete copies come first; all that are caught up are equal.
 * - Among equals: one with less than its share, then one that was a standby before, then one with any copy, then the one
 *   with the fewest copies of the same owner, so that many can take over what an owner leaves, then the fewest in all.
 */
export function chooseStandbys(
  candidates: readonly Candidate[],
  owners: readonly Candidate[],
  targets: readonly Candidate[],
  lags: Lags,
  perPartition: number,
): ReadonlyMap<Candidate, ReadonlySet<number>> {
  const places = candidates.map(placeOf);
  const others = owners.map((owner) => places.filter(({ candidate }) => candidate !== owner));
  const wanted = others.map(({ length }) => Math.min(perPartition, length));
  const part = wanted.reduce((sum, one) => sum + one, 0) / places.length;
  for (const place of places) {
    owners.forEach((owner, partition) => {
      if (targets[partition] === place.candidate && owner !== place.candidate) add(place, partition, owner);
    });
  }
  const keeps = ({ candidate, before, partitions }: Place, partition: number) =>
    before.has(partition) && lags.isCaughtUp(candidate, partition) && partitions.size < Math.floor(part);
  for (const isEligible of [keeps, () => true]) {
    for (const { owner, partition } of inTurn(owners)) {
      const able = others[partition] ?? [];
      const free = able.filter(({ partitions }) => !partitions.has(partition));
      const missing = Math.max(0, (wanted[partition] ?? 0) - (able.length - free.length));
      const eligible = free.filter((place) => isEligible(place, partition));
      const best = missing < eligible.length ? inPreference(eligible, partition, owner, lags, part) : eligible;
      for (const place of best.slice(0, missing)) add(place, partition, owner);
    }
  }
  return new Map(places.map(({ candidate, partitions }) => [candidate, partitions]));
}

/** Partitions whose owners were standbys of the most come last: a new member can't be standby of what it owns itself. */
function inTurn(owners: readonly Candidate[]) {
  const before = new Map(owners.map((owner) => [owner, standbysBefore(owner).size]));
  const size = (owner: Candidate) => before.get(owner) ?? 0;
  return owners.map((owner, partition) => ({ owner, partition })).sort((x, y) => size(x.owner) - size(y.owner));
}

function standbysBefore({ claims }: Candidate): ReadonlySet<number> {
  return new Set(claims.flatMap(({ standbys }) => standbys));
}

function placeOf(candidate: Candidate): Place {
  return { candidate, before: standbysBefore(candidate), partitions: new Set(), ofOwner: new Map() };
}

function add({ partitions, ofOwner }: Place, partition: number, owner: Candidate): void {
  partitions.add(partition);
  ofOwner.set(owner, (ofOwner.get(owner) ?? 0) + 1);
}

function inPreference(able: readonly Place[], partition: number, owner: Candidate, lags: Lags, part: number): Place[] {
  const rank = ({ candidate, before, partitions, ofOwner }: Place) => [
    lags.isCaughtUp(candidate, partition) ? 0 : lags.of(candidate, partition),
    partitions.size < part ? 0 : 1,
    before.has(partition) ? 0 : 1,
    candidate.copies.has(partition) ? 0 : 1,
    ofOwner.get(owner) ?? 0,
    partitions.size,
  ];
  return able
    .map((place) => ({ place, rank: rank(place) }))
    .sort((one, other) => compareAll(one.rank, other.rank))
    .map(({ place }) => place);
}

/** Lexicographic order. */
function compareAll(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((value, i) => value !== other[i]);
  return at < 0 ? 0 : (one[at] ?? 0) - (other[at] ?? 0);
}
