import { assignSticky, type Candidate, inOrder, type Share } from './assigner.ts';
import { Lags } from './copies.ts';

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
 * The target is balanced and sticky. A partition whose target owner has no complete copy stays with a member that has
 * one, while the target owner warms up as a standby (KIP-441). Later plans keep that promise: it gets the partition in
 * the first plan that finds its copy complete. The same members give the same plan, in any order.
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

/**
 * The interim owner of each partition, so that no partition waits for a restore or for a broker while another member
 * could serve it. Of the members that reach its brokers, or of all if none does:
 *
 * - The target owner, if it is caught up, or if no member is and it reaches them: then it restores the partition.
 * - Else the current owner, if it is caught up.
 * - Else the member that owns the fewest among those caught up.
 * - Else the member that owns the fewest among those that reach its brokers, which restores the partition.
 */
function interimOwners(candidates: readonly Candidate[], targets: readonly Candidate[], lags: Lags): Candidate[] {
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
 * - Among equals: one with less than its share, then one that was a standby before, then one with any copy, then the
 *   one with the fewest copies of the same owner, so that many can take over what an owner leaves, then the fewest.
 */
function chooseStandbys(
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

/**
 * Partitions whose owners were standbys of the most come last: a new member can't be standby of what it owns itself.
 */
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
