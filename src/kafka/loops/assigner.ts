import type { Copies, Lags } from './copies.ts';

/** What a member has of the topic: lists of partitions in their order. */
export interface Share {
  /** Those that it owns. */
  readonly partitions: readonly number[];
  /** Those of others whose state it keeps a copy of. */
  readonly standbys: readonly number[];
  /** The standbys that it is to own as soon as its copy is complete. */
  readonly warmups: readonly number[];
}

/** What a member had, or has, and in which generation of the group. */
export interface Claims extends Share {
  readonly generation: number;
}

/** A member that gets partitions. */
export interface Candidate {
  readonly memberId: string;
  /** The same after a restart, so that it orders members alike in every generation. */
  readonly instanceId?: string;
  readonly claims: readonly Claims[];
  /** Undefined when it says nothing of them. */
  readonly copies?: Copies | undefined;
}

/**
 * Deals out the partitions 0 to `partitions` - 1 of one topic, and returns the owner of each.
 *
 * - Balanced: the members' counts differ by one at most.
 * - Sticky: a partition that is claimed belongs to the claim of the highest generation, and of one generation to whom it
 *   was promised as a warm-up. Only as many leave their owner as balance demands: those first that an earlier owner
 *   claims too, so that who returns gets back what it had, then those of which a member with room lacks least.
 * - What nobody claims goes, among the members with room, to the one that lacks least of it.
 * - Deterministic: the same members in the same order have the same partitions.
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
  for (const seat of seats) giveBack(seat, claimants);
  for (const seat of seats) free.push(...handBack(seat, seats, lags));
  deal(free, seats, lags);
  return ownersOf(partitions, seats);
}

/**
 * As kafkajs' RoundRobinAssigner does: partition by partition to the members in the order of their IDs. For groups with a
 * member that knows nothing else.
 */
export function assignRoundRobin(partitions: number, memberIds: readonly string[]): ReadonlyMap<string, number[]> {
  const sorted = memberIds.toSorted(compare);
  const all = Array.from({ length: partitions }, (_, partition) => partition);
  return new Map(sorted.map((memberId, at) => [memberId, all.filter((p) => p % sorted.length === at)]));
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

/** By names that outlive a restart. */
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

/** For each partition who claims it, each once: the newest claim first, of the same generation the first member's. */
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

/** What does not divide goes by one to those who have most: so most of them keep what they have. */
function setQuotas(partitions: number, seats: readonly Seat[]): void {
  const byHeld = seats.toSorted((one, other) => other.held.length - one.held.length);
  for (const seat of byHeld.slice(0, partitions % seats.length)) seat.quota += 1;
}

const room = ({ quota, held }: Seat) => quota - held.length;

/** Gives earlier owners with room what a member has above its quota. */
function giveBack(seat: Seat, claimants: readonly (readonly Seat[])[]): void {
  for (const partition of seat.held.toReversed()) {
    if (room(seat) >= 0) return;
    const owner = claimants[partition]?.find((one) => one !== seat && room(one) > 0);
    if (owner === undefined) continue;
    seat.held.splice(seat.held.indexOf(partition), 1);
    owner.held.push(partition);
  }
}

/** Takes from a member what is above its quota, for anybody with room: that of which they lack least. */
function handBack(seat: Seat, seats: readonly Seat[], lags: Lags): number[] {
  const roomy = seats.filter((one) => room(one) > 0);
  const leastLag = (partition: number) => Math.min(...roomy.map(({ candidate }) => lags.of(candidate, partition)));
  if (room(seat) < 0) seat.held.sort((one, other) => leastLag(other) - leastLag(one));
  return seat.held.splice(seat.quota);
}

/** Each to the member that lacks least of it, of several to the one with the most room, and then to the first. */
function deal(free: readonly number[], seats: readonly Seat[], lags: Lags): void {
  for (const partition of fewestCopiesFirst(free, seats, lags)) {
    const lag = ({ candidate }: Seat) => lags.of(candidate, partition);
    const [best] = seats
      .filter((seat) => room(seat) > 0)
      .sort((one, other) => lag(one) - lag(other) || room(other) - room(one));
    best?.held.push(partition);
  }
}

/** Whoever has the only copy of a partition should have room for it still. Those of which nobody has one take what is left. */
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
