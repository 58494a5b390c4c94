import type { CopyReport, Lags } from './copies.ts';

/** The partitions of the topic that a member has, as sorted lists. */
export interface Share {
  /** Partitions that it owns. */
  readonly partitions: readonly number[];
  /** Partitions of other members of which it keeps a copy. */
  readonly standbys: readonly number[];
  /** The standbys that it will own as soon as its copy is complete. */
  readonly warmups: readonly number[];
}

export const NOTHING: Share = { partitions: [], standbys: [], warmups: [] };

/** The partitions that a member has or had, with the generation of the group. */
export interface Claims extends Share {
  readonly generation: number;
}

/** A member that can get partitions. */
export interface Candidate {
  readonly memberId: string;
  /** Stable across restarts, so that members are ordered the same way in every generation. */
  readonly instanceId?: string | undefined;
  readonly claims: readonly Claims[];
  readonly copies: CopyReport;
  /** Partitions that it can't serve now, since it does not reach a broker that leads them. */
  readonly unreached?: readonly number[] | undefined;
}

/**
 * Assigns the partitions 0 to `partitions` - 1 of one topic, and returns the owner of each.
 *
 * - Balanced: the members' counts differ by at most one.
 * - Sticky: a claimed partition goes to the claim of the highest generation, and within a generation to the member that
 *   was promised it as a warm-up. Only as many partitions change owner as balance requires: first those that an earlier
 *   owner claims too, so that a returning member gets back what it had, then those with the smallest lag at a member
 *   with room.
 * - An unclaimed partition goes to the member with room that has the smallest lag.
 * - Deterministic: the same members in the same order get the same partitions.
 */
export function assignSticky(partitions: number, candidates: readonly Candidate[], lags: Lags): Candidate[] {
  if (candidates.length === 0) return [];
  const seats = seat(partitions, candidates);
  const claimants = claimantsOf(partitions, seats);
  claimants.forEach(([owner], partition) => {
    owner?.held.push(partition);
  });
  setQuotas(partitions, seats);
  const free = claimants.flatMap((claiming, partition) => (claiming.length === 0 ? [partition] : []));
  for (const seat of seats) returnToEarlierOwners(seat, claimants);
  for (const seat of seats) free.push(...releaseSurplus(seat, seats, lags));
  distribute(free, seats, lags);
  return ownersOf(partitions, seats);
}

interface Seat {
  readonly candidate: Candidate;
  readonly held: number[];
  quota: number;
}

function seat(partitions: number, candidates: readonly Candidate[]): Seat[] {
  const quota = Math.floor(partitions / candidates.length);
  return candidates.map((candidate) => ({ candidate, held: [], quota }));
}

/** Sorted by names that survive a restart. */
export function inOrder(candidates: readonly Candidate[]): Candidate[] {
  const nameOf = ({ instanceId, memberId }: Candidate) => instanceId ?? memberId;
  return candidates.toSorted(
    (one, other) => compare(nameOf(one), nameOf(other)) || compare(one.memberId, other.memberId),
  );
}

/** By code units, whatever the locale. */
function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

/**
 * The claimants of each partition, each once: newest generation first, then promised warm-ups, then order of members.
 */
function claimantsOf(partitions: number, seats: readonly Seat[]): Seat[][] {
  const claims = seats.flatMap((seat) =>
    seat.candidate.claims.flatMap(({ generation, warmups, partitions: owned }) => [
      { seat, generation, isPromised: true, claimed: warmups },
      { seat, generation, isPromised: false, claimed: owned },
    ]),
  );
  const claimants: Seat[][] = Array.from({ length: partitions }, () => []);
  const newestFirst = claims.toSorted(
    (one, other) => other.generation - one.generation || Number(other.isPromised) - Number(one.isPromised),
  );
  for (const { seat, claimed } of newestFirst) {
    for (const partition of claimed) {
      if (claimants[partition]?.includes(seat) === false) claimants[partition].push(seat);
    }
  }
  return claimants;
}

/** Members that hold most get one of the remainder each, so that they keep what they have. */
function setQuotas(partitions: number, seats: readonly Seat[]): void {
  const byHeld = seats.toSorted((one, other) => other.held.length - one.held.length);
  for (const seat of byHeld.slice(0, partitions % seats.length)) seat.quota += 1;
}

const room = ({ quota, held }: Seat) => quota - held.length;

/** Gives partitions above a member's quota to earlier owners with room. */
function returnToEarlierOwners(seat: Seat, claimants: readonly (readonly Seat[])[]): void {
  for (const partition of seat.held.toReversed()) {
    if (room(seat) >= 0) return;
    const owner = claimants[partition]?.find((one) => one !== seat && room(one) > 0);
    if (owner === undefined) continue;
    seat.held.splice(seat.held.indexOf(partition), 1);
    owner.held.push(partition);
  }
}

/** Takes from a member the partitions above its quota, those first in which members with room lag least. */
function releaseSurplus(seat: Seat, seats: readonly Seat[], lags: Lags): number[] {
  const roomy = seats.filter((one) => room(one) > 0);
  const leastLag = (partition: number) => Math.min(...roomy.map(({ candidate }) => lags.of(candidate, partition)));
  if (room(seat) < 0) seat.held.sort((one, other) => leastLag(other) - leastLag(one));
  return seat.held.splice(seat.quota);
}

/**
 * Gives each partition to the member with the smallest lag; of several to the one with the most room, then to the
 * first.
 */
function distribute(free: readonly number[], seats: readonly Seat[], lags: Lags): void {
  for (const partition of fewestCopiesFirst(free, seats, lags)) {
    const lag = ({ candidate }: Seat) => lags.of(candidate, partition);
    const [best] = seats
      .filter((seat) => room(seat) > 0)
      .sort((one, other) => lag(one) - lag(other) || room(other) - room(one));
    best?.held.push(partition);
  }
}

/** So that the member with the only copy of a partition still has room for it. Partitions without a copy come last. */
function fewestCopiesFirst(free: readonly number[], seats: readonly Seat[], lags: Lags): number[] {
  const copies = (partition: number) =>
    seats.filter(({ candidate }) => lags.isCaughtUp(candidate, partition)).length || Number.POSITIVE_INFINITY;
  const counted = free.map((partition) => ({ partition, copies: copies(partition) }));
  return counted
    .sort((one, other) => (one.copies === other.copies ? one.partition - other.partition : one.copies - other.copies))
    .map(({ partition }) => partition);
}

function ownersOf(partitions: number, seats: readonly Seat[]): Candidate[] {
  const owners = new Array<Candidate>(partitions);
  for (const { candidate, held } of seats) for (const partition of held) owners[partition] = candidate;
  return owners;
}
