/** What a member had, or has, and in which generation of the group. */
export interface Claims {
  readonly generation: number;
  readonly partitions: readonly number[];
}

/** A member that gets partitions. */
export interface Candidate {
  readonly memberId: string;
  /** The same after a restart, so that it orders members alike in every generation. */
  readonly instanceId?: string;
  readonly claims: readonly Claims[];
}

/** The partitions of each member, in their order, by its member ID. */
export type Plan = ReadonlyMap<string, readonly number[]>;

/**
 * Deals out the partitions 0 to `partitions` - 1 of one topic.
 *
 * - Balanced: the members' counts differ by one at most.
 * - Sticky: a partition that is claimed belongs to the claim of the highest generation, and only as many leave their
 *   owner as balance demands: those first that an earlier owner claims too, so that who returns gets back what it had.
 * - Deterministic: the same members give the same plan, in whatever order they come.
 */
export function assignSticky(partitions: number, candidates: readonly Candidate[]): Plan {
  if (candidates.length === 0) return new Map();
  const seats = seat(partitions, inOrder(candidates));
  const claimants = claimantsOf(partitions, seats);
  claimants.forEach(([owner], partition) => {
    owner?.held.push(partition);
  });
  setQuotas(partitions, seats);
  const free = claimants.flatMap((claiming, partition) => (claiming.length === 0 ? [partition] : []));
  for (const seat of seats) free.push(...handBack(seat, claimants));
  deal(free, seats);
  return planOf(seats);
}

/**
 * As kafkajs' RoundRobinAssigner does: partition by partition to the members in the order of their IDs. For groups with a
 * member that knows nothing else.
 */
export function assignRoundRobin(partitions: number, memberIds: readonly string[]): Plan {
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

function inOrder(candidates: readonly Candidate[]): Candidate[] {
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
  const claims = seats.flatMap((seat) => seat.candidate.claims.map((claim) => ({ seat, ...claim })));
  const claimants: Seat[][] = Array.from({ length: partitions }, () => []);
  for (const { seat, partitions: claimed } of claims.toSorted((one, other) => other.generation - one.generation)) {
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

/** Takes from a member what is above its quota. What no earlier owner with room gets is returned, for anybody. */
function handBack(seat: Seat, claimants: readonly (readonly Seat[])[]): number[] {
  const earlierOwner = (partition: number) =>
    claimants[partition]?.find((one) => one !== seat && one.held.length < one.quota);
  for (const partition of seat.held.toReversed()) {
    const owner = seat.held.length > seat.quota ? earlierOwner(partition) : undefined;
    if (owner === undefined) continue;
    seat.held.splice(seat.held.indexOf(partition), 1);
    owner.held.push(partition);
  }
  return seat.held.splice(seat.quota);
}

/** Each to the member with the most room, of several to the first. */
function deal(free: readonly number[], seats: readonly Seat[]): void {
  const room = ({ quota, held }: Seat) => quota - held.length;
  for (const partition of free.toSorted((one, other) => one - other)) {
    const roomiest = seats.reduce((best, seat) => (room(seat) > room(best) ? seat : best));
    roomiest.held.push(partition);
  }
}

function planOf(seats: readonly Seat[]): Plan {
  return new Map(seats.map(({ candidate, held }) => [candidate.memberId, held.toSorted((one, other) => one - other)]));
}
